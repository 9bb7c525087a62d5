"""The stored form of grants."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from tidegate_server.core.model.privileges import (
    EXTERNAL_KINDS,
    Grant,
    Grantee,
    GranteeKind,
    GrantObject,
    NamedObject,
    Privilege,
    SchemaObject,
    SecuredKind,
    ServerObject,
    TableObject,
)

_MATERIALIZED, _SCHEMA = "TABLE", "SCHEMA"
_PLAIN_TABLE = "PLAIN TABLE"  # TABLE has always meant a materialized table here
_OF_SERVER = tuple(kind.value for kind in EXTERNAL_KINDS)
_SEPARATOR = "\x1f"  # does not occur in names


def grant_row(grant: Grant) -> dict[str, Any]:
    """Return the columns of a grant."""
    kind, key = object_key(grant.object)
    holder = grant.holder
    return {
        "grantee_kind": grant.grantee.kind.value,
        "grantee": grant.grantee.name,
        "privilege": grant.privilege.value,
        "object_kind": kind,
        "object_key": key,
        "holder_kind": "" if holder is None else holder.kind.value,
        "holder": "" if holder is None else holder.name,
        "grantable": grant.grantable,
        "granted_by": grant.granted_by,
        "granted_at": grant.granted_at,
    }


def object_key(on: GrantObject) -> tuple[str, str]:
    """Return the columns ``object_kind`` and ``object_key``."""
    match on:
        case TableObject(table_id=table_id):
            return _MATERIALIZED, table_id
        case SchemaObject(catalog=catalog, schema=schema):
            return _SCHEMA, _SEPARATOR.join((catalog, schema))
        case ServerObject(kind=kind, id=object_id):
            return kind.value, object_id
        case NamedObject(kind=kind):
            word = _PLAIN_TABLE if kind is SecuredKind.TABLE else kind.value
            return word, _SEPARATOR.join((on.catalog, on.schema, on.name, on.owner))


def _object(kind: str, key: str) -> GrantObject:
    if kind == _MATERIALIZED:
        return TableObject(table_id=key)
    if kind == _SCHEMA:
        catalog, _, schema = key.partition(_SEPARATOR)
        return SchemaObject(catalog=catalog, schema=schema)
    if kind in _OF_SERVER:
        return ServerObject(kind=SecuredKind(kind), id=key)
    catalog, schema, name, owner = key.split(_SEPARATOR)
    known = SecuredKind.TABLE if kind == _PLAIN_TABLE else SecuredKind(kind)
    return NamedObject(kind=known, catalog=catalog, schema=schema, name=name, owner=owner)


def read_grant(row: Row[Any]) -> Grant:
    """Return the grant in a row."""
    holder = (
        Grantee(kind=GranteeKind(row.holder_kind), name=row.holder) if row.holder_kind else None
    )
    return Grant(
        grantee=Grantee(kind=GranteeKind(row.grantee_kind), name=row.grantee),
        privilege=Privilege(row.privilege),
        object=_object(row.object_kind, row.object_key),
        granted_by=row.granted_by,
        granted_at=row.granted_at,
        grantable=row.grantable,
        holder=holder,
    )
