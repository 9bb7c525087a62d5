"""Statements back to text: ``parse(render(statement)) == statement``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    OnUpdate,
    StartMode,
    Watermark,
)
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.sql import privileges
from tidegate_server.core.sql.statements import (
    AlterAdd,
    AlterAsQuery,
    Alteration,
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
    ColumnChange,
    ColumnItem,
    ColumnName,
    ComputedColumn,
    CreateMaterializedTable,
    DescribeTable,
    Downstream,
    DropMaterializedTable,
    Explain,
    GrantPrivileges,
    MetadataColumn,
    Name,
    PhysicalColumn,
    PrimaryKeyClause,
    ResetOption,
    RevokePrivileges,
    RolledBack,
    SchemaChange,
    SetOption,
    ShowCreateMaterializedTable,
    ShowCreateTable,
    ShowGrants,
    ShowLag,
    ShowLineage,
    ShowMaterializedTables,
    ShowOption,
    ShowOptions,
    ShowRefreshHistory,
    ShowVersions,
    SparkStatement,
    Statement,
    VerifyMaterializedTable,
)


def render(statement: Statement) -> str:
    """Return the statement as SQL that parses to the same statement."""
    match statement:
        case CreateMaterializedTable():
            return render_create(statement)
        case Explain():
            return _explain(statement)
        case DropMaterializedTable(name=name, if_exists=if_exists):
            return f"DROP MATERIALIZED TABLE {'IF EXISTS ' if if_exists else ''}{_name(name)}"
        case VerifyMaterializedTable(name=name, version=version):
            at = f" VERSION {version}" if version is not None else ""
            return f"VERIFY MATERIALIZED TABLE {_name(name)}{at}"
        case ShowCreateTable(name=name):
            return f"SHOW CREATE TABLE {_name(name)}"
        case DescribeTable():
            return _describe(statement)
        case SetOption(key=key, value=value):
            return f"SET {quote_literal(key)} = {quote_literal(value)}"
        case ShowOption(key=key):
            return f"SET {quote_literal(key)}"
        case ShowOptions(verbose=verbose):
            return "SET -v" if verbose else "SET"
        case ResetOption(key=key):
            return f"RESET {quote_literal(key)}" if key is not None else "RESET"
        case GrantPrivileges() | RevokePrivileges() | ShowGrants():
            return privileges.render(statement)
        case SparkStatement(text=text):
            return text
        case (
            ShowMaterializedTables()
            | ShowCreateMaterializedTable()
            | ShowRefreshHistory()
            | ShowLineage()
            | ShowLag()
            | ShowVersions()
        ):
            return _show(statement)
        case _:
            return f"ALTER MATERIALIZED TABLE {_name(statement.name)} {_alteration(statement)}"


def render_create(statement: CreateMaterializedTable, *, start_note: str | None = None) -> str:
    """Return a CREATE, one clause a line; ``start_note`` is a comment after START_MODE."""
    words = "OR ALTER MATERIALIZED" if statement.or_alter else "MATERIALIZED"
    guard = "IF NOT EXISTS " if statement.if_not_exists else ""
    lines = [f"CREATE {words} TABLE {guard}{_name(statement.name)}{_column_list(statement)}"]
    if statement.comment is not None:
        lines.append(f"COMMENT {quote_literal(statement.comment)}")
    if statement.distribution is not None:
        lines.append(f"DISTRIBUTED {render_distribution(statement.distribution)}")
    if statement.partition_keys:
        lines.append(f"PARTITIONED BY ({_names(statement.partition_keys)})")
    if statement.options:
        pairs = ",\n".join(f"  {pair}" for pair in _pairs(statement.options))
        lines.append(f"WITH (\n{pairs}\n)")
    if statement.start_mode is not None:
        note = f" /* {start_note} */" if start_note else ""
        lines.append(f"START_MODE = {render_start_mode(statement.start_mode)}{note}")
    if statement.freshness is not None:
        lines.append(f"FRESHNESS = {_freshness(statement.freshness)}")
    if statement.refresh_mode is not None:
        lines.append(f"REFRESH_MODE = {statement.refresh_mode.value}")
    if statement.on_update is not None:
        lines.append(f"REFRESH_TRIGGER = {render_trigger(statement.on_update)}")
    if statement.execute_as is not None:
        lines.append(render_execute_as(statement.execute_as))
    if statement.immutable is not None:
        lines.append(_immutable(statement.immutable))
    if statement.backfill_from is not None:
        lines.append(f"BACKFILL FROM {_name(statement.backfill_from)}")
    return "\n".join([*lines, f"AS {statement.query}"])


def _column_list(statement: CreateMaterializedTable) -> str:
    items = [_column(column) for column in statement.columns]
    if statement.watermark is not None:
        items.append(_watermark(statement.watermark))
    if statement.primary_key is not None:
        items.append(_primary_key(statement.primary_key))
    items += [_constraint(each, "EXPECT") for each in statement.expectations]
    items += [_constraint(each, "ASSERT") for each in statement.assertions]
    return " (\n" + ",\n".join(f"  {item}" for item in items) + "\n)" if items else ""


def _column(column: ColumnItem) -> str:
    name = quote_identifier(column.name)
    match column:
        case ColumnName():
            return name
        case PhysicalColumn():
            return f"{name} {column.type}{_null(column.nullable)}{_comment(column.comment)}"
        case MetadataColumn():
            source = f" FROM {quote_literal(column.key)}" if column.key is not None else ""
            virtual = " VIRTUAL" if column.virtual else ""
            head = f"{name} {column.type}{_null(column.nullable)} METADATA"
            return f"{head}{source}{virtual}{_comment(column.comment)}"
        case ComputedColumn():
            return f"{name} AS {column.expression}{_comment(column.comment)}"
        case _:
            assert_never(column)


def _null(nullable: bool) -> str:
    return "" if nullable else " NOT NULL"


def _comment(comment: str | None) -> str:
    return f" COMMENT {quote_literal(comment)}" if comment is not None else ""


def _primary_key(key: PrimaryKeyClause) -> str:
    constraint = f"CONSTRAINT {quote_identifier(key.name)} " if key.name is not None else ""
    return f"{constraint}PRIMARY KEY ({_names(key.columns)}) NOT ENFORCED"


def _constraint(stated: Expectation | Assertion, word: str) -> str:
    head = f"CONSTRAINT {quote_identifier(stated.name)} {word} ({stated.condition})"
    return f"{head} ON VIOLATION {stated.violation.value}"


def _watermark(watermark: Watermark) -> str:
    return f"WATERMARK FOR {quote_identifier(watermark.column)} AS {watermark.expression}"


def render_distribution(distribution: Distribution) -> str:
    """Return what follows DISTRIBUTED or DISTRIBUTION."""
    into = f"INTO {distribution.buckets} BUCKETS" if distribution.buckets is not None else ""
    if not distribution.columns:
        return into
    by = f"BY {distribution.kind or ''}({_names(distribution.columns)})"
    return f"{by} {into}".rstrip()


def render_start_mode(mode: StartMode) -> str:
    """Return what follows START_MODE."""
    if mode.interval is not None:
        return f"{mode.kind.value}({mode.interval})"
    if mode.timestamp is not None:
        zone = " WITH LOCAL TIME ZONE" if mode.local_zone else ""
        return f"{mode.kind.value}(TIMESTAMP{zone} {quote_literal(mode.timestamp)})"
    return mode.kind.value


def _freshness(freshness: object) -> str:
    return "DOWNSTREAM" if isinstance(freshness, Downstream) else str(freshness)


def render_execute_as(user: str | None) -> str:
    """Return the clause EXECUTE AS; None is OWNER."""
    return f"EXECUTE AS {'OWNER' if user is None else f'USER {quote_literal(user)}'}"


def render_trigger(on_update: OnUpdate | None) -> str:
    """Return what follows REFRESH_TRIGGER; None is ON SCHEDULE."""
    if on_update is None:
        return "ON SCHEDULE"
    every = on_update.at_most_every
    return "ON UPDATE" if every is None else f"ON UPDATE AT MOST EVERY {every}"


def _immutable(predicate: str) -> str:
    return f"IMMUTABLE WHERE ({predicate})"


def _alteration(statement: Alteration) -> str:
    match statement:
        case AlterSuspend(cascade=cascade):
            return "SUSPEND CASCADE" if cascade else "SUSPEND"
        case AlterResume(options=options, cascade=cascade):
            held = f" WITH ({', '.join(_pairs(options))})" if options else ""
            return f"RESUME{held}{' CASCADE' if cascade else ''}"
        case AlterRefresh():
            return f"REFRESH{_refresh(statement)}"
        case AlterCancelRefresh():
            return "CANCEL REFRESH"
        case AlterConvertToTable():
            return "CONVERT TO TABLE"
        case AlterPublishHeld():
            return "PUBLISH HELD VERSION"
        case AlterDiscardHeld():
            return "DISCARD HELD VERSION"
        case AlterRollback(version=version, what=what):
            part = "" if what is RolledBack.DATA else f" {what.value}"
            return f"ROLLBACK TO VERSION {version}{part}"
        case AlterRollbackDefinition(version=to):
            return f"ROLLBACK DEFINITION{f' TO VERSION {to}' if to is not None else ''}"
        case AlterAsQuery(query=query):
            return f"AS {query}"
        case AlterSetOptions(options=options):
            return f"SET ({', '.join(_pairs(options))})"
        case AlterResetOptions(keys=keys):
            return f"RESET ({', '.join(quote_literal(key) for key in keys)})"
        case AlterSetFreshness(freshness=freshness):
            return f"SET FRESHNESS = {_freshness(freshness)}"
        case AlterSetRefreshMode(mode=mode):
            return f"SET REFRESH_MODE = {mode.value}"
        case AlterSetRefreshTrigger(on_update=on_update):
            return f"SET REFRESH_TRIGGER = {render_trigger(on_update)}"
        case AlterSetExecuteAs(execute_as=user):
            return f"SET {render_execute_as(user)}"
        case AlterSetImmutable(predicate=predicate):
            return f"SET {_immutable(predicate)}"
        case AlterAdd(changes=changes):
            return f"ADD {_changes(changes)}"
        case AlterModify(changes=changes):
            return f"MODIFY {_changes(changes)}"
        case AlterDrop():
            return f"DROP {_drop_target(statement)}"
        case AlterRename(new_name=new_name):
            return f"RENAME TO {_name(new_name)}"
        case AlterSwap(other=other):
            return f"SWAP WITH {_name(other)}"
        case _:
            assert_never(statement)


def _refresh(statement: AlterRefresh) -> str:
    words = [""]
    if statement.kind is not None:
        words.append(statement.kind.value)
    if statement.partition is not None:
        words.append(f"PARTITION {_partition(statement.partition)}")
    if statement.range is not None:
        start, end = _partition(statement.range.start), _partition(statement.range.end)
        words.append(f"PARTITION FROM {start} TO {end}")
    if statement.predicate is not None:
        words.append(f"WHERE {statement.predicate}")
    if statement.cascade is not None:
        words.append("CASCADE" if statement.cascade is Cascade.DOWNSTREAM else "CASCADE UPSTREAM")
    if statement.asynchronous:
        words.append("ASYNC")
    return " ".join(words)


def _partition(spec: Mapping[str, str]) -> str:
    pairs = (f"{quote_identifier(key)} = {quote_literal(value)}" for key, value in spec.items())
    return f"({', '.join(pairs)})"


def _changes(changes: tuple[SchemaChange, ...]) -> str:
    return f"({', '.join(_change(change) for change in changes)})"


def _change(change: SchemaChange) -> str:
    match change:
        case ColumnChange(column=column, first=first, after=after):
            place = " FIRST" if first else f" AFTER {quote_identifier(after)}" if after else ""
            return _column(column) + place
        case PrimaryKeyClause():
            return _primary_key(change)
        case Watermark():
            return _watermark(change)
        case Distribution():
            return f"DISTRIBUTION {render_distribution(change)}"
        case _:
            assert_never(change)


def _drop_target(statement: AlterDrop) -> str:
    if statement.part is not None:
        return statement.part.value
    if statement.constraint is not None:
        return f"CONSTRAINT {quote_identifier(statement.constraint)}"
    return f"({_names(statement.columns)})"


Show = (
    ShowMaterializedTables
    | ShowCreateMaterializedTable
    | ShowRefreshHistory
    | ShowLineage
    | ShowLag
    | ShowVersions
)


def _show(statement: Show) -> str:
    match statement:
        case ShowMaterializedTables():
            return _show_tables(statement)
        case ShowCreateMaterializedTable(name=name, or_alter=or_alter):
            words = "OR ALTER MATERIALIZED TABLE" if or_alter else "MATERIALIZED TABLE"
            return f"SHOW CREATE {words} {_name(name)}"
        case ShowRefreshHistory(name=name, limit=limit, errors=errors):
            of = f" FOR {_name(name)}" if name is not None else ""
            most = f" LIMIT {limit}" if limit is not None else ""
            return f"SHOW REFRESH HISTORY{of}{most}{' ERRORS' if errors else ''}"
        case ShowLineage(name=name, columns=columns):
            return f"SHOW LINEAGE {_name(name)}{' COLUMNS' if columns else ''}"
        case ShowLag():
            return "SHOW LAG"
        case ShowVersions(name=name, definition=definition):
            return f"SHOW VERSIONS {_name(name)}{' DEFINITION' if definition else ''}"
        case _:
            assert_never(statement)


def _show_tables(statement: ShowMaterializedTables) -> str:
    text = "SHOW MATERIALIZED TABLES"
    if statement.extended:
        text += " EXTENDED"
    if statement.schema:
        text += f" FROM {_name(statement.schema)}"
    if statement.pattern is not None:
        like = "ILIKE" if statement.ignore_case else "LIKE"
        no = " NOT" if statement.negated else ""
        text += f"{no} {like} {quote_literal(statement.pattern)}"
    return text


def _describe(statement: DescribeTable) -> str:
    extended = " EXTENDED" if statement.extended else ""
    as_json = " AS JSON" if statement.as_json else ""
    return f"DESCRIBE{extended} {_name(statement.name)}{as_json}"


def _explain(statement: Explain) -> str:
    match statement.statement:
        case AlterRefresh() as refresh:
            return f"EXPLAIN REFRESH {_name(refresh.name)}{_refresh(refresh)}"
        case other:
            return " ".join(filter(None, ("EXPLAIN", statement.detail, render(other))))


def _name(name: Name) -> str:
    return ".".join(quote_identifier(part) for part in name)


def _names(names: Iterable[str]) -> str:
    return ", ".join(quote_identifier(name) for name in names)


def _pairs(options: Mapping[str, str]) -> list[str]:
    """Return ``'key' = 'value'`` for every option, sorted by key."""
    return [f"{quote_literal(key)} = {quote_literal(options[key])}" for key in sorted(options)]
