"""The owners of objects in the metastore."""

from __future__ import annotations

import re

import pytest

from tests.engine.conftest import Client, Session
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import NameList, ObjectFound, SchemaNames
from tidegate_server.core.messages.requests import (
    FindObject,
    ListNames,
    ReleaseOwners,
    SetObjectOwner,
)
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind

pytestmark = pytest.mark.spark

TABLE, VIEW, FUNCTION, SCHEMA = (
    SecuredKind.TABLE,
    SecuredKind.VIEW,
    SecuredKind.FUNCTION,
    SecuredKind.SCHEMA,
)
MADE = {
    "d": "CREATE TABLE d (x INT) USING delta COMMENT 'of d'",
    "p": "CREATE TABLE p USING parquet PARTITIONED BY (y) AS SELECT 1 AS x, 2 AS y",
    "c": "CREATE TABLE c SHALLOW CLONE d",
    "v": "CREATE VIEW v COMMENT 'of v' AS SELECT x FROM d",
}


def name(schema: str, table: str = "") -> TableName:
    return TableName(DEFAULT_CATALOG, schema, table)


def find(client: Client, kind: SecuredKind, on: TableName) -> ObjectFound:
    found = client.call(FindObject(kind=kind, name=on))
    assert isinstance(found, ObjectFound)
    return found


def listed(client: Client, schema: str) -> SchemaNames:
    answer = client.call(ListNames(with_owners=True))
    assert isinstance(answer, NameList)
    (found,) = [each for each in answer.schemas if each.schema == schema]
    return found


def definitions(session: Session) -> list[str]:
    found = [str(session.rows(f"SHOW CREATE TABLE {table}")[0][0]) for table in MADE]
    return [re.sub(r"'transient_lastDdlTime' = '\d+'", "", text) for text in found]


@pytest.fixture
def made(session: Session, schema: str) -> str:
    """A schema with tables, a view and a function."""
    for each in MADE.values():
        session.execute(each)
    session.execute("CREATE FUNCTION f() RETURNS INT RETURN 1")
    return schema


def test_what_a_name_means_is_found(client: Client, made: str) -> None:
    assert find(client, VIEW, name(made, "D")).kind is TABLE
    assert find(client, TABLE, name(made, "v")).kind is VIEW
    assert find(client, FUNCTION, name(made, "f")) == ObjectFound(kind=FUNCTION)
    assert find(client, SCHEMA, name(made.upper())).kind is SCHEMA
    for kind, on in (
        (TABLE, name(made, "f")),
        (FUNCTION, name(made, "d")),
        (FUNCTION, name(made, "count")),
        (SCHEMA, name("nowhere")),
        (TABLE, name("nowhere", "d")),
    ):
        assert find(client, kind, on) == ObjectFound()


def test_owners_are_changed_without_changing_anything_else(
    client: Client, session: Session, made: str
) -> None:
    before = definitions(session)
    for table in MADE:
        client.call(SetObjectOwner(kind=TABLE, name=name(made, table), owner=f"ROLE {table}"))
    client.call(SetObjectOwner(kind=SCHEMA, name=name(made), owner="größe o'brien"))
    for table in MADE:
        assert find(client, TABLE, name(made, table)).owner == f"ROLE {table}"
    assert find(client, SCHEMA, name(made)).owner == "größe o'brien"
    found = listed(client, made)
    assert found.owner == "größe o'brien"
    assert found.owners == {table: f"ROLE {table}" for table in MADE}
    assert definitions(session) == before
    assert session.rows("SELECT x FROM p UNION ALL SELECT x FROM v") == [(1,)]


def test_an_owner_stays_when_the_object_is_renamed_or_altered(
    client: Client, session: Session, made: str
) -> None:
    for table in ("d", "v"):
        client.call(SetObjectOwner(kind=TABLE, name=name(made, table), owner="zoe"))
    session.execute("ALTER TABLE d ADD COLUMN z INT")
    session.execute("ALTER VIEW v AS SELECT 1 AS x")
    session.execute("ALTER TABLE d RENAME TO e")
    session.execute("ALTER VIEW v RENAME TO w")
    assert find(client, TABLE, name(made, "e")).owner == "zoe"
    assert find(client, VIEW, name(made, "w")).owner == "zoe"


def test_the_owner_of_what_is_not_there_cannot_be_changed(client: Client, schema: str) -> None:
    with pytest.raises(ServerError) as caught:
        client.call(SetObjectOwner(kind=TABLE, name=name(schema, "none"), owner="zoe"))
    assert caught.value.code == "OBJECT_NOT_FOUND"


def test_owners_of_earlier_versions_are_released_once(
    client: Client, session: Session, made: str
) -> None:
    own = session.rows("SELECT current_user()")[0][0]
    client.call(SetObjectOwner(kind=TABLE, name=name(made, "d"), owner="zoe"))
    for table in ("p", "v"):
        client.call(SetObjectOwner(kind=TABLE, name=name(made, table), owner=str(own)))
    client.call(SetObjectOwner(kind=SCHEMA, name=name(made), owner=str(own)))
    client.call(ReleaseOwners())
    found = listed(client, made)
    assert (found.owner, found.owners) == (UNOWNED, {"d": "zoe", "p": UNOWNED, "v": UNOWNED})
    assert listed(client, "default").owner == UNOWNED
    client.call(SetObjectOwner(kind=TABLE, name=name(made, "p"), owner=str(own)))
    client.call(ReleaseOwners())
    assert listed(client, made).owners["p"] == own
