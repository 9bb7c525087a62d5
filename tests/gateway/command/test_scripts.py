"""Scripts in the style of Flink's pages and lakehouse tutorials run unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from tests.core.sql.render import render
from tests.gateway.command.fakes import Column, Schema, World, analysis
from tidegate.cli.split import split
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Analysis
from tidegate_server.core.model.table import RefreshMode
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement

FIXTURES = Path(__file__).parents[2] / "sql" / "fixtures"
_TEXTS = frozenset({"ds", "hh", "product_id", "product_name"})


class _Selected(dict[str, Analysis]):
    """The columns of queries, from their SELECT lists alone; * is three columns."""

    def get(self, key: str, default: object = None) -> Analysis:  # type: ignore[override]
        names = [item.alias_or_name for item in sqlglot.parse_one(key, read="spark").selects]
        names = ["ds", "user_id", "amount"] if "*" in names else names
        columns = (
            Column(name=n, type="string" if n in _TEXTS else "bigint", nullable=n not in _KEYS)
            for n in names
        )
        return analysis(Schema(tuple(columns)), "src", expanded=key)


_KEYS = frozenset({"ds", "hh", "item_id"})


def statements(script: str) -> list[str]:
    text = (FIXTURES / script).read_text(encoding="utf-8")
    return [part.sql for part in split(text) if part.sql]


@pytest.mark.parametrize("script", ["flink.sql", "lakehouse.sql"])
def test_every_statement_parses_and_prints(script: str) -> None:
    found = statements(script)
    assert len(found) > 9
    for text in found:
        statement = parse(text)
        assert parse(render(statement)) == statement
        ours = "MATERIALIZED" in text or text.startswith(("SET", "SHOW LINEAGE", "BEGIN", "END"))
        assert isinstance(statement, SparkStatement) is not ours


@pytest.mark.parametrize("script", ["flink.sql", "lakehouse.sql"])
def test_every_statement_is_carried_out(world: World, script: str) -> None:
    world.engine.analyses = _Selected()
    for text in statements(script):
        world.execute(text)


def test_the_layers_go_from_batch_to_stream(world: World) -> None:
    world.engine.analyses = _Selected()
    modes = []
    for text in statements("lakehouse.sql"):
        world.execute(text)
        found = {
            table.name.table: table.definition.refresh_mode for table in world.catalog.tables()
        }
        modes.append(found.get("dws_overall"))
    assert [mode for mode in modes if mode] == [RefreshMode.FULL] * 3 + [RefreshMode.CONTINUOUS] * 4


@pytest.mark.parametrize(
    ("freshness", "code"),
    [
        ("INTERVAL '-1' SECOND", "MT_FRESHNESS_POSITIVE"),
        ("INTERVAL '0' SECOND", "MT_FRESHNESS_POSITIVE"),
        ("INTERVAL '1' MONTH", "MT_FRESHNESS_UNIT"),
        ("INTERVAL '1' YEAR", "MT_FRESHNESS_UNIT"),
        ("INTERVAL '60' SECOND", "MT_FRESHNESS_TOO_LARGE"),
        ("INTERVAL '5' HOUR", "MT_FRESHNESS_NOT_FACTOR"),
    ],
)
def test_what_flink_calls_invalid_is_refused(world: World, freshness: str, code: str) -> None:
    with pytest.raises(ServerError) as caught:
        world.execute(
            f"CREATE MATERIALIZED TABLE m FRESHNESS = {freshness} REFRESH_MODE = FULL "
            "AS SELECT * FROM t1"
        )
    assert caught.value.code == code
