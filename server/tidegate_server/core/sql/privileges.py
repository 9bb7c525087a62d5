"""GRANT, REVOKE, SHOW GRANTS, roles, and the owners of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot.tokenizer_core import Token

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.privileges import (
    PUBLIC,
    Grantee,
    GranteeKind,
    Privilege,
    SecuredKind,
    group,
    role,
    user,
)
from tidegate_server.core.sql import clauses
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.privilege_statements import (
    CreateRole,
    DropRole,
    GrantPrivileges,
    GrantRole,
    OnObject,
    OnRole,
    RevokePrivileges,
    RevokeRole,
    SetOwner,
    ShowGrants,
    ShowRoles,
)
from tidegate_server.core.sql.statements import (
    Name,
)

_PRIVILEGES = tuple(
    # CREATE EXTERNAL TABLE is not CREATE.
    sorted((p.value for p in Privilege), key=lambda text: -len(text.split()))
)
_MODIFY = "Write MODIFY, which stands for INSERT, UPDATE, DELETE, MERGE and TRUNCATE."
_OWNERSHIP = "Write ALTER ... SET OWNER TO USER name."
_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "TRUNCATE", "MERGE"), _MODIFY),
    "WRITE": "Write MODIFY, or WRITE FILES on an external location.",
    "READ": "Write SELECT, or READ FILES on an external location.",
    "USE": "Write USAGE. On a catalog, write USE CATALOG.",
    "BROWSE": "Write USAGE.",
    "READ_METADATA": "Write USAGE.",
    "OWNERSHIP": _OWNERSHIP,
    "MANAGE": f"Write ALL ... WITH GRANT OPTION, or transfer the ownership: {_OWNERSHIP}",
    "CREATE_NAMED_FUNCTION": "Write CREATE ON SCHEMA name.",
    "DROP": f"DROP needs ownership. {_OWNERSHIP}",
    "REFERENCES": "Foreign keys cannot be declared: leave REFERENCES out.",
}
"""Privileges of other systems, with the equivalents here."""
_COLUMNS = "Create a view of these columns, and grant SELECT on it."
_BULK = "Write ON SCHEMA name: the grant applies to every object in the schema."
_NOT_SECURED = frozenset({"METASTORE", "SERVER", "SHARE", "VOLUME"})
_WHO = "Write USER, ROLE or GROUP before the name, or PUBLIC."
_SCHEMAS = ("SCHEMA", "DATABASE", "NAMESPACE")
_KINDS: Mapping[str, SecuredKind] = {
    **dict.fromkeys(_SCHEMAS, SecuredKind.SCHEMA),
    "TABLE": SecuredKind.TABLE,
    "VIEW": SecuredKind.VIEW,
    "FUNCTION": SecuredKind.FUNCTION,
    "MATERIALIZED": SecuredKind.MATERIALIZED_TABLE,
}
EXTERNAL: Mapping[SecuredKind, tuple[str, ...]] = {
    SecuredKind.EXTERNAL_LOCATION: ("EXTERNAL", "LOCATION"),
    SecuredKind.CONNECTION: ("CONNECTION",),
    SecuredKind.CATALOG: ("CATALOG",),
}
"""How objects are written that are in no schema."""
_AFTER = ("TO", "FROM", "FOR", "SET", "OWNER")
"""What may follow a table of such a name."""
_ADMIN_OPTION = "Administrators grant roles: leave WITH ADMIN OPTION out."


# ---- GRANT, REVOKE ---------------------------------------------------------------------------


def grant(at: Cursor) -> GrantPrivileges | GrantRole:
    """Read the rest of a GRANT."""
    if at.accept("ROLE"):
        name, member = _granted_role(at), _member(at, "TO")
        if at.sees("WITH"):
            raise _not_supported(at, "GRANT ROLE with an option", _ADMIN_OPTION)
        return GrantRole(role=name, member=member)
    privileges, on = _privileges(at), _object(at)
    at.expect("TO")
    grantee = _grantee(at)
    at_option = at.offset
    grantable = at.accept("WITH", "GRANT", "OPTION")
    if grantable and grantee == PUBLIC:
        raise at.failure(
            Code.NOT_SUPPORTED,
            offset=at_option,
            what="A grant option of PUBLIC",
            hint="Grant it to a role or a group.",
        )
    return GrantPrivileges(privileges=privileges, on=on, grantee=grantee, grantable=grantable)


def revoke(at: Cursor) -> RevokePrivileges | RevokeRole:
    """Read the rest of a REVOKE."""
    if at.sees("ADMIN", "OPTION", "FOR"):
        raise _not_supported(at, "REVOKE ADMIN OPTION", "Roles have no such option.")
    if at.accept("ROLE"):
        return RevokeRole(role=_granted_role(at), member=_member(at, "FROM"))
    option_only = at.accept("GRANT", "OPTION", "FOR")
    privileges, on = _privileges(at), _object(at)
    at.expect("FROM")
    return RevokePrivileges(
        privileges=privileges,
        on=on,
        grantee=_grantee(at),
        option_only=option_only,
        cascade=_cascade(at),
    )


def show_grants(at: Cursor) -> ShowGrants:
    """Read the rest of a SHOW GRANTS."""
    on: OnObject | OnRole | None = None
    if at.accept("ON", "ROLE"):
        on = OnRole(role=_role(at))
    elif at.sees("ON"):
        on = _object(at)
    at.accept("ON")  # recorded as possible here
    return ShowGrants(on=on, grantee=_grantee(at) if at.accept_any("FOR", "TO") else None)


def _privileges(at: Cursor) -> tuple[Privilege, ...]:
    found = [_privilege(at)]
    while at.accept(","):
        found.append(_privilege(at))
    return tuple(dict.fromkeys(found))


def _privilege(at: Cursor) -> Privilege:
    word = at.accept_any(*_PRIVILEGES)
    if word is None:
        found = at.spelling()
        if at.sees_name() and at.spelling(1) in ("TO", "FROM", ","):
            hint = f"Write ROLE before the name of a role: ROLE {quote_identifier(at.word() or '')}"
            raise at.unexpected_token(hint=_ELSEWHERE.get(found, hint))
        raise at.unexpected_token(hint=_ELSEWHERE.get(found, ""))
    if at.sees("("):
        raise _not_supported(at, "A privilege on columns", _COLUMNS)
    privilege = Privilege(word)
    if privilege is Privilege.ALL:
        at.accept("PRIVILEGES")
    elif privilege is Privilege.CREATE and not (at.sees("ON") or at.sees(",")):
        raise at.unexpected_token(hint="CREATE covers every kind of object: write CREATE alone.")
    return privilege


def _object(at: Cursor) -> OnObject:
    at.expect("ON")
    if at.sees("ALL") or at.sees("FUTURE"):
        raise at.unexpected_token(*_KINDS, hint=_BULK)
    if at.spelling() in _NOT_SECURED and at.sees_name(1):
        raise at.unexpected_token(*_KINDS, hint="Grant the privilege on each schema.")
    return _kind_and_name(at)


def _kind_and_name(at: Cursor) -> OnObject:
    if at.accept_any(*_SCHEMAS):
        return OnObject(kind=SecuredKind.SCHEMA, name=_schema_name(at))
    for kind, words in EXTERNAL.items():
        if at.sees(*words) and at.sees_name(len(words)) and at.spelling(len(words)) not in _AFTER:
            at.accept(*words)
            return OnObject(kind=kind, name=(at.name().lower(),))
    if at.accept("MATERIALIZED"):
        at.expect("TABLE")
        return OnObject(kind=SecuredKind.MATERIALIZED_TABLE, name=clauses.table_name(at))
    word = at.accept_any("TABLE", "VIEW", "FUNCTION") or "TABLE"
    return OnObject(kind=_KINDS[word], name=clauses.table_name(at))


def _schema_name(at: Cursor) -> Name:
    first = at.name("a schema name")
    return (first, at.name("a schema name")) if at.accept(".") else (first,)


def _cascade(at: Cursor) -> bool:
    return not at.accept("RESTRICT") and at.accept("CASCADE")


# ---- grantees --------------------------------------------------------------------------------


def _grantee(at: Cursor) -> Grantee:
    if at.accept("PUBLIC"):
        return PUBLIC
    word = at.accept_any(*(kind.value for kind in GranteeKind))
    if word is None:
        raise at.unexpected_token(hint=_WHO)
    return _named(GranteeKind(word), at)


def _named(kind: GranteeKind, at: Cursor) -> Grantee:
    match kind:
        case GranteeKind.USER:
            return user(_name(at, "a user name"))
        case GranteeKind.ROLE:
            return role(_name(at, "a role name"))
        case GranteeKind.GROUP:
            return group(_name(at, "a group name"))


def _name(at: Cursor, what: str) -> str:
    name = at.string() if at.sees_string() else at.name(what)
    if not name.strip():
        raise at.failure(Code.INVALID_REQUEST, reason=f"{what} is empty")
    return name


def _role(at: Cursor) -> str:
    return _name(at, "a role name").lower()


def _granted_role(at: Cursor) -> str:
    start = at.offset
    name = _role(at)
    if name == PUBLIC.name:
        raise at.failure(
            Code.NOT_SUPPORTED,
            offset=start,
            what="Granting the role public",
            hint="Every user has it.",
        )
    return name


def _member(at: Cursor, preposition: str) -> Grantee:
    at.expect(preposition)
    start = at.offset
    member = _grantee(at)
    if member == PUBLIC:
        raise at.failure(
            Code.NOT_SUPPORTED,
            offset=start,
            what="A role of PUBLIC",
            hint="Grant the privileges of the role to PUBLIC.",
        )
    return member


# ---- roles -----------------------------------------------------------------------------------


def create_role(at: Cursor) -> CreateRole:
    """Read the rest of a CREATE ROLE."""
    if_not_exists = at.accept("IF", "NOT", "EXISTS")
    return CreateRole(role=_role(at), if_not_exists=if_not_exists)


def drop_role(at: Cursor) -> DropRole:
    """Read the rest of a DROP ROLE."""
    if_exists = at.accept("IF", "EXISTS")
    return DropRole(role=_role(at), if_exists=if_exists, cascade=_cascade(at))


def show_roles(at: Cursor) -> ShowRoles:
    """Read the rest of a SHOW ROLES."""
    return ShowRoles()


def show_current_roles(at: Cursor) -> ShowRoles:
    """Read the rest of a SHOW CURRENT ROLES."""
    return ShowRoles(current=True)


# ---- owners ----------------------------------------------------------------------------------

_OWNER_CLAUSES = (("SET", "OWNER"), ("OWNER", "TO"), ("SET", "AUTHORIZATION"))


def sets_owner(head: Sequence[Token]) -> bool:
    """Return whether an ALTER sets the owner of a schema, table, view or function.

    :param head: its first tokens, among which the clause must be.
    """
    at = Cursor("", head)
    at.advance()
    if at.accept_any(*(word for word in _KINDS if word != "MATERIALIZED")) is None:
        return False
    while at.sees_name():
        at.advance()
        if not at.accept("."):
            break
    return any(at.sees(*words) for words in _OWNER_CLAUSES)


def alter_owner(at: Cursor) -> SetOwner:
    """Read the rest of an ALTER that sets an owner."""
    return SetOwner(on=_kind_and_name(at), owner=owner_clause(at))


def owner_clause(at: Cursor) -> Grantee:
    """Read what sets the owner of the object before it."""
    if at.accept("SET", "AUTHORIZATION"):
        return owner(at, may_be_bare=True)
    if not at.accept("SET", "OWNER"):
        at.expect("OWNER")
    return owner(at)


def owner(at: Cursor, *, may_be_bare: bool = False) -> Grantee:
    """Read what follows SET OWNER, or Trino's SET AUTHORIZATION, which takes the name of a user."""
    if not may_be_bare:
        at.accept("TO")
    word = at.accept_any("USER", "ROLE")
    if word is not None:
        return _named(GranteeKind(word), at)
    if may_be_bare:
        return user(_name(at, "a user name"))
    raise at.unexpected_token(hint="Write USER or ROLE before the name.")


def _not_supported(at: Cursor, what: str, hint: str) -> ServerError:
    return at.failure(Code.NOT_SUPPORTED, what=what, hint=hint)
