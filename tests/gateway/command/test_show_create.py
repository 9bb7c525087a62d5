"""What SHOW CREATE prints makes an equal table, whatever the definition has."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import Column, Schema, World, analysis
from tests.support.full_run import FULL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.table import LogicalRefreshMode, MaterializedTable
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import CreateMaterializedTable

COUNT = 5_000 if FULL else 150
QUERY = "SELECT * FROM src"
SOURCE = Schema(
    (
        Column(name="id", type="int", nullable=False),
        Column(name="price", type="decimal(10,2)"),
        Column(name="ds", type="string"),
        Column(name="hh", type="varchar(2)", comment="hour"),
        Column(name="odd `name`", type="struct<a:int,b:string>"),
        Column(name="ts", type="timestamp"),
    )
)
_WIDER = {"int": "BIGINT", "decimal(10,2)": "DECIMAL(12,2)", "varchar(2)": "STRING"}


class Definitions:
    """Draws CREATE statements that the world accepts; equal seeds draw equal ones."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def statement(self) -> str:
        full = self._maybe("REFRESH_MODE = FULL")
        parts = [
            f"CREATE MATERIALIZED TABLE m {self._column_list()}",
            self._maybe(f"COMMENT {self._text()}"),
            self._maybe(self._one("DISTRIBUTED BY HASH(id) INTO 4 BUCKETS", "DISTRIBUTED BY (ds)")),
            self._one("", "PARTITIONED BY (ds)", "PARTITIONED BY (ds, hh)"),
            self._maybe(f"WITH ('k' = {self._text()}, 'it''s' = '1')"),
            self._maybe("START_MODE = FROM_BEGINNING"),
            self._freshness(),
            full or self._one("", "REFRESH_MODE = CONTINUOUS", "REFRESH_MODE = INCREMENTAL STRICT"),
            f"AS {QUERY}",
        ]
        return "\n".join(part for part in parts if part)

    def _column_list(self) -> str:
        if self._random.random() < 0.2:
            names = [quote_identifier(column.name) for column in SOURCE]
            self._random.shuffle(names)
            return self._one("", f"({', '.join(names)})")
        items = [self._column(column) for column in SOURCE if self._chance()]
        items += [self._maybe(item) for item in self._others()]
        self._random.shuffle(items)
        listed = [item for item in items if item]
        return f"({', '.join(listed)})" if listed else ""

    def _column(self, column: Column) -> str:
        data_type = _WIDER.get(column.type, column.type) if self._chance() else column.type
        null = "" if column.nullable else " NOT NULL"
        kept = self._maybe(" METADATA FROM 'the key'") or self._maybe(" METADATA")
        comment = self._maybe(f" COMMENT {self._text()}")
        return f"{quote_identifier(column.name)} {data_type}{null}{kept}{comment}"

    def _others(self) -> list[str]:
        return [
            f"upper_ds AS upper(ds) COMMENT {self._text()}",
            "`late` AS ts > now() - INTERVAL '1' DAY -- not yet\n",
            "file_name STRING METADATA VIRTUAL",
            "where_it_is STRING METADATA FROM 'file_path' VIRTUAL COMMENT 'x'",
            self._one("CONSTRAINT `my key` PRIMARY KEY (id)", "PRIMARY KEY (id)") + " NOT ENFORCED",
            "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
            "CONSTRAINT positive EXPECT (price > 0)",
            f"CONSTRAINT `a b` EXPECT (ds <> ')') ON VIOLATION {self._one('FAIL', 'DROP ROW')}",
        ]

    def _freshness(self) -> str:
        units = ("'30' SECOND", "'3' MINUTE", "'1' HOUR", "'1' DAY")
        return self._maybe(f"FRESHNESS = INTERVAL {self._one(*units)}")

    def _text(self) -> str:
        return quote_literal(self._one("", "it's", "back\\slash", "größe\n;", "-- x", "*/"))

    def _chance(self) -> bool:
        return self._random.random() < 0.5

    def _maybe(self, text: str) -> str:
        return text if self._chance() else ""

    def _one(self, *of: str) -> str:
        return self._random.choice(of)


def create_table(world: World, text: str) -> MaterializedTable:
    world.engine.analyses[QUERY] = analysis(
        SOURCE, "src", expanded="SELECT * FROM `spark_catalog`.`d`.`src`"
    )
    world.execute(text)
    return world.table("m")


@pytest.mark.slow
@pytest.mark.parametrize("words", ["", "OR ALTER "])
def test_generated_definitions_come_back_equal(words: str) -> None:
    refused = 0
    for seed in range(COUNT):
        world = World()
        text = Definitions(seed).statement()
        try:
            first = create_table(world, text)
        except ServerError:
            refused += 1
            continue
        [(printed,)] = world.rows(f"SHOW CREATE {words}MATERIALIZED TABLE m")
        expanded = analysis(
            first.definition.schema, "src", expanded=first.definition.expanded_query
        )
        world.engine.analyses[first.definition.expanded_query] = expanded
        world.execute("DROP MATERIALIZED TABLE m")
        world.execute(str(printed))
        assert world.table("m") == as_recreated(first, world.table("m")), f"seed {seed}: {printed}"
    assert refused < COUNT / 4


