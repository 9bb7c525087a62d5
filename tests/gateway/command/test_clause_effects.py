"""Every clause of a definition has an effect or is warned of."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import get_args

import pytest

from tests.gateway.command.effects import (
    ALTER,
    DAYS,
    FULL,
    TESTS,
    create,
    order_of,
    refusal,
    warned,
)
from tests.gateway.command.fakes import World
from tests.gateway.command.tables import column, produces
from tidegate_server.core.errors import Code
from tidegate_server.core.model.clauses import StartKind
from tidegate_server.core.refresh.request import Backfill
from tidegate_server.core.sql.alter import ALTER_RULES
from tidegate_server.core.sql.statements import ColumnItem, CreateMaterializedTable, SchemaChange

Proof = Callable[[World], object]
"""Returns a true value if the clause had its effect or a warning was given."""


def warns(word: str) -> Proof:
    return lambda world: warned(world, word)


CLAUSES: dict[str, tuple[str, Proof]] = {
    "name": (create(), lambda w: w.table("m")),
    "query": (create(), lambda w: w.definition("m").original_query == "SELECT * FROM t1"),
    "or_alter": (
        create().replace("CREATE", "CREATE OR ALTER", 1),
        lambda w: (
            w.execute(create("COMMENT 'y'").replace("CREATE", "CREATE OR ALTER", 1))
            and w.definition("m").comment == "y"
        ),
    ),
    "if_not_exists": (
        create(),
        lambda w: (
            w.execute(create().replace("TABLE", "TABLE IF NOT EXISTS"))
            and any("exists already" in line for line in w.logged)
        ),
    ),
    "columns": (create(items="(d, c, b, a)"), lambda w: w.definition("m").schema.names()[0] == "d"),
    "primary_key": (
        create(items="(PRIMARY KEY (a) NOT ENFORCED)"),
        lambda w: w.definition("m").primary_key,
    ),
    "watermark": (
        create(items="(t AS current_timestamp, WATERMARK FOR t AS t)"),
        warns("the watermark for t keeps no row out"),
    ),
    "expectations": (
        create(items="(CONSTRAINT e EXPECT (a > 0))"),
        lambda w: order_of(w).expectations,
    ),
    "assertions": (
        create(items="(CONSTRAINT e ASSERT (count(*) > 0))"),
        lambda w: order_of(w).assertions,
    ),
    "comment": (create("COMMENT 'x'"), lambda w: w.definition("m").comment == "x"),
    "distribution": (
        create("DISTRIBUTED BY HASH (a) INTO 3 BUCKETS"),
        lambda w: order_of(w).distribution,
    ),
    "partition_keys": (
        create("PARTITIONED BY (d)"),
        lambda w: order_of(w).partition_keys == ("d",),
    ),
    "options": (
        create(options="'materialized-table.schedule.timezone' = 'Asia/Tokyo'", after=FULL),
        lambda w: w.workflow("m").timezone == "Asia/Tokyo",
    ),
    "start_mode": (
        create("PARTITIONED BY (d)", options=DAYS, after=f"START_MODE = FROM_NOW {FULL}"),
        warns("START_MODE = FROM_NOW changes nothing"),
    ),
    "freshness": (
        create(after="FRESHNESS = INTERVAL '2' HOUR"),
        lambda w: w.workflow("m").freshness_seconds == 7200,
    ),
    "refresh_mode": (create(after=FULL), lambda w: w.workflow("m").cron),
    "on_update": (
        create(after=f"{FULL} REFRESH_TRIGGER = ON UPDATE"),
        lambda w: w.definition("m").watched,
    ),
    "execute_as": (
        create(after="EXECUTE AS USER bob"),
        lambda w: w.definition("m").execute_as == "bob",
    ),
    "immutable": (create(after="IMMUTABLE WHERE (a < 1)"), lambda w: order_of(w).immutable),
    "backfill_from": (
        create(after="IMMUTABLE WHERE (a < 1) BACKFILL FROM t1"),
        lambda w: isinstance(w.refreshed[0].task, Backfill),
    ),
}
COLUMNS: dict[str, tuple[str, Proof]] = {
    "ColumnName": ("(d, c, b, a)", lambda w: w.definition("m").schema.names()[0] == "d"),
    "PhysicalColumn": ("(c BIGINT)", lambda w: kind_of(w, "c") == "bigint"),
    "MetadataColumn": (
        "(b STRING METADATA FROM 'file_name')",
        warns("METADATA of column b changes nothing"),
    ),
    "MetadataColumn VIRTUAL": (
        "(f STRING METADATA FROM 'file_name' VIRTUAL)",
        lambda w: w.definition("m").derived[0].metadata_key == "file_name",
    ),
    "ComputedColumn": (
        "(f AS a + 1)",
        lambda w: w.definition("m").derived[0].expression == "a + 1",
    ),
}
CHANGES: dict[str, tuple[str, Proof]] = {
    "ColumnChange": ("ADD f AS a + 1", lambda w: w.definition("m").derived),
    "PrimaryKeyClause": (
        "ADD PRIMARY KEY (a) NOT ENFORCED",
        lambda w: w.definition("m").primary_key,
    ),
    "Watermark": (
        "ADD (t AS current_timestamp, WATERMARK FOR t AS t)",
        warns("the watermark for t keeps no row out"),
    ),
    "Distribution": ("ADD DISTRIBUTION INTO 3 BUCKETS", lambda w: order_of(w).distribution),
}
ACTIONS: dict[str, str] = {
    "ADD": "gateway/command/test_clause_effects.py::test_a_change_has_an_effect_or_is_warned_of",
    "AS": "gateway/command/test_evolve.py::",
    "CANCEL": "gateway/command/test_refresh.py::",
    "CONVERT": "gateway/command/test_convert_to_table.py::",
    "DISCARD": "gateway/command/test_held.py::",
    "DROP": "gateway/command/test_schema_changes.py::",
    "MODIFY": "gateway/command/test_schema_changes.py::",
    "OWNER": "gateway/command/test_grants.py::",
    "PUBLISH": "gateway/command/test_held.py::",
    "REFRESH": "gateway/command/test_refresh.py::",
    "RENAME": "gateway/command/test_rename.py::",
    "RESET": "gateway/command/test_lifecycle.py::test_options_are_set_and_reset",
    "RESUME": "gateway/command/test_lifecycle.py::",
    "ROLLBACK": "gateway/command/test_rollback.py::",
    "SET": "gateway/command/test_lifecycle.py::test_options_are_set_and_reset",
    "SUSPEND": "gateway/command/test_lifecycle.py::",
    "SWAP": "gateway/command/test_swap.py::",
}


def kind_of(world: World, name: str) -> str:
    found = world.definition("m").schema.find(name)
    assert found is not None
    return found.type


def test_every_clause_every_column_and_every_action_has_a_row() -> None:
    assert CLAUSES.keys() == {field.name for field in dataclasses.fields(CreateMaterializedTable)}
    kinds = {kind.__name__ for kind in get_args(ColumnItem)}
    assert {name.split()[0] for name in COLUMNS} == kinds
    assert CHANGES.keys() == {kind.__name__ for kind in get_args(SchemaChange)}
    assert ACTIONS.keys() == ALTER_RULES.keys()
    for word, proof in ACTIONS.items():
        file, _, test = proof.partition("::")
        text = (TESTS / file).read_text(encoding="utf-8")
        assert f"def {test}(" in text if test else re.search(rf"\b{word}\b", text), proof


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_has_an_effect_or_is_warned_of(world: World, clause: str) -> None:
    statement, proof = CLAUSES[clause]
    world.execute(statement)
    assert proof(world)


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_has_an_effect_or_is_warned_of(world: World, kind: str) -> None:
    items, proof = COLUMNS[kind]
    world.execute(create(items=items))
    assert proof(world)


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_has_an_effect_or_is_warned_of(world: World, kind: str) -> None:
    change, proof = CHANGES[kind]
    world.execute(create())
    world.execute(f"{ALTER} {change}")
    assert proof(world)


def test_metadata_of_a_stored_column_is_warned_of_in_modify_too(world: World) -> None:
    world.execute(create())
    world.execute(f"{ALTER} MODIFY b STRING METADATA FROM 'file_name'")
    assert warned(world, "METADATA of column b changes nothing")


@pytest.mark.parametrize("kind", StartKind)
@pytest.mark.parametrize("loads", ["ON_CREATE", "ON_SCHEDULE"])
def test_a_start_mode_counts_where_create_loads(world: World, kind: StartKind, loads: str) -> None:
    argument = "(TIMESTAMP '2024-01-01 00:00:00')" if "TIMESTAMP" in kind.value else ""
    statement = create(
        "PARTITIONED BY (d)",
        options=f"{DAYS}, 'materialized-table.initialize' = '{loads}'",
        after=f"START_MODE = {kind.value}{argument} {FULL}",
    )
    world.execute(statement.replace("CREATE", "CREATE OR ALTER", 1))
    assert warned(world, f"START_MODE = {kind.value}") == (loads == "ON_SCHEDULE")


def test_a_start_mode_says_nothing_of_a_table_that_exists(world: World) -> None:
    world.execute(create(after=FULL))
    again = create(after=f"START_MODE = FROM_BEGINNING {FULL}")
    world.execute(again.replace("CREATE", "CREATE OR ALTER", 1))
    assert warned(world, "START_MODE = FROM_BEGINNING changes nothing: the table exists")


@pytest.mark.parametrize("type", ["map<string,int>", "array<map<string,int>>", "variant"])
def test_rows_are_not_distributed_by_what_cannot_be_compared(world: World, type: str) -> None:
    query = produces(world, "SELECT x FROM t3", column("x", type))
    problem = refusal(world, create("DISTRIBUTED BY (x) INTO 2 BUCKETS", query=query))
    assert problem.code == Code.MT_DISTRIBUTION_TYPE.name
