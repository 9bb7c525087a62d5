"""Definitions of materialized tables are read from the statements that the server prints."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.core.sql.generate import Generator
from tests.support.full_run import FULL
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.render import render_create
from tidegate_sqlalchemy import CreateMaterializedTable, TidegateDialect
from tidegate_sqlalchemy.ddl import literal_dialect
from tidegate_sqlalchemy.materialized import read_definition

DIALECT = TidegateDialect()
COUNT = 20_000 if FULL else 1_000

STATEMENT = """\
CREATE MATERIALIZED TABLE `spark_catalog`.`sales`.`daily` (
  `ds` STRING NOT NULL COMMENT 'it\\'s the \\\\ day',
  `place` STRUCT<x: INT, y: ARRAY<INT>>,
  `shouted` AS concat(upper(ds), ')', ','),
  PRIMARY KEY (`ds`) NOT ENFORCED,
  CONSTRAINT `c` EXPECT (ds > '2' AND ds <> ',') ON VIOLATION DROP ROW
)
COMMENT '100% (COMMENT)'
DISTRIBUTED BY HASH(`ds`) INTO 4 BUCKETS
PARTITIONED BY (`ds`, `AS`)
WITH (
  'a.b' = 'x, y',
  'c' = ''
)
START_MODE = FROM_NOW(INTERVAL '1' DAY) /* Evaluated to FROM_TIMESTAMP(…) at execution */
FRESHNESS = INTERVAL '1' HOUR
REFRESH_MODE = INCREMENTAL STRICT
REFRESH_TRIGGER = ON UPDATE AT MOST EVERY INTERVAL '5' MINUTE
EXECUTE AS USER 'o\\'neil'
IMMUTABLE WHERE (ds < '2024' AND (amount % 2) = 0)
AS SELECT ds, sum(amount) AS total -- the total
FROM `spark_catalog`.`sales`.`orders` GROUP BY ds"""


def rendered(element: CreateMaterializedTable) -> str:
    return str(element.compile(dialect=literal_dialect(DIALECT)))


def test_each_clause_becomes_an_argument() -> None:
    found = read_definition(STATEMENT, "daily", "sales")
    assert found.clauses() == {
        "schema": "sales",
        "items": [
            "`ds` STRING NOT NULL COMMENT 'it\\'s the \\\\ day'",
            "`place` STRUCT<x: INT, y: ARRAY<INT>>",
            "`shouted` AS concat(upper(ds), ')', ',')",
            "PRIMARY KEY (`ds`) NOT ENFORCED",
            "CONSTRAINT `c` EXPECT (ds > '2' AND ds <> ',') ON VIOLATION DROP ROW",
        ],
        "comment": "100% (COMMENT)",
        "distribution": "BY HASH(`ds`) INTO 4 BUCKETS",
        "partitioned_by": ["ds", "AS"],
        "options": {"a.b": "x, y", "c": ""},
        "start_mode": "FROM_NOW(INTERVAL '1' DAY)",
        "freshness": "INTERVAL '1' HOUR",
        "refresh_mode": "INCREMENTAL STRICT",
        "refresh_trigger": "ON UPDATE AT MOST EVERY INTERVAL '5' MINUTE",
        "execute_as": "o'neil",
        "immutable_where": "ds < '2024' AND (amount % 2) = 0",
    }
    assert str(found.query).startswith("SELECT ds, sum(amount) AS total -- the total\nFROM")


def test_the_arguments_render_the_same_definition() -> None:
    found = read_definition(STATEMENT, "daily", "spark_catalog.sales")
    assert parse(rendered(found)) == parse(STATEMENT)


def test_any_definition_of_the_server_survives() -> None:
    for seed in range(COUNT):
        statement = replace(
            Generator(seed).create(), name=("sales", "m"), or_alter=False, if_not_exists=False
        )
        text = render_create(statement, start_note="it's a (note")
        found = rendered(read_definition(text, "m", "sales"))
        assert parse(found) == statement, f"seed {seed}: {text!r} became {found!r}"


def test_percent_signs_are_doubled_once_for_the_driver() -> None:
    found = read_definition(STATEMENT, "daily")
    text = str(found.compile(dialect=TidegateDialect(paramstyle="pyformat")))
    assert text.replace("%%", "%") == rendered(found)


@pytest.mark.parametrize("text", ["", "SELECT 1", "CREATE TABLE t AS SELECT 1", "CREATE VIEW"])
def test_other_statements_are_refused(text: str) -> None:
    with pytest.raises(sa.exc.ArgumentError):
        read_definition(text, "m")


def test_items_exclude_other_lists() -> None:
    for other in ("columns", "primary_key"):
        with pytest.raises(sa.exc.ArgumentError):
            CreateMaterializedTable("m", "SELECT 1", items=["a INT"], **{other: ["a"]})
