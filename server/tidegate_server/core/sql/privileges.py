"""GRANT, REVOKE and SHOW GRANTS."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.errors import Code
from tidegate_server.core.model.privileges import Privilege
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.statements import (
    GrantPrivileges,
    Name,
    OnSchema,
    OnTable,
    RevokePrivileges,
    ShowGrants,
)

_PRIVILEGES = tuple(privilege.value for privilege in Privilege)


def is_ours(head: Sequence[Token]) -> bool:
    """Return whether a GRANT or REVOKE is about materialized tables; others are Spark's.

    :param head: its first tokens, among which its object must be for it to be ours.
    """
    at = Cursor("", head)
    while not at.ended:
        if at.accept("ON"):
            return at.sees("MATERIALIZED") or at.sees("SCHEMA")
        at.advance()
    return False


def grant(at: Cursor) -> GrantPrivileges:
    """Read the rest of a GRANT."""
    privileges, on = _privileges(at), _object(at)
    at.expect("TO")
    return GrantPrivileges(privileges=privileges, on=on, user=_user(at))


def revoke(at: Cursor) -> RevokePrivileges:
    """Read the rest of a REVOKE."""
    privileges, on = _privileges(at), _object(at)
    at.expect("FROM")
    return RevokePrivileges(privileges=privileges, on=on, user=_user(at))


def show_grants(at: Cursor) -> ShowGrants:
    """Read the rest of a SHOW GRANTS."""
    on = _object(at) if at.sees("ON") else None
    at.accept("ON")  # recorded as possible here
    return ShowGrants(on=on, user=_user(at) if at.accept("FOR") else None)


def _privileges(at: Cursor) -> tuple[Privilege, ...]:
    found = [_privilege(at)]
    while at.accept(","):
        found.append(_privilege(at))
    return tuple(dict.fromkeys(found))


def _privilege(at: Cursor) -> Privilege:
    word = at.accept_any(*_PRIVILEGES)
    if word is None:
        raise at.unexpected_token()
    return Privilege(word)


def _object(at: Cursor) -> OnTable | OnSchema:
    at.expect("ON")
    if at.accept("SCHEMA"):
        return OnSchema(name=_schema_name(at))
    at.expect("MATERIALIZED", "TABLE")
    return OnTable(name=clauses.table_name(at))


def _schema_name(at: Cursor) -> Name:
    first = at.name("a schema name")
    return (first, at.name("a schema name")) if at.accept(".") else (first,)


def _user(at: Cursor) -> str:
    if not at.accept("USER"):
        raise at.unexpected_token(hint="Only users have privileges: write USER before the name.")
    user = at.string() if at.sees_string() else at.name("a user name")
    if not user.strip():
        raise at.failure(Code.INVALID_REQUEST, reason="a user has a name")
    return user
