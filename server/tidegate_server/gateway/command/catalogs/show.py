"""SHOW, DESCRIBE and USE of catalogs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import InspectCatalog
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.external import ALIAS_TYPE, ExternalObject, secret_reference
from tidegate_server.core.model.names import DEFAULT_CATALOG, quote_identifier
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.secrets import REDACTED, is_sensitive
from tidegate_server.core.model.types import text_schema
from tidegate_server.core.sql.catalogs.statements import (
    DescribeCatalog,
    ShowCatalogs,
    ShowCreateCatalog,
    ShowCurrentCatalog,
    UseCatalog,
)
from tidegate_server.core.sql.patterns import like_pattern
from tidegate_server.gateway.authorization.catalogs import require_catalog
from tidegate_server.gateway.authorization.listings import visible_catalogs
from tidegate_server.gateway.authorization.requirements import require_on
from tidegate_server.gateway.authorization.rights import Action, secured_external
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.catalog_types.options import TYPE, is_secret
from tidegate_server.gateway.catalog_types.registry import find_type
from tidegate_server.gateway.command.external.objects import find
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.spark_session import run

_ENTRY: Final = re.compile(r"spark\.sql\.catalog\.(\w+)")
_ACCESSED: Final[Mapping[SecuredKind, ObjectKind]] = {
    SecuredKind.CATALOG: ObjectKind.CATALOG,
    SecuredKind.CONNECTION: ObjectKind.CONNECTION,
}
_WITHOUT_ENGINE: Final = "UNKNOWN"


def show(statement: ShowCatalogs, context: Context) -> Result:
    """List the catalogs and connections that the user may use."""
    names = {DEFAULT_CATALOG, *_configured(context)}
    names |= {each.name for each in visible_catalogs(context)}
    pattern = None
    if statement.pattern is not None:
        pattern = like_pattern(statement.pattern, ignore_case=statement.ignore_case)
    rows = [
        (name,)
        for name in sorted(names)
        if pattern is None or (pattern.fullmatch(name) is not None) is not statement.negated
    ]
    return RowsResult(text_schema("catalog"), rows)


def show_current(statement: ShowCurrentCatalog, context: Context) -> Result:
    """Return the current catalog of the session."""
    return RowsResult(text_schema("current catalog name"), [(context.session.catalog,)])


def describe(statement: DescribeCatalog, context: Context) -> Result:
    """Return what a catalog is; extended, also its options and its state in the engine.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND.
    """
    schema = text_schema("info name", "info value")
    configured = _configured(context).get(statement.name)
    if statement.name == DEFAULT_CATALOG or configured is not None:
        own = (("name", statement.name), ("type", configured or ALIAS_TYPE), ("comment", ""))
        return RowsResult(schema, list(own))
    found = _find_visible(statement.name, context)
    rows = [("name", found.name), ("type", found.type), ("comment", found.comment or "")]
    if statement.extended:
        rows += [(f"option:{key}", value) for key, value in sorted(_shown_options(found))]
        rows += [("owner", found.owner), ("created_at", found.created_at.isoformat())]
        rows += _state(found.name, context)
    return RowsResult(schema, rows)


def show_create(statement: ShowCreateCatalog, context: Context) -> Result:
    """Return a statement that creates an equal catalog.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND; NOT_SUPPORTED for spark_catalog.
    """
    if statement.name == DEFAULT_CATALOG:
        hint = "It is there from the start."
        raise error(Code.NOT_SUPPORTED, what=f"SHOW CREATE CATALOG {DEFAULT_CATALOG}", hint=hint)
    found = find(SecuredKind.CATALOG, statement.name, context)
    _require_visible(found, context)
    lines = [f"CREATE CATALOG {quote_identifier(found.name)}"]
    if found.comment:
        lines.append(f"COMMENT {_literal(found.comment)}")
    pairs = sorted([(TYPE, found.type), *_shown_options(found)])
    options = ",\n".join(f"  {_literal(key)} = {_literal(value)}" for key, value in pairs)
    text = "\n".join([*lines, f"WITH (\n{options}\n)"])
    return RowsResult(text_schema("result"), [(text,)])


def use(statement: UseCatalog, context: Context) -> Result:
    """Make a catalog the session's current one.

    :raises ServerError: ACCESS_DENIED, OBJECT_NOT_FOUND; CATALOG_UNAVAILABLE.
    """
    name = resolve.canonical_catalog(statement.name, context.services)
    if name != DEFAULT_CATALOG and name not in _configured(context):
        found = _find(name, context)
        if context.features is not None:
            user, services = context.session.user, context.services
            access = Access(act=Act.USE, kind=_ACCESSED[found.kind], name=name)
            require_catalog(access, user, rights_of(user, services), services)
    result: Result = run(f"SET CATALOG {quote_identifier(name)}", context)
    return result


def _configured(context: Context) -> Mapping[str, str]:
    """Return the classes of catalogs in the settings of engines, by name; for administrators."""
    if context.features is not None:
        return {}
    found = ((_ENTRY.fullmatch(key), value) for key, value in _engine_settings(context).items())
    return {
        entry[1].lower(): value
        for entry, value in found
        if entry is not None and entry[1] != DEFAULT_CATALOG
    }


def _engine_settings(context: Context) -> Mapping[str, str]:
    return context.services.config.engine.settings


def _find(name: str, context: Context) -> ExternalObject:
    for kind in (SecuredKind.CONNECTION, SecuredKind.CATALOG):
        for each in context.services.external.all(kind):
            if each.name == name:
                return each
    return find(SecuredKind.CATALOG, name, context)


def _find_visible(name: str, context: Context) -> ExternalObject:
    found = _find(name, context)
    _require_visible(found, context)
    return found


def _require_visible(found: ExternalObject, context: Context) -> None:
    user, services = context.session.user, context.services
    require_on(Action.SEE, secured_external(found), user, rights_of(user, services))


def _shown_options(found: ExternalObject) -> Iterator[tuple[str, str]]:
    """Yield the options without the values of secrets, which files of others may contain."""
    kind = find_type(found.type) if found.kind is SecuredKind.CATALOG else None
    for key, value in found.options.items():
        if key.lower() != TYPE:
            hidden = is_secret(key, kind.options) if kind is not None else is_sensitive(key)
            literal = hidden and not value.startswith("${secret:")
            yield key, REDACTED if literal else value
    for key, name in found.secrets.items():
        yield key, secret_reference(name)


def _state(name: str, context: Context) -> list[tuple[str, str]]:
    """Return whether the engine could use a catalog; never waits for an engine."""
    services = context.services
    try:
        if not context.engine.ready:
            return [("status", _WITHOUT_ENGINE)]
        services.ensure_catalogs(context.session.user)
        found = context.engine.call(InspectCatalog(name=name), wait=0)
    except ServerError as problem:
        return [("status", _WITHOUT_ENGINE), ("error", problem.message)]
    return [("status", found.state), *([("error", found.problem)] if found.problem else [])]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
