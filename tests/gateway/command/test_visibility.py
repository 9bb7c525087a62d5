"""Lists and system tables omit the tables that a user has no privilege on."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.gateway.command.guarded import DAILY, HOURLY, SYSTEM, Guarded, grant, of_system
from tidegate_server.core.messages.answers import Mention
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import NamedObject, Privilege, SecuredKind
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.statements import ListingKind
from tidegate_server.gateway.authorization.listings import narrow_listing
from tidegate_server.gateway.authorization.visibility import narrow_query
from tidegate_server.gateway.context import Context


def test_lists_leave_out_what_a_user_may_not_know_of(guarded_world: Guarded) -> None:
    guarded_world.may(Privilege.REFRESH, table="n")
    guarded_world.execute("ALTER MATERIALIZED TABLE m REFRESH")
    guarded_world.execute("ALTER MATERIALIZED TABLE n REFRESH")
    guarded_world.be("bob")
    assert guarded_world.rows("SHOW MATERIALIZED TABLES") == [("n",)]
    for text in ("SHOW REFRESH HISTORY LIMIT 1", "SHOW REFRESH HISTORY"):
        assert {row[0] for row in guarded_world.rows(text)} == {"op4"}  # that of n
    guarded_world.be("root")
    assert guarded_world.rows("SHOW MATERIALIZED TABLES") == [("m",), ("n",)]


def test_consumers_that_a_user_may_not_know_of_are_no_lineage(guarded_world: Guarded) -> None:
    guarded_world.may(Privilege.SELECT)
    guarded_world.be("bob")
    assert not [row for row in guarded_world.rows("SHOW LINEAGE m") if "spark_catalog.d.n" in row]


QUERY = "SELECT * FROM information_schema.materialized_tables -- all"
SPAN = (QUERY.index("information"), QUERY.index(" --"))


def test_information_schema_shows_the_rows_of_visible_tables() -> None:
    mention = Mention(name=SYSTEM, start=SPAN[0], end=SPAN[1], aliased=False)
    inner = "SELECT * FROM `spark_catalog`.`information_schema`.`materialized_tables` WHERE"
    assert narrow_query(QUERY, of_system(mention), (DAILY, HOURLY)) == (
        f"SELECT * FROM ({inner} table_id IN ('t-1', 't-2')) AS `materialized_tables` -- all"
    )
    aliased = replace(mention, aliased=True)
    assert narrow_query(QUERY, of_system(aliased), ()) == f"SELECT * FROM ({inner} false) -- all"
    short = replace(mention, start=0, end=len(QUERY), statement=True)
    assert narrow_query(QUERY, of_system(short), ()) == f"SELECT * FROM ({inner} false)"


def test_information_schema_behind_a_view_or_a_command_is_refused(guarded_world: Guarded) -> None:
    mention = Mention(name=SYSTEM, start=SPAN[0], end=SPAN[1], aliased=False)
    assert narrow_query(QUERY, of_system(), ()) is None
    assert narrow_query(QUERY, of_system(mention, count=2), ()) is None
    guarded_world.engine.surveys["EXPLAIN x"] = of_system()
    guarded_world.be("bob")
    assert guarded_world.outcome("EXPLAIN x") == "ACCESS_DENIED"


# ---- plain objects ---------------------------------------------------------------------------


def listed(*rows: tuple[object, ...]) -> RowsResult:
    kinds = {str: pa.string(), bool: pa.bool_()}
    columns = [Column(name=f"c{place}", type="string") for place in range(len(rows[0]))]
    return RowsResult(
        Schema(tuple(columns)), list(rows), types=tuple(kinds[type(cell)] for cell in rows[0])
    )


LISTS: dict[ListingKind, list[tuple[object, ...]]] = {
    ListingKind.SCHEMAS: [("d",), ("default",), ("information_schema",), ("other",)],
    ListingKind.TABLES: [
        ("d", "t", False),
        ("d", "v", False),
        ("d", "m", False),
        ("other", "t", False),
        ("", "mine", True),
    ],
    ListingKind.FUNCTIONS: [("abs",), ("spark_catalog.d.f",), ("d.g",), ("+",)],
}
SEEN: dict[str, dict[ListingKind, set[object]]] = {
    "bob": {
        ListingKind.SCHEMAS: {"d", "default", "information_schema"},
        ListingKind.TABLES: {("d", "v"), ("d", "m"), ("", "mine")},
        ListingKind.FUNCTIONS: {"abs", "spark_catalog.d.f", "+"},
    },
    "olga": {
        ListingKind.SCHEMAS: {"default", "information_schema", "other"},
        ListingKind.TABLES: {("other", "t"), ("", "mine")},
        ListingKind.FUNCTIONS: {"abs", "+"},
    },
    "eve": {
        ListingKind.SCHEMAS: {"default", "information_schema"},
        ListingKind.TABLES: {("", "mine")},
        ListingKind.FUNCTIONS: {"abs", "+"},
    },
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("user", SEEN)
def test_lists_of_spark_omit_what_a_user_has_no_privilege_on(
    guarded_world: Guarded, user: str, kind: ListingKind
) -> None:
    world = guarded_world
    world.engine.objects |= {
        (SecuredKind.SCHEMA, "default", ""): "unowned",
        (SecuredKind.SCHEMA, "other", ""): "unowned",
        (SecuredKind.TABLE, "d", "t"): "ann",
        (SecuredKind.VIEW, "d", "v"): "ann",
        (SecuredKind.TABLE, "other", "t"): "olga",
    }
    world.may(Privilege.SELECT)
    catalog = "spark_catalog"
    view = NamedObject(kind=SecuredKind.VIEW, catalog=catalog, schema="d", name="v", owner="ann")
    world.privileges.grant(grant("bob", Privilege.SELECT, view))
    world.privileges.set_function_owner(TableName(catalog, "d", "f"), "bob")
    world.be(user)
    rows = [row for batch in narrowed(world, kind).batches(0) for row in batch.to_pylist()]
    seen = [tuple(row.values()) for row in rows]
    assert {row[0] if len(row) == 1 else row[:2] for row in seen} == SEEN[user][kind]


def narrowed(world: Guarded, kind: ListingKind) -> Result:
    context = Context(
        services=world._services(),
        session=world.session,
        operation_id="op",
        log=world.logged.append,
        progress=lambda progress: None,
    )
    return narrow_listing(listed(*LISTS[kind]), kind, context)
