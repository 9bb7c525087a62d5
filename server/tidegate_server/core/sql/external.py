"""CREATE, ALTER, DROP, SHOW and DESCRIBE of external locations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.external_statements import (
    CreateExternalLocation,
    DescribeExternal,
    DropExternal,
    RenameExternal,
    SetExternalLocationUrl,
    ShowExternal,
)
from tidegate_server.core.sql.privilege_statements import OnObject, SetOwner
from tidegate_server.core.sql.privileges import owner_clause

WORDS: Final[Mapping[SecuredKind, tuple[str, ...]]] = {
    SecuredKind.EXTERNAL_LOCATION: ("EXTERNAL", "LOCATION"),
}
"""How each kind is written; its plural has an S."""
_CREDENTIAL = (
    "Credentials of storage are settings of the server: write them into [engine.settings], "
    "and leave WITH out."
)


def create_location(at: Cursor) -> CreateExternalLocation:
    """Read the rest of a CREATE EXTERNAL LOCATION."""
    if_not_exists = at.accept("IF", "NOT", "EXISTS")
    name = _name(at)
    at.expect("URL")
    url = at.string("a URL in quotes")
    if at.sees("WITH"):
        raise at.unexpected_token("COMMENT", hint=_CREDENTIAL)
    comment = at.string("a comment in quotes") if at.accept("COMMENT") else None
    return CreateExternalLocation(name=name, url=url, comment=comment, if_not_exists=if_not_exists)


def alter_location(at: Cursor) -> SetExternalLocationUrl | RenameExternal | SetOwner:
    """Read the rest of an ALTER EXTERNAL LOCATION."""
    name = _name(at)
    if at.accept("SET", "URL"):
        return SetExternalLocationUrl(name=name, url=at.string("a URL in quotes"))
    return _alter(SecuredKind.EXTERNAL_LOCATION, name, at)


def drop(kind: SecuredKind) -> Callable[[Cursor], DropExternal]:
    """Return the rule for the rest of a DROP."""

    def read(at: Cursor) -> DropExternal:
        if_exists = at.accept("IF", "EXISTS")
        return DropExternal(kind=kind, name=_name(at), if_exists=if_exists)

    return read


def show(kind: SecuredKind) -> Callable[[Cursor], ShowExternal]:
    """Return the rule for the rest of a SHOW."""
    return lambda at: ShowExternal(kind=kind)


def describe(at: Cursor) -> DescribeExternal | None:
    """Read what follows DESCRIBE; None if it is not about an external location."""
    for kind, words in WORDS.items():
        if at.sees(*words) and at.sees_name(len(words)):
            at.accept(*words)
            return DescribeExternal(kind=kind, name=_name(at))
    return None


def _alter(kind: SecuredKind, name: str, at: Cursor) -> RenameExternal | SetOwner:
    if at.accept("RENAME", "TO"):
        return RenameExternal(kind=kind, name=name, new_name=_name(at))
    return SetOwner(on=OnObject(kind=kind, name=(name,)), owner=owner_clause(at))


def _name(at: Cursor) -> str:
    return at.name("a name").lower()