def as_recreated(first: MaterializedTable, second: MaterializedTable) -> MaterializedTable:
    """Return the first table with what cannot survive: see docs/statements/show.md."""
    strict = first.definition.logical_refresh_mode is LogicalRefreshMode.INCREMENTAL_STRICT
    mode = LogicalRefreshMode[first.definition.refresh_mode.value]
    return vary(
        first,
        id=second.id,
        location=second.location,
        logical_refresh_mode=LogicalRefreshMode.INCREMENTAL_STRICT if strict else mode,
        original_query=first.definition.expanded_query,
    )


def show_create(world: World, words: str = "") -> str:
    [(text,)] = world.rows(f"SHOW CREATE {words}MATERIALIZED TABLE m")
    return str(text)


def test_all_clauses_stand_in_their_order(world: World) -> None:
    create_table(
        world,
        "CREATE MATERIALIZED TABLE m (u AS upper(ds), id BIGINT NOT NULL METADATA FROM 'k', "
        "WATERMARK FOR ts AS ts, f STRING METADATA FROM 'file_path' VIRTUAL, "
        "CONSTRAINT c EXPECT (id > 0) ON VIOLATION DROP ROW, PRIMARY KEY (id) NOT ENFORCED) "
        "COMMENT 'x' DISTRIBUTED INTO 4 BUCKETS PARTITIONED BY (ds) WITH ('b'='2', 'a'='1') "
        f"START_MODE = FROM_BEGINNING AS {QUERY}",
    )
    assert show_create(world) == (
        "CREATE MATERIALIZED TABLE `spark_catalog`.`d`.`m` (\n"
        "  `u` AS upper(ds),\n"
        "  `id` bigint NOT NULL METADATA FROM 'k',\n"
        "  `f` STRING METADATA FROM 'file_path' VIRTUAL,\n"
        "  `price` decimal(10,2),\n"
        "  `ds` string,\n"
        "  `hh` varchar(2) COMMENT 'hour',\n"
        "  `odd ``name``` struct<a:int,b:string>,\n"
        "  `ts` timestamp,\n"
        "  WATERMARK FOR `ts` AS ts,\n"
        "  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED,\n"
        "  CONSTRAINT `c` EXPECT (id > 0) ON VIOLATION DROP ROW\n"
        ")\n"
        "COMMENT 'x'\n"
        "DISTRIBUTED INTO 4 BUCKETS\n"
        "PARTITIONED BY (`ds`)\n"
        "WITH (\n  'a' = '1',\n  'b' = '2'\n)\n"
        "START_MODE = FROM_BEGINNING\n"
        "FRESHNESS = INTERVAL '3' MINUTE\n"
        "REFRESH_MODE = CONTINUOUS\n"
        f"AS {world.definition('m').expanded_query}"
    ).replace("`f` STRING", "`f` string")


PARTITIONED = (
    "CREATE OR ALTER MATERIALIZED TABLE m PARTITIONED BY (ds) "
    "WITH ('partition.fields.ds.date-formatter'='yyyy-MM-dd') START_MODE = {mode} "
    "FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM src"
)


def test_a_relative_start_says_what_it_came_to(world: World) -> None:
    create_table(world, PARTITIONED.format(mode="FROM_NOW(INTERVAL '3' MINUTE)"))
    [line] = [part for part in show_create(world).splitlines() if part.startswith("START_MODE")]
    assert line == (
        "START_MODE = FROM_NOW(INTERVAL '3' MINUTE) "
        "/* Evaluated to FROM_TIMESTAMP(TIMESTAMP '2024-01-02 11:57:00') at execution */"
    )
    assert isinstance(parse(show_create(world)), CreateMaterializedTable)


def test_what_resumes_begins_in_a_plain_create(world: World) -> None:
    create_table(world, PARTITIONED.format(mode="RESUME_OR_FROM_NOW(INTERVAL '1' DAY)"))
    assert "START_MODE = FROM_NOW(INTERVAL '1' DAY)" in show_create(world)
    assert "START_MODE = RESUME_OR_FROM_NOW(INTERVAL '1' DAY)" in show_create(world, "OR ALTER ")


def test_columns_that_an_alter_added_come_back_as_they_are(world: World) -> None:
    first = create_table(world, f"CREATE MATERIALIZED TABLE m AS {QUERY}")
    added = Column(name="again", type="int", nullable=False)
    query = "SELECT *, id AS again FROM src"
    wider = Schema((*SOURCE.columns, added))
    world.engine.analyses[query] = analysis(wider, "src", expanded=f"{query} -- qualified")
    world.execute(f"ALTER MATERIALIZED TABLE m AS {query}")
    altered = world.table("m")
    assert altered.definition.schema.columns == (
        *first.definition.schema.columns,
        replace(added, nullable=True),
    )
    world.engine.analyses[altered.definition.expanded_query] = analysis(wider, "src")
    text = show_create(world)
    world.execute("DROP MATERIALIZED TABLE m")
    world.execute(text)
    assert world.definition("m").schema == altered.definition.schema


def test_a_freshness_of_the_consumers_is_printed_as_such(world: World) -> None:
    create_table(world, f"CREATE MATERIALIZED TABLE m FRESHNESS = DOWNSTREAM AS {QUERY}")
    assert "FRESHNESS = DOWNSTREAM\nREFRESH_MODE = FULL" in show_create(world)
