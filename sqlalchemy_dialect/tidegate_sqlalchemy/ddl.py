"""Materialized table statements as DDL elements."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import exc
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import ClauseElement

from tidegate_sqlalchemy.compat import ExecutableDDLElement

Freshness = datetime.timedelta | str
"""A whole number of seconds, or an interval literal such as ``INTERVAL '3' MINUTE``."""

Query = ClauseElement | str
"""A select() construct, or the text of a query."""

_UNITS = ((86400, "DAY"), (3600, "HOUR"), (60, "MINUTE"), (1, "SECOND"))


class _MaterializedTableElement(ExecutableDDLElement):
    """A statement about one materialized table."""

    def __init__(self, name: str, *, schema: str | None = None) -> None:
        self.name = name
        self.schema = schema


class CreateMaterializedTable(_MaterializedTableElement):
    """``CREATE [OR ALTER] MATERIALIZED TABLE … AS query``.

    ``columns`` reorders the query's columns by name; ``primary_key`` is declared NOT ENFORCED;
    ``items`` are texts such as ``id BIGINT COMMENT 'key'`` or ``CONSTRAINT c EXPECT (id > 0)``. The
    three exclude each other. ``distribution`` follows DISTRIBUTED. ``options`` go into WITH.
    Without ``freshness`` and ``refresh_mode`` the server chooses. ``immutable_where`` is the
    condition of rows that refreshes leave as they are, ``backfill_from`` the table from which they
    are copied, its name as written in SQL.
    """

    def __init__(
        self,
        name: str,
        query: Query,
        *,
        schema: str | None = None,
        or_alter: bool = False,
        if_not_exists: bool = False,
        columns: Sequence[str] = (),
        primary_key: Sequence[str] = (),
        items: Sequence[str] = (),
        comment: str | None = None,
        distribution: str | None = None,
        partitioned_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        start_mode: str | None = None,
        freshness: Freshness | None = None,
        refresh_mode: str | None = None,
        refresh_trigger: str | None = None,
        execute_as: str | None = None,
        immutable_where: str | None = None,
        backfill_from: str | None = None,
    ) -> None:
        super().__init__(name, schema=schema)
        if columns and primary_key:
            raise exc.ArgumentError("a list of column names cannot hold a primary key")
        if items and (columns or primary_key):
            raise exc.ArgumentError("items list all columns and constraints")
        if backfill_from is not None and immutable_where is None:
            raise exc.ArgumentError("backfill_from copies the rows of immutable_where")
        self.query = query
        self.or_alter = or_alter
        self.if_not_exists = if_not_exists
        self.columns = tuple(columns)
        self.primary_key = tuple(primary_key)
        self.items = tuple(items)
        self.comment = comment
        self.distribution = distribution
        self.partitioned_by = tuple(partitioned_by)
        self.with_options = dict(options or {})
        self.start_mode = start_mode
        self.freshness = freshness
        self.refresh_mode = refresh_mode
        self.refresh_trigger = refresh_trigger
        self.execute_as = execute_as
        self.immutable_where = immutable_where
        self.backfill_from = backfill_from

    def clauses(self) -> dict[str, Any]:
        """Return the arguments besides name and query that are set, as plain values."""
        freshness = self.freshness
        given = {
            "schema": self.schema,
            "or_alter": self.or_alter,
            "if_not_exists": self.if_not_exists,
            "columns": list(self.columns),
            "primary_key": list(self.primary_key),
            "items": list(self.items),
            "comment": self.comment,
            "distribution": self.distribution,
            "partitioned_by": list(self.partitioned_by),
            "options": self.with_options,
            "start_mode": self.start_mode,
            "freshness": None if freshness is None else interval_literal(freshness),
            "refresh_mode": self.refresh_mode,
            "refresh_trigger": self.refresh_trigger,
            "execute_as": self.execute_as,
            "immutable_where": self.immutable_where,
            "backfill_from": self.backfill_from,
        }
        return {name: value for name, value in given.items() if value not in (None, False, [], {})}

    def altering(self) -> CreateMaterializedTable:
        """Return the same as CREATE OR ALTER."""
        given = {**self.clauses(), "or_alter": True, "if_not_exists": False}
        return CreateMaterializedTable(self.name, self.query, **given)


class DefineMaterializedTable(ExecutableDDLElement):
    """A CREATE [OR ALTER] MATERIALIZED TABLE in full, as SHOW CREATE prints it."""

    def __init__(self, statement: str) -> None:
        self.statement = statement


class DropMaterializedTable(_MaterializedTableElement):
    """``DROP MATERIALIZED TABLE [IF EXISTS] t``."""

    def __init__(self, name: str, *, schema: str | None = None, if_exists: bool = False) -> None:
        super().__init__(name, schema=schema)
        self.if_exists = if_exists


class SuspendMaterializedTable(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t SUSPEND [CASCADE]``."""

    def __init__(self, name: str, *, schema: str | None = None, cascade: bool = False) -> None:
        super().__init__(name, schema=schema)
        self.cascade = cascade


