"""CREATE, ALTER, DROP, SHOW, DESCRIBE and USE of catalogs, as in Flink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate_server.core.errors import Code
from tidegate_server.core.model.external import secret_name
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.secrets import is_sensitive
from tidegate_server.core.sql.catalogs.statements import (
    CreateCatalog,
    DescribeCatalog,
    DropCatalog,
    Places,
    ResetCatalogOptions,
    SetCatalogComment,
    SetCatalogOptions,
    ShowCatalogs,
    ShowCreateCatalog,
    ShowCurrentCatalog,
    UseCatalog,
)
from tidegate_server.core.sql.cursor import Cursor, position
from tidegate_server.core.sql.privilege_statements import OnObject, SetOwner
from tidegate_server.core.sql.privileges import owner_clause

_SECRET: Final = (
    "Write '{key}' = '${{secret:name}}', and the secret into the server's configuration: "
    "[secrets] name = {{ file = '...' }}."
)
_TYPE: Final = "Write CREATE CATALOG name WITH ('type' = '...', 'key' = 'value', ...)."
_NO_RENAME: Final = "Create a catalog of the new name with the options of SHOW CREATE CATALOG."


def create(at: Cursor) -> CreateCatalog:
    """Read the rest of a CREATE CATALOG."""
    if_not_exists = at.accept("IF", "NOT", "EXISTS")
    name = _name(at)
    comment = at.string("a comment in quotes") if at.accept("COMMENT") else None
    if not at.accept("WITH"):
        raise at.unexpected_token(hint=_TYPE)
    options, places = _options(at)
    return CreateCatalog(
        name=name, options=options, comment=comment, if_not_exists=if_not_exists, places=places
    )


def alter(
    at: Cursor,
) -> SetCatalogOptions | ResetCatalogOptions | SetCatalogComment | SetOwner:
    """Read the rest of an ALTER CATALOG."""
    name = _name(at)
    if at.sees("SET", "("):
        at.accept("SET")
        options, places = _options(at)
        return SetCatalogOptions(name=name, options=options, places=places)
    if at.accept("RESET"):
        keys, places = _keys(at)
        return ResetCatalogOptions(name=name, keys=keys, places=places)
    if at.accept("COMMENT"):
        return SetCatalogComment(name=name, comment=at.string("a comment in quotes"))
    if at.sees("RENAME"):
        raise at.unexpected_token("SET", hint=_NO_RENAME)
    return SetOwner(on=OnObject(kind=SecuredKind.CATALOG, name=(name,)), owner=owner_clause(at))


def drop(at: Cursor) -> DropCatalog:
    """Read the rest of a DROP CATALOG."""
    if_exists = at.accept("IF", "EXISTS")
    return DropCatalog(name=_name(at), if_exists=if_exists)


def show(at: Cursor) -> ShowCatalogs:
    """Read the rest of a SHOW CATALOGS."""
    if at.sees_string():
        return ShowCatalogs(pattern=at.string())
    negated = at.accept("NOT")
    like = at.accept_any("LIKE", "ILIKE")
    if negated and like is None:
        raise at.unexpected_token()
    return ShowCatalogs(
        pattern=at.string("a pattern in quotes") if like else None,
        negated=negated,
        ignore_case=like == "ILIKE",
    )


def show_current(at: Cursor) -> ShowCurrentCatalog:
    """Read the rest of a SHOW CURRENT CATALOG."""
    return ShowCurrentCatalog()


def show_create(at: Cursor) -> ShowCreateCatalog:
    """Read the rest of a SHOW CREATE CATALOG."""
    return ShowCreateCatalog(name=_name(at))


def describe(at: Cursor) -> DescribeCatalog:
    """Read the rest of a DESCRIBE CATALOG."""
    extended = at.sees("EXTENDED") and at.sees_name(1) and at.accept("EXTENDED")
    return DescribeCatalog(name=_name(at), extended=extended)


def use(at: Cursor) -> UseCatalog:
    """Read the rest of a USE CATALOG or SET CATALOG."""
    return UseCatalog(name=at.string().lower() if at.sees_string() else _name(at))


def _options(at: Cursor) -> tuple[Mapping[str, str], Places]:
    """Read ``('k' = 'v', ...)``; each key once, and no literal secret."""
    options: dict[str, str] = {}
    places: dict[str, tuple[int, int]] = {}
    at.expect("(")
    while True:
        start = at.offset
        key = at.string("an option key in quotes")
        if key.lower() in map(str.lower, options):
            reason = f"the option {key} occurs twice"
            raise at.failure(Code.INVALID_REQUEST, offset=start, reason=reason)
        at.expect("=")
        value = at.string("an option value in quotes")
        if is_sensitive(key) and secret_name(value) is None:
            raise at.failure(
                Code.NOT_SUPPORTED,
                offset=start,
                what=f"A literal value of {key}",
                hint=_SECRET.format(key=key),
            )
        options[key], places[key] = value, position(at.text, start)
        if not at.accept(","):
            break
    at.expect(")")
    return options, places


def _keys(at: Cursor) -> tuple[tuple[str, ...], Places]:
    places: dict[str, tuple[int, int]] = {}
    at.expect("(")
    while True:
        start = at.offset
        places.setdefault(at.string("an option key in quotes"), position(at.text, start))
        if not at.accept(","):
            break
    at.expect(")")
    return tuple(places), places


def _name(at: Cursor) -> str:
    return at.name("the name of a catalog").lower()
