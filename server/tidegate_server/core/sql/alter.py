"""The grammar of ALTER MATERIALIZED TABLE: a table from words after the name to rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegate_server.core.errors import Code
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.sql import clauses, privileges
from tidegate_server.core.sql.columns import schema_changes
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.privilege_statements import (
    OnObject,
    SetOwner,
)
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterAsQuery,
    AlterCancelRefresh,
    AlterConvertToTable,
    AlterDiscardHeld,
    AlterDrop,
    AlterModify,
    AlterPublishHeld,
    AlterRefresh,
    AlterRename,
    AlterResetOptions,
    AlterResume,
    AlterRollback,
    AlterRollbackDefinition,
    AlterSetExecuteAs,
    AlterSetFreshness,
    AlterSetImmutable,
    AlterSetOptions,
    AlterSetRefreshMode,
    AlterSetRefreshTrigger,
    AlterSuspend,
    AlterSwap,
    Cascade,
    DropPart,
    Name,
    PartitionRange,
    RefreshKind,
    RolledBack,
    Statement,
)

AlterRule = Callable[[Cursor, Name], Statement]
"""Reads the rest of a statement whose name has been passed."""

_COLUMN_NAMES = "The query names the columns: ALTER MATERIALIZED TABLE name AS query."
_SET_ELSEWHERE: Mapping[str, str] = {
    "TBLPROPERTIES": "Options are set by SET ('key' = 'value').",
    "OPTIONS": "Options are set by SET ('key' = 'value').",
    "COMMENT": "Use CREATE OR ALTER MATERIALIZED TABLE with the COMMENT.",
    "TARGET_LAG": "Write SET FRESHNESS = INTERVAL '10' MINUTE.",
    "SCHEDULE": "Write SET FRESHNESS = INTERVAL '10' MINUTE.",
}


def alter(at: Cursor) -> Statement:
    """Read what follows ALTER MATERIALIZED TABLE."""
    name = clauses.table_name(at)
    word = at.accept_any(*ALTER_RULES)
    if word is None:
        raise at.unexpected_token()
    return ALTER_RULES[word](at, name)


def _suspend(at: Cursor, name: Name) -> AlterSuspend:
    return AlterSuspend(name=name, cascade=at.accept("CASCADE"))


def _resume(at: Cursor, name: Name) -> AlterResume:
    options = clauses.options(at) if at.accept("WITH") else {}
    return AlterResume(name=name, options=options, cascade=at.accept("CASCADE"))


def refresh(at: Cursor, name: Name) -> AlterRefresh:
    """Read what follows ALTER MATERIALIZED TABLE name REFRESH, which EXPLAIN takes too."""
    kind = at.accept_any("FULL", "INCREMENTAL")
    partition, between, predicate = _refresh_scope(at)
    cascade = None
    if at.accept("CASCADE"):
        cascade = Cascade(at.accept_any("UPSTREAM", "DOWNSTREAM") or "DOWNSTREAM")
    return AlterRefresh(
        name=name,
        kind=RefreshKind(kind) if kind else None,
        partition=partition,
        range=between,
        predicate=predicate,
        cascade=cascade,
        asynchronous=at.accept_any("SYNC", "ASYNC") == "ASYNC",
    )


def _refresh_scope(
    at: Cursor,
) -> tuple[dict[str, str] | None, PartitionRange | None, str | None]:
    if at.accept("PARTITION"):
        if not at.accept("FROM"):
            return clauses.partition(at), None, None
        start = clauses.partition(at)
        at.expect("TO")
        return None, PartitionRange(start=start, end=clauses.partition(at)), None
    if at.accept("WHERE"):
        predicate = at.slice_until("CASCADE", "SYNC", "ASYNC", ";")
        if not predicate:
            raise at.unexpected_token("a condition")
        return None, None, predicate
    return None, None, None


def _cancel(at: Cursor, name: Name) -> Statement:
    at.expect("REFRESH")
    return AlterCancelRefresh(name=name)


def as_query(at: Cursor, name: Name) -> AlterAsQuery:
    """Read what follows ALTER MATERIALIZED TABLE name AS."""
    return AlterAsQuery(name=name, query=clauses.query(at))


def _set(at: Cursor, name: Name) -> Statement:
    if at.accept("FRESHNESS"):
        return AlterSetFreshness(name=name, freshness=clauses.freshness(at))
    if at.accept("REFRESH_MODE"):
        return AlterSetRefreshMode(name=name, mode=clauses.refresh_mode(at))
    if at.accept("REFRESH_TRIGGER"):
        return AlterSetRefreshTrigger(name=name, on_update=clauses.refresh_trigger(at))
    if at.accept("EXECUTE"):
        return AlterSetExecuteAs(name=name, execute_as=clauses.execute_as(at))
    if at.accept("IMMUTABLE"):
        return AlterSetImmutable(name=name, predicate=clauses.immutable(at))
    if word := at.accept_any("OWNER", "AUTHORIZATION"):
        return _set_owner(at, name, may_be_bare=word == "AUTHORIZATION")
    _refuse_empty(at, "SET", "SET ('key' = 'value')")
    if not at.sees("("):
        at.accept("(")  # recorded as possible here
        raise at.unexpected_token(hint=_SET_ELSEWHERE.get(at.spelling(), ""))
    return AlterSetOptions(name=name, options=clauses.options(at))


def _set_owner(at: Cursor, name: Name, *, may_be_bare: bool = False) -> SetOwner:
    on = OnObject(kind=SecuredKind.MATERIALIZED_TABLE, name=name)
    return SetOwner(on=on, owner=privileges.owner(at, may_be_bare=may_be_bare))


def _reset(at: Cursor, name: Name) -> Statement:
    _refuse_empty(at, "RESET", "RESET ('key')")
    return AlterResetOptions(name=name, keys=clauses.option_keys(at))


def _refuse_empty(at: Cursor, what: str, example: str) -> None:
    if at.sees("(", ")"):
        raise at.failure(Code.MT_OPTIONS_EMPTY, what=what, example=example)


def _add(at: Cursor, name: Name) -> Statement:
    return AlterAdd(name=name, changes=schema_changes(at))


def _modify(at: Cursor, name: Name) -> Statement:
    return AlterModify(name=name, changes=schema_changes(at))


def _drop_part(at: Cursor, name: Name) -> Statement:
    if at.accept("PRIMARY", "KEY"):
        return AlterDrop(name=name, part=DropPart.PRIMARY_KEY)
    if at.sees("CONSTRAINT") and at.sees_name(1):
        at.advance()
        return AlterDrop(name=name, constraint=at.name())
    if word := at.accept_any("WATERMARK", "DISTRIBUTION", "IMMUTABLE"):
        return AlterDrop(name=name, part=DropPart(word))
    if at.sees("COLUMNS", "("):
        at.advance()
    if at.sees("("):
        return AlterDrop(name=name, columns=clauses.names(at))
    at.accept("COLUMN")
    return AlterDrop(name=name, columns=(at.name("a column name"),))


def _rename(at: Cursor, name: Name) -> Statement:
    if not at.accept("TO"):
        raise at.unexpected_token(hint=_COLUMN_NAMES if at.sees("COLUMN") else "")
    return AlterRename(name=name, new_name=clauses.table_name(at))


def _swap(at: Cursor, name: Name) -> AlterSwap:
    at.expect("WITH")
    return AlterSwap(name=name, other=clauses.table_name(at))


def _rollback(at: Cursor, name: Name) -> Statement:
    if not at.accept("DEFINITION"):
        at.expect("TO")
        version = _version(at)
        what = next((each for each in RolledBack if at.accept(each.value)), RolledBack.DATA)
        return AlterRollback(name=name, version=version, what=what)
    return rollback_definition(at, name)


def rollback_definition(at: Cursor, name: Name) -> AlterRollbackDefinition:
    """Read what follows ROLLBACK DEFINITION."""
    version = _version(at) if at.accept("TO") else None
    return AlterRollbackDefinition(name=name, version=version)


def _convert(at: Cursor, name: Name) -> AlterConvertToTable:
    at.expect("TO")
    at.expect("TABLE")
    return AlterConvertToTable(name=name)


def _publish(at: Cursor, name: Name) -> AlterPublishHeld:
    at.expect("HELD", "VERSION")
    return AlterPublishHeld(name=name)


def _discard(at: Cursor, name: Name) -> AlterDiscardHeld:
    at.expect("HELD", "VERSION")
    return AlterDiscardHeld(name=name)


def _version(at: Cursor) -> int:
    at.expect("VERSION")
    return at.integer("a version number")


ALTER_RULES: Mapping[str, AlterRule] = {
    "ADD": _add,
    "AS": as_query,
    "CANCEL": _cancel,
    "CONVERT": _convert,
    "DISCARD": _discard,
    "DROP": _drop_part,
    "MODIFY": _modify,
    "OWNER": _set_owner,
    "PUBLISH": _publish,
    "REFRESH": refresh,
    "RENAME": _rename,
    "RESET": _reset,
    "RESUME": _resume,
    "ROLLBACK": _rollback,
    "SET": _set,
    "SUSPEND": _suspend,
    "SWAP": _swap,
}
