"""The rights of every user to every action on every object, by a table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, product

import pytest

from tests.gateway.command.guarded import DAILY, GIVEN, HOURLY, OTHER, grant
from tidegate_server.core.model.privileges import (
    GrantObject,
    Privilege,
    SchemaObject,
    TableObject,
)
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
)

TABLES = (DAILY, HOURLY, OTHER)
OBJECTS: tuple[GrantObject, ...] = (
    TableObject(table_id="t-1"),
    TableObject(table_id="t-3"),
    SchemaObject(catalog="c", schema="d"),
    SchemaObject(catalog="c", schema="elsewhere"),
)
COVERED = {
    OBJECTS[0]: {"t-1"},
    OBJECTS[1]: {"t-3"},
    OBJECTS[2]: {"t-1", "t-2"},
    OBJECTS[3]: {"t-3"},
}


def grant_sets() -> Iterator[tuple[tuple[Privilege, GrantObject], ...]]:
    """Yield every choice of up to two grants."""
    single = tuple(product(GIVEN, OBJECTS))
    yield from chain.from_iterable(combinations(single, size) for size in range(3))


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.id)
def test_grants_allow_what_they_name_on_what_they_cover(
    table: MaterializedTable, action: Action
) -> None:
    for chosen in grant_sets():
        rights = Rights(user="bob", grants=tuple(grant("bob", *one) for one in chosen))
        expected = any(action in GIVEN[p] and table.id in COVERED[on] for p, on in chosen)
        assert rights.may(action, table) is expected, chosen


@pytest.mark.parametrize("action", Action)
def test_owners_and_administrators_may_do_everything(action: Action) -> None:
    assert [Rights(user="ann").may(action, table) for table in TABLES] == [True, True, False]
    assert all(Rights(user="root", administrator=True).may(action, table) for table in TABLES)


@pytest.mark.parametrize("action", Action)
def test_grants_of_others_and_names_spelled_otherwise_give_nothing(action: Action) -> None:
    everything = tuple(grant("bob", p, on) for p, on in product(GIVEN, OBJECTS))
    for user in ("eve", "Bob", "bob ", ""):
        assert not any(Rights(user=user, grants=everything).may(action, t) for t in TABLES)


def test_all_stands_for_the_three_privileges() -> None:
    assert set(Privilege.ALL.parts()) == set(GIVEN)
