"""The tables of the conformity cases, and what their queries give."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import T1, World, analysis
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Analysis
from tidegate_server.core.model.types import Column, Schema

BASE = (
    "CREATE MATERIALIZED TABLE base (CONSTRAINT ct1 PRIMARY KEY(a) NOT ENFORCED) COMMENT 'x' "
    "PARTITIONED BY (a, d) WITH ('format'='json') FRESHNESS = INTERVAL '30' SECOND "
    "REFRESH_MODE = FULL AS SELECT * FROM t1"
)
NOPK = BASE.replace("base (CONSTRAINT ct1 PRIMARY KEY(a) NOT ENFORCED)", "nopk")
WM = BASE.replace(
    "base (CONSTRAINT ct1 PRIMARY KEY(a) NOT ENFORCED)",
    "wm (CONSTRAINT ct1 PRIMARY KEY(a) NOT ENFORCED, t AS current_timestamp, "
    "WATERMARK FOR t AS t - INTERVAL '10' SECOND)",
)
META = (
    "CREATE MATERIALIZED TABLE meta (CONSTRAINT ct1 PRIMARY KEY(a) NOT ENFORCED, "
    "t AS current_timestamp, m BIGINT METADATA FROM 'file_size' VIRTUAL, m_p STRING METADATA) "
    "DISTRIBUTED BY HASH(b) INTO 7 BUCKETS PARTITIONED BY (d) "
    "REFRESH_MODE = FULL AS SELECT a, b, c, d, d AS m_p FROM t3"
)
CONT = "CREATE MATERIALIZED TABLE cont AS SELECT * FROM t1"
ALTER = "ALTER MATERIALIZED TABLE"


def column(name: str, type: str = "string", *, nullable: bool = True) -> Column:
    return Column(name=name, type=type, nullable=nullable)


def produces(world: World, query: str, *columns: Column, source: str = "t3") -> str:
    """Let the engine answer these columns for a query, and return the query."""
    world.engine.analyses[query] = analysis_of(query, *columns, source=source)
    return query


def analysis_of(query: str, *columns: Column, source: str = "t3") -> Analysis:
    expanded = query.replace(f"FROM {source}", f"FROM spark_catalog.d.{source}")
    return analysis(Schema(columns), source, expanded=expanded)


def wider_query(world: World) -> str:
    """Return a query that gives the columns of t1 and two more."""
    query = "SELECT a, b, c, d, d AS e, CAST('123' AS STRING) AS f FROM t3"
    return produces(world, query, *T1, column("e"), column("f", nullable=False))


def refusal(world: World, statement: str) -> ServerError:
    """Execute a statement that must fail, check that it changed nothing, return its error."""
    before = world.catalog.tables(), dict(world.scheduler.workflows)
    stored = dict(world.engine.storage.tables), dict(world.engine.storage.views)
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    assert (world.catalog.tables(), dict(world.scheduler.workflows)) == before
    assert (dict(world.engine.storage.tables), dict(world.engine.storage.views)) == stored
    return caught.value
