"""What every store of grants keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.examples import NOON
from tests.contract.stores import open_database
from tidegate_server.core.model.privileges import Grant, Privilege, SchemaObject, TableObject
from tidegate_server.gateway.store.privileges import MemoryPrivileges, Privileges, SqlPrivileges

TABLE, SCHEMA = TableObject(table_id="t-1"), SchemaObject(catalog="c", schema="d.with.dots")
GRANT = Grant(
    user="bob", privilege=Privilege.SELECT, object=TABLE, granted_by="ann", granted_at=NOON
)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def privileges(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Privileges]:
    if request.param == "memory":
        yield MemoryPrivileges()
        return
    with open_database(request.param, tmp_path) as database:
        yield SqlPrivileges(database)


def test_a_grant_comes_back_as_it_was_made(privileges: Privileges) -> None:
    privileges.grant(GRANT)
    privileges.grant(replace(GRANT, object=SCHEMA, privilege=Privilege.ALTER))
    assert set(privileges.grants_of("bob")) == {
        GRANT,
        replace(GRANT, object=SCHEMA, privilege=Privilege.ALTER),
    }
    assert privileges.grants_of("Bob") == ()


def test_granting_twice_changes_nothing(privileges: Privileges) -> None:
    privileges.grant(GRANT)
    privileges.grant(replace(GRANT, granted_by="carl"))
    assert privileges.all() == (GRANT,)


def test_revoking_tells_whether_there_was_something(privileges: Privileges) -> None:
    privileges.grant(GRANT)
    assert not privileges.revoke("bob", Privilege.ALTER, TABLE)
    assert not privileges.revoke("carl", Privilege.SELECT, TABLE)
    assert privileges.revoke("bob", Privilege.SELECT, TABLE)
    assert privileges.all() == ()


def test_an_object_that_is_gone_takes_its_grants_along(privileges: Privileges) -> None:
    other = replace(GRANT, object=SCHEMA)
    privileges.grant(GRANT)
    privileges.grant(other)
    privileges.forget(TABLE)
    assert privileges.all() == (other,)
