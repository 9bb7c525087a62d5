"""VERIFY MATERIALIZED TABLE, seen from the gateway."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import FakeEngine, World
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.answers import Answer, Verified
from tidegate_server.core.messages.requests import Request, VerifyTable
from tidegate_server.gateway.command.dispatch import prepare


class VerifyingEngine(FakeEngine):
    """An engine that has compared already."""

    def __init__(self, verified: Verified) -> None:
        super().__init__()
        self.verified = verified

    def call(self, request: Request, **given: object) -> Answer:
        if not isinstance(request, VerifyTable):
            return super().call(request)
        self.requests.append(request)
        return self.verified


def verifying(world: World, verified: Verified) -> VerifyingEngine:
    """Give the world such an engine and the table m."""
    world.engine = engine = VerifyingEngine(verified)
    world.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t1")
    return engine


def test_one_row_says_what_was_found(world: World) -> None:
    found = Verified(version=7, epoch=3, missing_rows=1, extra_rows=0, sample='[{"side": "x"}]')
    engine = verifying(world, found)
    rows = world.rows("VERIFY MATERIALIZED TABLE m VERSION 7")
    assert rows == [("spark_catalog.d.m", 7, 3, False, 1, 0, '[{"side": "x"}]', None)]
    (request,) = engine.requests_of(VerifyTable)
    assert isinstance(request, VerifyTable)
    assert request.version == 7
    assert request.order.expanded_query == world.definition("m").expanded_query


def test_an_equal_table_has_no_sample(world: World) -> None:
    verifying(world, Verified(version=1, epoch=1, missing_rows=0, extra_rows=0))
    assert world.rows("VERIFY MATERIALIZED TABLE m") == [
        ("spark_catalog.d.m", 1, 1, True, 0, 0, None, None)
    ]
    assert not world.refreshed[1:]  # none but the first one


def test_it_says_which_rows_were_not_compared(world: World) -> None:
    found = Verified(version=1, epoch=1, missing_rows=0, extra_rows=0, left_out="d < 'x'")
    verifying(world, found)
    assert world.rows("VERIFY MATERIALIZED TABLE m")[0][-1] == "d < 'x'"
    assert "Note: Immutable rows were not compared: those where d < 'x'" in world.logged


def test_clients_fetch_its_row() -> None:
    assert prepare("VERIFY MATERIALIZED TABLE m").returns_rows


def test_only_materialized_tables_are_verified(world: World) -> None:
    with pytest.raises(ServerError) as caught:
        world.execute("VERIFY MATERIALIZED TABLE nothing")
    assert caught.value.code == Code.MT_NOT_FOUND.name
