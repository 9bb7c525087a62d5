"""What a table over a stream cannot have, and which refreshes it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gateway.command.fakes import Column, Schema, World, analysis
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.versions import Source, SourceKind

QUERY = "SELECT a FROM STREAM rate()"
OTHER = "SELECT a FROM STREAM read_files('/in', format => 'csv')"


def over(stream: str) -> Source:
    name = TableName("spark_catalog", "STREAM", stream)
    return Source(name=name, kind=SourceKind.STREAM, table_id=str(name))


@pytest.fixture
def world() -> World:
    made = World()
    columns = Schema((Column(name="a", type="int"), Column(name="s", type="string")))
    for query, stream in ((QUERY, "rate()"), (OTHER, "read_files(/in)")):
        made.engine.analyses[query] = replace(analysis(columns), sources=(over(stream),))
    strict = Schema((Column(name="a", type="int", nullable=False),))
    made.engine.analyses["SELECT a FROM t"] = analysis(strict, "t")
    return made


def refusal(world: World, statement: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    return caught.value


@pytest.mark.parametrize(
    ("columns", "clauses", "said"),
    [
        ("(CONSTRAINT c ASSERT (row_count > 0))", "", "ASSERT"),
        (
            "PARTITIONED BY (s)",
            "WITH ('partition.fields.s.date-formatter' = 'yyyy')",
            "date-formatter",
        ),
        ("", "IMMUTABLE WHERE (a > 1)", "IMMUTABLE WHERE"),
        ("", "REFRESH_MODE = FULL REFRESH_TRIGGER = ON UPDATE", "REFRESH_TRIGGER"),
    ],
)
def test_parts_that_look_at_other_rows_are_refused(
    world: World, columns: str, clauses: str, said: str
) -> None:
    problem = refusal(world, f"CREATE MATERIALIZED TABLE raw {columns} {clauses} AS {QUERY}")
    assert (problem.code, said in problem.message) == ("MT_STREAM_UNSUPPORTED", True)
    assert world.catalog.tables() == ()


@pytest.mark.parametrize("what", ["FULL", "WHERE a = 1"])
def test_rows_are_not_asked_for_again(world: World, what: str) -> None:
    world.execute(f"CREATE MATERIALIZED TABLE raw AS {QUERY}")
    for explain in ("", "EXPLAIN "):
        problem = refusal(world, f"{explain}ALTER MATERIALIZED TABLE raw REFRESH {what}")
        assert (problem.code, bool(problem.hint)) == ("MT_STREAM_UNSUPPORTED", True)


def test_lineage_shows_the_stream(world: World) -> None:
    world.execute(f"CREATE MATERIALIZED TABLE raw AS {QUERY}")
    [edge] = world.rows("SHOW LINEAGE raw")
    assert edge[1:] == ("spark_catalog.STREAM.rate()", "STREAM")


@pytest.mark.parametrize("query", [OTHER, "SELECT a FROM t"])
def test_a_table_stays_with_its_stream(world: World, query: str) -> None:
    world.execute(f"CREATE MATERIALIZED TABLE raw AS {QUERY}")
    problem = refusal(world, f"ALTER MATERIALIZED TABLE raw AS {query}")
    assert problem.code == "MT_STREAM_CHANGED"
    problem = refusal(world, f"CREATE OR ALTER MATERIALIZED TABLE raw AS {query}")
    assert problem.code == "MT_STREAM_CHANGED"
