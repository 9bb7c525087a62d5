"""SET 'sql.dialect': statements in Flink's SQL are translated before anything reads them."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.gateway.command.fakes import World, analysis
from tests.gateway.command.tables import column
from tests.gateway.protocol.gateway import eventually
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import Analyze, Execute
from tidegate_server.core.model.dialects import SqlDialect
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.command.dispatch import prepare
from tidegate_server.gateway.session.manager import SessionManager

QUERY = "SELECT a / 2 AS a FROM t1"
TRANSLATED = "SELECT flink_divide(a, 2) AS a FROM t1"


@pytest.fixture
def flink(world: World) -> World:
    """A session whose statements are Flink's SQL."""
    world.engine.analyses[TRANSLATED] = analysis(Schema((column("a"),)), "t1")
    world.execute("SET 'sql.dialect' = 'flink'")
    return world


def _sent(world: World) -> str:
    return world.engine.requests_of(Execute)[-1].sql


def test_a_statement_is_translated_before_anything_reads_it(flink: World) -> None:
    flink.execute(QUERY)
    assert _sent(flink) == TRANSLATED
    flink.execute("RESET 'sql.dialect'")
    flink.execute(QUERY)
    assert _sent(flink) == QUERY


def test_a_statement_may_bring_its_dialect(world: World) -> None:
    world.execute(QUERY, {"sql.dialect": "FLINK"})
    assert _sent(world) == TRANSLATED


def test_a_session_may_be_opened_with_it(world: World) -> None:
    services = replace(world._services(), new_id=lambda: str(uuid.uuid4()))
    manager = SessionManager(services, prepare)
    session = manager.open("ann", {"set:hiveconf:sql.dialect": "flink"}, manager.connect())
    operation = session.submit(QUERY)
    assert eventually(lambda: operation.state.terminal)
    assert _sent(world) == TRANSLATED


def test_a_definition_is_stored_translated_and_without_the_dialect(flink: World) -> None:
    flink.execute(f"CREATE MATERIALIZED TABLE m AS {QUERY}")
    definition = flink.definition("m")
    assert definition.original_query == TRANSLATED
    assert "sql.dialect" not in definition.settings
    assert flink.engine.requests_of(Analyze)[0].sql == TRANSLATED


def test_the_same_statement_is_the_same_definition(flink: World) -> None:
    for _ in range(2):
        flink.execute(f"CREATE OR ALTER MATERIALIZED TABLE m AS {QUERY}")
    assert flink.definition("m").original_query == TRANSLATED


@pytest.mark.parametrize(
    ("value", "hint"), [("flikn", "did you mean flink?"), ("hive", "use one of spark, flink")]
)
def test_another_dialect_is_refused(world: World, value: str, hint: str) -> None:
    with pytest.raises(ServerError, match="MT_OPTION_VALUE") as caught:
        world.execute(f"SET 'sql.dialect' = '{value}'")
    assert hint in caught.value.message
    with pytest.raises(ServerError, match="MT_OPTION_VALUE"):
        world.execute(QUERY, {"sql.dialect": value})


def test_it_is_shown(flink: World) -> None:
    assert flink.rows("SET 'sql.dialect'") == [("sql.dialect", "flink")]


def test_errors_point_into_the_users_text(flink: World) -> None:
    text = "SELECT AVG(a) AS x,\n  FLOOR(ts TO DAY),\n  TYPEOF(b) FROM t1"
    with pytest.raises(ServerError) as caught:
        flink.execute(text)
    assert (caught.value.code, caught.value.line, caught.value.column) == (
        "FLINK_SQL_UNSUPPORTED",
        3,
        3,
    )


def test_errors_of_spark_point_into_the_users_text(flink: World) -> None:
    text = "SELECT a / b, missing FROM t1"
    sent = "SELECT flink_divide(a, b), missing FROM t1"
    flink.engine.failures[Execute] = ServerError(
        code="UNRESOLVED_COLUMN.WITH_SUGGESTION",
        sqlstate="42703",
        message="A column cannot be resolved.",
        line=1,
        column=sent.index("missing") + 1,
    )
    with pytest.raises(ServerError) as caught:
        flink.execute(text)
    assert caught.value.column == text.index("missing") + 1


def test_errors_of_our_own_grammar_point_into_the_users_text() -> None:
    text = "CREATE MATERIALIZED TABLE m (a TIMESTAMP(3), b BYTES) FRESHNES = 1 AS SELECT 1"
    problem = prepare(text, SqlDialect.FLINK).problem
    assert problem is not None
    assert problem.column == text.index("FRESHNES") + 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), x, y))", "PARSE_SYNTAX_ERROR"),
        ("SELECT CAST(a AS TIMESTAMP(3)) FROM t", "UNSUPPORTED_DATATYPE"),
        ("SELECT FLOOR(ts TO DAY) FROM t", "PARSE_SYNTAX_ERROR"),
        ("SELECT PROCTIME()", "UNRESOLVED_ROUTINE"),
    ],
)  # fmt: skip
def test_sparks_errors_for_flinks_constructs_name_the_setting(
    world: World, text: str, code: str
) -> None:
    world.engine.failures[Execute] = ServerError(code=code, sqlstate="42601", message="It fails.")
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    assert "SET 'sql.dialect' = 'flink'" in caught.value.hint
