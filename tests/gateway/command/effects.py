"""Statements and their observable effects, for the tests that nothing is accepted in vain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.command.fakes import World
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.refresh.request import RefreshOrder, RefreshRequest
from tidegate_server.gateway.runs.orders import refresh_order

TESTS = Path(__file__).parents[2]
ALTER = "ALTER MATERIALIZED TABLE m"


def create(
    *before: str,
    options: str = "",
    items: str = "",
    after: str = "",
    query: str = "SELECT * FROM t1",
) -> str:
    """Return a statement with clauses before and after WITH."""
    parts = ("CREATE MATERIALIZED TABLE m", items, *before)
    written = f"WITH ({options})" if options else ""
    return " ".join(filter(None, (*parts, written, after, f"AS {query}")))


def refusal(world: World, statement: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    return caught.value


def warned(world: World, word: str) -> bool:
    return any(line.startswith("Warning: ") and word in line for line in world.logged)


DAYS = "'partition.fields.d.date-formatter' = 'yyyy-MM-dd'"
FULL = "REFRESH_MODE = FULL"


def order_of(world: World) -> RefreshOrder:
    table = world.table("m")
    request = RefreshRequest(table_id=table.id, trigger=Trigger.MANUAL, requested_by="ann")
    return refresh_order(table, request, refresh_id="r", epoch=1, asked_at=table.created_at)
