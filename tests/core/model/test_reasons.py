"""Reason codes."""

from __future__ import annotations

import msgspec
import pytest

from tidegate_server.core.model.reasons import Reason, ReasonGroup
from tidegate_server.core.model.runs import Rejection, SourceChange


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


def test_reasons_of_another_version_are_kept() -> None:
    stored = msgspec.json.encode(
        [Rejection(strategy="FULL", reason_code=Reason.FORCED, reason_text="t")]
    )
    changed = stored.replace(b"FORCED", b"OF_LATER")
    (found,) = msgspec.json.decode(changed, type=tuple[Rejection, ...])
    assert found.reason_code == "OF_LATER"
    assert msgspec.json.encode([found]) == changed
    change = b'{"source":"t","before":1,"after":2,"method":"OF_LATER","rows":null}'
    assert msgspec.json.decode(change, type=SourceChange).method == "OF_LATER"
    assert "OF_LATER" not in [reason.value for reason in Reason]
