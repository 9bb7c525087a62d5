"""Judges what plans access by the rights of the users they run for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.names import AUDIT_LOG, SYSTEM_SCHEMA, TableName
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.authorization.catalogs import KINDS, require_catalog
from tidegate_server.gateway.authorization.features import external_locations
from tidegate_server.gateway.authorization.objects import owner_of_function
from tidegate_server.gateway.authorization.places import require_path
from tidegate_server.gateway.authorization.requirements import (
    access_error,
    feature_error,
    require_on,
)
from tidegate_server.gateway.authorization.rights import (
    Action,
    Rights,
    secured,
    secured_schema,
    secured_table,
)
from tidegate_server.gateway.authorization.setting_checks import check_settings, check_visible
from tidegate_server.gateway.authorization.users import (
    is_administrator,
    owner_administers,
    rights_of_owner,
)
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.context import Services

_ADMINISTRATORS = "authorization.administrators and the settings beside it name who can."


def judge_accesses(
    accesses: Collection[Access],
    user: str,
    rights: Rights | None,
    services: Services,
    *,
    besides: MaterializedTable | None = None,
    definers: bool = True,
) -> None:
    """Require the rights that plans need.

    :param rights: the user's; None if authorization is disabled.
    :param besides: a table that may be read in any case.
    :param definers: whether what is read in a view or function needs privileges of its owner, and
        not of the user.
    :raises ServerError: ACCESS_DENIED.
    """
    features = services.config.authorization.allow
    found = _Materialized(accesses, services.catalog)
    owners = _owners_of_bodies(accesses, services) if definers else {}
    reaches_paths = any(access.kind is ObjectKind.PATH for access in accesses)
    locations = external_locations(services) if reaches_paths else ()
    for access in accesses:
        _require_audit_log(access, user, services)
        match access.kind:
            case ObjectKind.FEATURE if access.catalog not in features:
                # What the owner of a view uses, the user need not be allowed to use.
                if not owner_administers(owners.get(access.via, ""), services):
                    raise feature_error(access.catalog, access.schema, user)
            case ObjectKind.SETTING if access.name and access.act is Act.SET:
                check_settings({access.name: ""}, services, user)
            case ObjectKind.SETTING if access.name:
                check_visible(access.name, services, user)
        who, judged = user, rights
        if rights is not None and access.via in owners:
            who = owners[access.via]
            judged = rights_of_owner(who, services) or rights
        if access.kind is ObjectKind.PATH:
            require_path(access, who, judged, locations, features)
        if access.kind in KINDS:
            require_catalog(access, who, judged, services)
        if judged is None or access.kind in (ObjectKind.FEATURE, ObjectKind.SETTING):
            continue
        for table in found.of(access):
            if table != besides:
                require_on(_action_on_rows(access), secured_table(table), who, judged)
        if not found.is_named(access):
            _require_access(access, who, judged, services)


def _require_audit_log(access: Access, user: str, services: Services) -> None:
    """Require that whoever does anything with the audit log, even in a view, administers."""
    is_log = (access.schema, access.name) == (SYSTEM_SCHEMA, AUDIT_LOG)
    if is_log and not is_administrator(user, services):
        raise access_error(user, "administration", f"{SYSTEM_SCHEMA}.{AUDIT_LOG}", _ADMINISTRATORS)


def _owners_of_bodies(accesses: Iterable[Access], services: Services) -> Mapping[str, str]:
    """Return the owners of the views and functions that plans use, by name."""
    functions = services.privileges.function_owners()
    found = {}
    for access in accesses:
        name = TableName(access.catalog, access.schema, access.name)
        if access.kind is ObjectKind.VIEW:
            found[str(name)] = access.owner
        elif access.kind is ObjectKind.FUNCTION:
            found[str(name)] = functions.get(name, UNOWNED)
    return found


_ACTIONS: Mapping[Act, Action] = {
    Act.SELECT: Action.SELECT,
    Act.DESCRIBE: Action.SEE,
    Act.MODIFY: Action.MODIFY,
    Act.ALTER: Action.ALTER,
    Act.OWN: Action.OWN,
    Act.EXECUTE: Action.EXECUTE,
}


_SCHEMA_ACTIONS: Mapping[Act, Action] = {
    Act.SELECT: Action.SELECT,
    Act.CREATE: Action.CREATE,
    Act.USAGE: Action.USE,
    Act.ALTER: Action.ALTER,
    Act.OWN: Action.OWN,
}


_SECURED: Mapping[ObjectKind, SecuredKind] = {
    ObjectKind.TABLE: SecuredKind.TABLE,
    ObjectKind.VIEW: SecuredKind.VIEW,
    ObjectKind.FUNCTION: SecuredKind.FUNCTION,
}


def _action_on_rows(access: Access) -> Action:
    """Return what an access needs on a materialized table whose rows it reaches."""
    if access.kind is ObjectKind.PATH and access.act is not Act.READ:
        return Action.OWN
    return Action.SEE if access.act is Act.DESCRIBE else Action.SELECT


def _require_access(access: Access, user: str, rights: Rights, services: Services) -> None:
    """Require the privilege for an access to an object that is not a materialized table."""
    if access.kind is ObjectKind.SCHEMA:
        free = access.name == SYSTEM_SCHEMA and access.act is Act.USAGE
        if not free:
            schema = secured_schema(access.catalog, access.name, access.owner)
            require_on(_SCHEMA_ACTIONS[access.act], schema, user, rights)
    elif access.kind in _SECURED and access.act is not Act.CREATE:  # CREATE is one on the schema
        if access.schema == SYSTEM_SCHEMA and access.act in (Act.SELECT, Act.DESCRIBE):
            return  # its rows are narrowed to the user's tables
        name = TableName(access.catalog, access.schema, access.name)
        owner = access.owner
        if access.kind is ObjectKind.FUNCTION:
            owner = owner_of_function(name, services)
        on = secured(_SECURED[access.kind], name, owner)
        require_on(_ACTIONS[access.act], on, user, rights)


class _Materialized:
    """The materialized tables among what plans access."""

    def __init__(self, accesses: Iterable[Access], catalog: CatalogReader) -> None:
        places = [place for access in accesses for place in _places(access)]
        names = {name for name, _ in places if name is not None}
        self._tables = catalog.tables_at(names, {location for _, location in places if location})

    def of(self, access: Access) -> tuple[MaterializedTable, ...]:
        """Return those that one access reaches; a path can reach several."""
        places = _places(access)
        return tuple(t for t in self._tables if any(t.is_at(*place) for place in places))

    def is_named(self, access: Access) -> bool:
        """Return whether an access names one of them."""
        names = [name for name, _ in _places(access)]
        return any(table.is_at(name, None) for table in self._tables for name in names)


def _places(access: Access) -> tuple[tuple[TableName | None, str], ...]:
    """Return the names and locations of what may be a materialized table."""
    if access.kind is ObjectKind.PATH:
        return ((None, access.name),)
    if access.kind in (ObjectKind.TABLE, ObjectKind.VIEW):
        return ((TableName(access.catalog, access.schema, access.name), access.location),)
    if access.kind is ObjectKind.CATALOG_TABLE:
        name = TableName(access.catalog, access.schema, access.name)
        # Iceberg's metadata tables are under the name of their table, as its snapshots are.
        schema, _, table = access.schema.rpartition(".")
        return (name, ""), (TableName(access.catalog, schema, table), "")
    return ()
