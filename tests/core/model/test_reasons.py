"""Reason codes."""

from __future__ import annotations

import msgspec
import pytest

from tidegate_server.core.model.reasons import Reason, ReasonGroup


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_its_name_and_has_a_meaning(reason: Reason) -> None:
    assert reason == reason.name
    assert reason.meaning
    assert not reason.meaning.endswith(".")


def test_each_group_has_reasons() -> None:
    assert {reason.group for reason in Reason} == set(ReasonGroup)


def test_reasons_cross_the_link_as_their_codes() -> None:
    data = msgspec.msgpack.encode(Reason.FORCED)
    assert msgspec.msgpack.decode(data) == "FORCED"
    assert msgspec.msgpack.decode(data, type=Reason) is Reason.FORCED