class ResumeMaterializedTable(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t RESUME [WITH (…)] [CASCADE]``.

    The options hold until the next resume.
    """

    def __init__(
        self,
        name: str,
        *,
        schema: str | None = None,
        options: Mapping[str, str] | None = None,
        cascade: bool = False,
    ) -> None:
        super().__init__(name, schema=schema)
        self.with_options = dict(options or {})
        self.cascade = cascade


class RefreshMaterializedTable(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t REFRESH [PARTITION (…)] [CASCADE]``.

    ``partition`` names the values of one partition. ``partition_from`` and ``partition_to`` name
    the ends of a range. ``cascade`` is True, ``UPSTREAM`` or ``DOWNSTREAM``.
    """

    def __init__(
        self,
        name: str,
        *,
        schema: str | None = None,
        partition: Mapping[str, object] | None = None,
        partition_from: Mapping[str, object] | None = None,
        partition_to: Mapping[str, object] | None = None,
        cascade: bool | str = False,
    ) -> None:
        super().__init__(name, schema=schema)
        if (partition_from is None) != (partition_to is None):
            raise exc.ArgumentError("a partition range needs partition_from and partition_to")
        if partition is not None and partition_from is not None:
            raise exc.ArgumentError("give one partition or a range, not both")
        self.partition = partition
        self.partition_from = partition_from
        self.partition_to = partition_to
        self.cascade = cascade


class SetMaterializedTableFreshness(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t SET FRESHNESS = …``."""

    def __init__(self, name: str, freshness: Freshness, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.freshness = freshness


class SetMaterializedTableRefreshMode(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t SET REFRESH_MODE = …``."""

    def __init__(self, name: str, refresh_mode: str, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.refresh_mode = refresh_mode


class SetMaterializedTableRefreshTrigger(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t SET REFRESH_TRIGGER = …``, such as ``ON UPDATE``."""

    def __init__(self, name: str, refresh_trigger: str, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.refresh_trigger = refresh_trigger


class SetMaterializedTableExecuteAs(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t SET EXECUTE AS USER 'user'``, or OWNER with None."""

    def __init__(self, name: str, user: str | None, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.user = user


class SetMaterializedTableImmutable(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t SET IMMUTABLE WHERE (…)``, or DROP IMMUTABLE with None."""

    def __init__(self, name: str, where: str | None, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.where = where


class AlterMaterializedTableQuery(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t AS query``: new columns may only be appended."""

    def __init__(self, name: str, query: Query, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.query = query


class RenameMaterializedTable(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t RENAME TO n``."""

    def __init__(self, name: str, new_name: str, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.new_name = new_name


class SwapMaterializedTables(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE a SWAP WITH b``, both in one schema."""

    def __init__(self, name: str, other: str, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.other = other


class RollbackMaterializedTable(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t ROLLBACK TO VERSION n [DATA | DEFINITION | BOTH]``."""

    def __init__(
        self,
        name: str,
        version: int,
        what: Literal["DATA", "DEFINITION", "BOTH"] = "DATA",
        *,
        schema: str | None = None,
    ) -> None:
        super().__init__(name, schema=schema)
        self.version = version
        self.what = what


class RollbackMaterializedTableDefinition(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t ROLLBACK DEFINITION [TO VERSION n]``."""

    def __init__(self, name: str, version: int | None = None, *, schema: str | None = None) -> None:
        super().__init__(name, schema=schema)
        self.version = version


class PublishHeldVersion(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t PUBLISH HELD VERSION``."""


class DiscardHeldVersion(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t DISCARD HELD VERSION``."""


class ConvertMaterializedTable(_MaterializedTableElement):
    """``ALTER MATERIALIZED TABLE t CONVERT TO TABLE``."""


def interval_literal(freshness: Freshness) -> str:
    """Return freshness as an interval literal in the largest unit that divides it.

    :raises ArgumentError: when it is not a positive whole number of seconds.
    """
    if isinstance(freshness, str):
        return freshness
    seconds = freshness.total_seconds()
    if seconds <= 0 or seconds != int(seconds):
        raise exc.ArgumentError(f"freshness must be whole, positive seconds, not {freshness}")
    size, unit = next(entry for entry in _UNITS if int(seconds) % entry[0] == 0)
    return f"INTERVAL '{int(seconds) // size}' {unit}"


def literal_dialect(dialect: Dialect) -> Dialect:
    """Return a copy of the dialect that does not double percent signs."""
    made: Callable[..., Dialect] = type(dialect)
    return made(paramstyle="named")


def query_text(query: Query, dialect: Dialect) -> str:
    """Return a query as text, its parameters written out."""
    if isinstance(query, str):
        return query
    return str(
        query.compile(dialect=literal_dialect(dialect), compile_kwargs={"literal_binds": True})
    )


@compiles(CreateMaterializedTable, "tidegate")
def _create(element: CreateMaterializedTable, compiler: Any, **kw: Any) -> str:
    words = "CREATE OR ALTER" if element.or_alter else "CREATE"
    exists = "IF NOT EXISTS " if element.if_not_exists else ""
    lines = [f"{words} MATERIALIZED TABLE {exists}{_name(element, compiler)}"]
    if element.columns:
        lines[0] += f" ({_names(element.columns, compiler)})"
    if element.primary_key:
        lines[0] += f" (PRIMARY KEY ({_names(element.primary_key, compiler)}) NOT ENFORCED)"
    if element.items:
        items = ",\n".join(f"  {_query(item, compiler)}" for item in element.items)
        lines[0] += f" (\n{items}\n)"
    if element.comment is not None:
        lines.append(f"COMMENT {_literal(element.comment, compiler)}")
    if element.distribution is not None:
        lines.append(f"DISTRIBUTED {_query(element.distribution, compiler)}")
    if element.partitioned_by:
        lines.append(f"PARTITIONED BY ({_names(element.partitioned_by, compiler)})")
    if element.with_options:
        lines.append(f"WITH ({_pairs(element.with_options, compiler)})")
    if element.start_mode is not None:
        lines.append(f"START_MODE = {_query(element.start_mode, compiler)}")
    if element.freshness is not None:
        lines.append(f"FRESHNESS = {interval_literal(element.freshness)}")
    if element.refresh_mode is not None:
        lines.append(f"REFRESH_MODE = {element.refresh_mode}")
    if element.refresh_trigger is not None:
        lines.append(f"REFRESH_TRIGGER = {element.refresh_trigger}")
    if element.execute_as is not None:
        lines.append(f"EXECUTE AS USER {_literal(element.execute_as, compiler)}")
    if element.immutable_where is not None:
        lines.append(f"IMMUTABLE WHERE ({_query(element.immutable_where, compiler)})")
    if element.backfill_from is not None:
        lines.append(f"BACKFILL FROM {_query(element.backfill_from, compiler)}")
    lines.append(f"AS {_query(element.query, compiler)}")
    return "\n".join(lines)


@compiles(DefineMaterializedTable, "tidegate")
def _define(element: DefineMaterializedTable, compiler: Any, **kw: Any) -> str:
    return _query(element.statement, compiler)


@compiles(DropMaterializedTable, "tidegate")
def _drop(element: DropMaterializedTable, compiler: Any, **kw: Any) -> str:
    exists = "IF EXISTS " if element.if_exists else ""
    return f"DROP MATERIALIZED TABLE {exists}{_name(element, compiler)}"


@compiles(SuspendMaterializedTable, "tidegate")
def _suspend(element: SuspendMaterializedTable, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, f"SUSPEND{_cascade(element.cascade)}")


@compiles(ResumeMaterializedTable, "tidegate")
def _resume(element: ResumeMaterializedTable, compiler: Any, **kw: Any) -> str:
    options = f" WITH ({_pairs(element.with_options, compiler)})" if element.with_options else ""
    return _alter(element, compiler, f"RESUME{options}{_cascade(element.cascade)}")


@compiles(RefreshMaterializedTable, "tidegate")
def _refresh(element: RefreshMaterializedTable, compiler: Any, **kw: Any) -> str:
    action = "REFRESH"
    if element.partition is not None:
        action += f" PARTITION ({_partition(element.partition, compiler)})"
    if element.partition_from is not None and element.partition_to is not None:
        begin = _partition(element.partition_from, compiler)
        action += f" PARTITION FROM ({begin}) TO ({_partition(element.partition_to, compiler)})"
    if element.cascade:
        direction = f" {element.cascade}" if isinstance(element.cascade, str) else ""
        action += f" CASCADE{direction}"
    return _alter(element, compiler, action)


@compiles(SetMaterializedTableFreshness, "tidegate")
def _set_freshness(element: SetMaterializedTableFreshness, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, f"SET FRESHNESS = {interval_literal(element.freshness)}")


@compiles(SetMaterializedTableRefreshMode, "tidegate")
def _set_refresh_mode(element: SetMaterializedTableRefreshMode, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, f"SET REFRESH_MODE = {element.refresh_mode}")


@compiles(SetMaterializedTableRefreshTrigger, "tidegate")
def _set_refresh_trigger(
    element: SetMaterializedTableRefreshTrigger, compiler: Any, **kw: Any
) -> str:
    return _alter(element, compiler, f"SET REFRESH_TRIGGER = {element.refresh_trigger}")


@compiles(SetMaterializedTableExecuteAs, "tidegate")
def _set_execute_as(element: SetMaterializedTableExecuteAs, compiler: Any, **kw: Any) -> str:
    user = "OWNER" if element.user is None else f"USER {_literal(element.user, compiler)}"
    return _alter(element, compiler, f"SET EXECUTE AS {user}")


@compiles(SetMaterializedTableImmutable, "tidegate")
def _set_immutable(element: SetMaterializedTableImmutable, compiler: Any, **kw: Any) -> str:
    if element.where is None:
        return _alter(element, compiler, "DROP IMMUTABLE")
    return _alter(element, compiler, f"SET IMMUTABLE WHERE ({_query(element.where, compiler)})")


@compiles(AlterMaterializedTableQuery, "tidegate")
def _alter_query(element: AlterMaterializedTableQuery, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, f"AS {_query(element.query, compiler)}")


@compiles(RenameMaterializedTable, "tidegate")
def _rename(element: RenameMaterializedTable, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, f"RENAME TO {compiler.preparer.quote(element.new_name)}")


@compiles(SwapMaterializedTables, "tidegate")
def _swap(element: SwapMaterializedTables, compiler: Any, **kw: Any) -> str:
    other = _qualify(element.other, element.schema, compiler)
    return _alter(element, compiler, f"SWAP WITH {other}")


@compiles(RollbackMaterializedTable, "tidegate")
def _roll_back(element: RollbackMaterializedTable, compiler: Any, **kw: Any) -> str:
    what = "" if element.what == "DATA" else f" {element.what}"
    return _alter(element, compiler, f"ROLLBACK TO VERSION {element.version}{what}")


@compiles(RollbackMaterializedTableDefinition, "tidegate")
def _roll_back_definition(
    element: RollbackMaterializedTableDefinition, compiler: Any, **kw: Any
) -> str:
    version = f" TO VERSION {element.version}" if element.version is not None else ""
    return _alter(element, compiler, f"ROLLBACK DEFINITION{version}")


@compiles(PublishHeldVersion, "tidegate")
def _publish(element: PublishHeldVersion, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, "PUBLISH HELD VERSION")


@compiles(DiscardHeldVersion, "tidegate")
def _discard(element: DiscardHeldVersion, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, "DISCARD HELD VERSION")


@compiles(ConvertMaterializedTable, "tidegate")
def _convert(element: ConvertMaterializedTable, compiler: Any, **kw: Any) -> str:
    return _alter(element, compiler, "CONVERT TO TABLE")


def _cascade(cascade: bool) -> str:
    return " CASCADE" if cascade else ""


def _alter(element: _MaterializedTableElement, compiler: Any, action: str) -> str:
    return f"ALTER MATERIALIZED TABLE {_name(element, compiler)} {action}"


def _name(element: _MaterializedTableElement, compiler: Any) -> str:
    return _qualify(element.name, element.schema, compiler)


def _qualify(name: str, schema: str | None, compiler: Any) -> str:
    quoted = compiler.preparer.quote(name)
    if schema is None:
        return str(quoted)
    return f"{compiler.preparer.quote_schema(schema)}.{quoted}"


def _names(names: Sequence[str], compiler: Any) -> str:
    return ", ".join(compiler.preparer.quote(name) for name in names)


def _pairs(options: Mapping[str, str], compiler: Any) -> str:
    return ", ".join(
        f"{_literal(key, compiler)} = {_literal(value, compiler)}" for key, value in options.items()
    )


def _partition(values: Mapping[str, object], compiler: Any) -> str:
    return ", ".join(
        f"{compiler.preparer.quote(column)} = {_literal(str(value), compiler)}"
        for column, value in values.items()
    )


def _literal(text: str, compiler: Any) -> str:
    return str(compiler.sql_compiler.render_literal_value(text, sqltypes.String()))


def _query(query: Query, compiler: Any) -> str:
    if isinstance(query, str):
        doubled = compiler.preparer._double_percents
        return query.replace("%", "%%") if doubled else query
    return str(compiler.sql_compiler.process(query, literal_binds=True))
