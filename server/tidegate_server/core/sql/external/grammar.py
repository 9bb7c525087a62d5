"""CREATE, ALTER, DROP, SHOW and DESCRIBE of external locations and connections."""

from __future__ import annotations

from collections.abc import Callable

from tidegate_server.core.errors import Code
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.model.secrets import is_sensitive
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.external.statements import (
    CreateConnection,
    CreateExternalLocation,
    DescribeExternal,
    DropExternal,
    RenameExternal,
    SetConnectionOptions,
    SetExternalLocationUrl,
    ShowExternal,
)
from tidegate_server.core.sql.privilege_statements import OnObject, SetOwner
from tidegate_server.core.sql.privileges import EXTERNAL, owner_clause

_CREDENTIAL = (
    "Credentials of storage are settings of the server: write them into [engine.settings], "
    "and leave WITH out."
)

_SECRET = (
    "Write {key} secret('name'), and the secret into the server's configuration: "
    "[secrets] name = {{ file = '...' }}."
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


def create_connection(at: Cursor) -> CreateConnection:
    """Read the rest of a CREATE CONNECTION."""
    if_not_exists = at.accept("IF", "NOT", "EXISTS")
    name = _name(at)
    at.expect("TYPE")
    system = at.name("a type, such as POSTGRESQL").lower()
    at.expect("OPTIONS")
    options, secrets = _options(at)
    comment = at.string("a comment in quotes") if at.accept("COMMENT") else None
    return CreateConnection(
        name=name,
        type=system,
        options=options,
        secrets=secrets,
        comment=comment,
        if_not_exists=if_not_exists,
    )


def alter_connection(at: Cursor) -> SetConnectionOptions | RenameExternal | SetOwner:
    """Read the rest of an ALTER CONNECTION."""
    name = _name(at)
    if at.accept("SET", "OPTIONS") or at.accept("OPTIONS"):
        options, secrets = _options(at)
        return SetConnectionOptions(name=name, options=options, secrets=secrets)
    return _alter(SecuredKind.CONNECTION, name, at)


def _options(at: Cursor) -> tuple[dict[str, str], dict[str, str]]:
    """Read options in parentheses: those with values, and those with names of secrets."""
    options: dict[str, str] = {}
    secrets: dict[str, str] = {}
    at.expect("(")
    while True:
        start = at.offset
        key = at.string() if at.sees_string() else at.name("the name of an option")
        if key.lower() in map(str.lower, (*options, *secrets)):
            reason = f"the option {key} occurs twice"
            raise at.failure(Code.INVALID_REQUEST, offset=start, reason=reason)
        at.accept("=")
        if at.accept("SECRET", "("):
            secrets[key] = at.string("the name of a secret in quotes")
            at.expect(")")
        elif is_sensitive(key) and at.sees_string():
            raise at.failure(
                Code.NOT_SUPPORTED,
                offset=start,
                what=f"A literal value of {key}",
                hint=_SECRET.format(key=key),
            )
        else:
            options[key] = at.string("a value in quotes")
        if not at.accept(","):
            break
    at.expect(")")
    return options, secrets


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
    for kind, words in EXTERNAL.items():
        if kind is not SecuredKind.CATALOG and at.sees(*words) and at.sees_name(len(words)):
            at.accept(*words)
            return DescribeExternal(kind=kind, name=_name(at))
    return None


def _alter(kind: SecuredKind, name: str, at: Cursor) -> RenameExternal | SetOwner:
    if at.accept("RENAME", "TO"):
        return RenameExternal(kind=kind, name=name, new_name=_name(at))
    return SetOwner(on=OnObject(kind=kind, name=(name,)), owner=owner_clause(at))


def _name(at: Cursor) -> str:
    return at.name("a name").lower()
