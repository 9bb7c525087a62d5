"""Builds an analyzed and checked definition from a statement, without side effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidegate_server.core.config import SCHEDULER_OPTIONS
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Analysis
from tidegate_server.core.messages.requests import Analyze, InspectTable
from tidegate_server.core.model.dialects import DIALECT_OPTION
from tidegate_server.core.model.freshness import Freshness
from tidegate_server.core.model.names import STORAGE_PREFIX, SYSTEM_SCHEMA, TableName
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import (
    Definition,
    LogicalRefreshMode,
    MaterializedTable,
    PipelineState,
    RefreshMode,
)
from tidegate_server.core.model.versions import Source
from tidegate_server.core.sql.comments import spark_text
from tidegate_server.core.sql.cursor import position
from tidegate_server.core.sql.places import place_after, place_of
from tidegate_server.core.sql.statements import (
    CreateMaterializedTable,
    Downstream,
    MetadataColumn,
    RequestedMode,
)
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.definition.announcements import zone_warning
from tidegate_server.gateway.definition.checks import (
    RefreshCadence,
    Setting,
    check_enforced,
    check_load_engine,
    check_neighbours,
    check_options,
    check_versions,
    layered_setting,
    pace,
)
from tidegate_server.gateway.definition.columns import Shape, check_types, shape
from tidegate_server.gateway.definition.derived import (
    check_assertions,
    check_distribution,
    check_expectations,
    check_watermark,
    derived_columns,
    storage_table,
    with_types,
)
from tidegate_server.gateway.definition.immutable import backfill_source, check_region
from tidegate_server.gateway.definition.notices import definition_notices, lateness_notices, warn
from tidegate_server.gateway.definition.start_mode import start_mode
from tidegate_server.gateway.definition.streaming import check_created, check_ingest
from tidegate_server.gateway.link.targets import TARGET_KEYS, choose_target
from tidegate_server.gateway.options import (
    DUPLICATES_KEY,
    INITIALIZE_KEY,
    POLICY_KEY,
    PROJECT_KEY,
    Place,
)
from tidegate_server.gateway.scheduler.partitions import read_policy
from tidegate_server.gateway.spark_session import ensure_session
from tidegate_server.gateway.store.stored_table import encode_definition

_CLAUSES: Mapping[str, tuple[str, ...]] = {
    Code.MT_PK_NOT_FOUND.name: ("PRIMARY", "KEY"),
    Code.MT_PK_NULLABLE.name: ("PRIMARY", "KEY"),
    Code.MT_PARTITION_COLUMN_NOT_FOUND.name: ("PARTITIONED", "BY"),
    Code.MT_PARTITION_UNSUPPORTED.name: ("PARTITIONED", "BY"),
    Code.MT_COLUMN_NOT_FOUND.name: ("(",),
    Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY.name: ("(",),
    Code.MT_INCOMPATIBLE_TYPE.name: ("(",),
}
"""Keywords that start the clause of an error's column, by error code."""
_UNSTABLE = ("D1", "D3")
"""Function classes that depend on time, session or randomness. D2, the order of tied rows, is
checked by the refresh."""


def cadence_of(
    statement: CreateMaterializedTable, existing: MaterializedTable | None, context: Context
) -> RefreshCadence:
    """Return the freshness and the refresh mode that a statement gives to a table.

    :raises ServerError: as :func:`pace` does.
    """
    requested = statement.refresh_mode
    if requested is None and existing is not None:
        requested = asked_mode(existing.definition.logical_refresh_mode)
    paced = _paced(statement, existing, context)
    return pace(statement.freshness, requested, paced, statement.on_update)


def _paced(
    statement: CreateMaterializedTable, existing: MaterializedTable | None, context: Context
) -> Setting:
    """Return the lookup of the options that freshness and refresh mode depend on."""
    defaults = context.setting if existing is None else _defaults_of(existing.definition, context)
    return layered_setting(statement.options, defaults)


def define(
    statement: CreateMaterializedTable,
    text: str,
    context: Context,
    *,
    existing: MaterializedTable | None = None,
) -> MaterializedTable:
    """Check a statement against Spark's analysis and return its definition.

    Error positions refer to ``text``, the whole statement. ``existing`` is the table found by
    CREATE OR ALTER; without REFRESH_MODE its explicit mode is kept.
    """
    name = resolve.table_name(statement.name, context)
    resolve.check_catalog(name.catalog, context)
    refuse_storage_name(name)
    check_types(statement.columns, text)
    notices = check_options(statement.options, Place.CREATE)
    check_load_engine(statement.options, context.services.config.engines)
    setting = layered_setting(statement.options, context.setting)
    try:
        chosen = cadence_of(statement, existing, context)
    except ServerError as problem:
        raise at_freshness(problem, statement.freshness, text) from problem.__cause__
    need_scheduler("CREATE", chosen.mode, context)
    config = context.services.config
    target = choose_target(
        context.setting, config.engines, config.engine.master, context.services.new_id
    )
    if name.is_foreign:
        # Some catalogs would create the schema with the table.
        resolve.check_schema(name.catalog, name.schema, context)
    analysis = analyze(statement.query, text, name, context)
    check_versions(analysis.sources, setting, watched=chosen.watched)
    refuse_unstable(name, chosen.logical_mode, analysis)
    try:
        fitted = shape(
            statement,
            analysis.schema,
            analysis.expanded_query,
            strict=strict_names(setting),
            change_key=analysis.key,
        )
    except ServerError as problem:
        raise _in_clause(problem, text) from problem.__cause__
    definition = _definition(statement, chosen, fitted, analysis, context)
    definition = replace(
        definition,
        start_mode=start_mode(
            statement.start_mode,
            chosen.mode,
            definition.date_formatters(),
            _paced(statement, existing, context),
            or_alter=statement.or_alter,
            on_update=chosen.on_update is not None,
        ),
    )
    table = MaterializedTable(
        id=context.services.new_id(),
        name=name,
        owner=context.session.user,
        created_at=context.services.clock.now(),
        execution_target=str(target),
        definition=definition,
        state=PipelineState(status=RefreshStatus.INITIALIZING),
    )
    warning = zone_warning(table, analysis.time_zone, context)
    if warning is not None and existing is None:
        context.warn(warning)
    catalog = context.services.catalog
    check_neighbours(table, catalog.consumers, catalog.find, setting)
    definition = _with_derived(statement, name, definition, context)
    table = replace(table, definition=definition, storage_table=storage_table(name, definition))
    check_ingest(table)
    check_created(statement, table)
    if definition.immutable is not None:
        check_region(definition.immutable, definition.schema, text, context)
    loads_at_once = (setting(INITIALIZE_KEY) or "").strip().upper() == "ON_CREATE"
    described = definition_notices(
        definition, statement.columns, new=existing is None, loads_at_once=loads_at_once
    )
    late = lateness_notices(statement.options, read_policy(setting(POLICY_KEY)))
    warn((*notices, *described, *late), context)
    if statement.backfill_from is None or existing is not None:
        return table
    source = backfill_source(statement.backfill_from, definition.schema, text, context)
    return replace(table, definition=replace(definition, backfilled_from=source))


def analyze(query: str, text: str, name: TableName, context: Context) -> Analysis:
    """Have the engine analyze a definition query in the current session.

    Error positions refer to ``text``, the statement that contains the query.

    :raises ServerError: Spark's analysis error, MT_TEMPORARY_DEPENDENCY, or MT_CYCLE.
    """
    request = Analyze(
        session_id=ensure_session(context),
        operation_id=context.operation_id,
        sql=spark_text(query),
        user=context.session.user,
        features=context.features,
    )
    try:
        answer = context.engine.call(request)
    except ServerError as problem:
        raise _with_position(problem, query, text) from problem.__cause__
    for temporary in answer.temporary_objects:
        kind, _, found = temporary.partition(" ")
        raise error(Code.MT_TEMPORARY_DEPENDENCY, kind=kind, name=found)
    refuse_cycle(name, answer.sources, context.services.catalog.find)
    return replace(
        answer, sources=tuple(_mark_source(source, context) for source in answer.sources)
    )


def refuse_cycle(
    name: TableName,
    sources: Sequence[Source],
    find: Callable[[TableName], MaterializedTable | None],
) -> None:
    """Reject a query that reads its own table, directly or through materialized tables.

    :param find: looks up a materialized table by name.
    :raises ServerError: MT_CYCLE with the path.
    """
    wanted = name.folded()
    waiting: list[tuple[TableName, tuple[TableName, ...]]]
    waiting = [(source.name.folded(), ()) for source in sources]
    seen: set[TableName] = set()
    while waiting:
        found, way = waiting.pop()
        if found == wanted:
            via = f" through {', '.join(str(step) for step in way)}" if way else ""
            raise error(Code.MT_CYCLE, table=name, via=via)
        table = find(found) if found not in seen else None
        seen.add(found)
        for source in table.definition.sources if table is not None else ():
            waiting.append((source.name.folded(), (*way, found)))


def refuse_unstable(name: TableName, logical: LogicalRefreshMode, analysis: Analysis) -> None:
    """Reject INCREMENTAL STRICT if a function can change while the sources do not.

    :raises ServerError: MT_NOT_INCREMENTAL listing them.
    """
    if logical is not LogicalRefreshMode.INCREMENTAL_STRICT:
        return
    named = (entry.split(" ", 1) for entry in analysis.unstable)
    functions = sorted({entry[-1] for entry in named if entry[0] in _UNSTABLE})
    if functions:
        raise error(Code.MT_NOT_INCREMENTAL, table=name, reasons=f"it uses {', '.join(functions)}")


def refuse_storage_name(name: TableName) -> None:
    """Reject names reserved for storage and system tables."""
    if name.schema.lower() == SYSTEM_SCHEMA:
        what = f"A materialized table in {SYSTEM_SCHEMA}"
        raise error(Code.NOT_SUPPORTED, what=what, hint="Choose another schema.")
    if name.table.lower().startswith(STORAGE_PREFIX):
        hint = f"Choose a name that does not begin with {STORAGE_PREFIX}."
        raise error(Code.NOT_SUPPORTED, what=f"A materialized table named {name.table}", hint=hint)


def refuse_taken(name: TableName, context: Context) -> None:
    """Reject a name already used by a table, view or materialized table.

    :raises ServerError: MT_ALREADY_EXISTS.
    """
    if context.services.catalog.find(name) is not None:
        raise error(Code.MT_ALREADY_EXISTS, kind="Materialized table", table=name)
    answer = context.services.engine.call(InspectTable(name=name))
    if answer.format is not None:
        kind = "View" if answer.format == "view" else "Table"
        raise error(Code.MT_ALREADY_EXISTS, kind=kind, table=name)


def definition_properties(table: MaterializedTable) -> dict[str, str]:
    """Return table properties that allow a lost store to be rebuilt."""
    return {"tidegate.id": table.id, "tidegate.definition": encode_definition(table)}


def need_scheduler(action: str, mode: RefreshMode, context: Context) -> None:
    """Reject a scheduled mode without a workflow scheduler; raises MT_NO_SCHEDULER."""
    none = context.services.config.scheduler_type == "none"
    if none and mode.scheduled:
        raise error(Code.MT_NO_SCHEDULER, action=action)


def strict_names(setting: Setting) -> bool:
    """Say whether repeated output names are an error."""
    return (setting(DUPLICATES_KEY) or "").strip().upper() == "TRUE"


def asked_mode(logical: LogicalRefreshMode) -> RequestedMode | None:
    """Return the REFRESH_MODE of a definition; None if it had none."""
    if logical is LogicalRefreshMode.AUTOMATIC:
        return None
    return RequestedMode(logical.value)


def _defaults_of(definition: Definition, context: Context) -> Setting:
    """Return the lookup of defaults for omitted clauses.

    The table's own settings apply, so that the same statement yields the same definition in
    every session.
    """
    return layered_setting(definition.settings, context.services.config.options.get)


def stored_settings(context: Context) -> dict[str, str]:
    """Return the session settings that differ from the server's; refreshes apply them."""
    server = context.services.config.options
    chosen = {**context.session.settings, **context.overlay}
    return {
        key: value
        for key, value in chosen.items()
        if server.get(key) != value
        and not key.startswith(SCHEDULER_OPTIONS)
        and key not in (*TARGET_KEYS, DIALECT_OPTION)
    }


def at_freshness(
    problem: ServerError, written: Freshness | Downstream | None, text: str
) -> ServerError:
    """Set the position of a freshness error; a default has no position."""
    if written is not None and problem.code.startswith("MT_FRESHNESS_"):
        problem.line, problem.column = place_after(text, "FRESHNESS", "=")
    return problem


def _with_position(problem: ServerError, query: str, text: str) -> ServerError:
    """Translate an error's position from the query to its statement."""
    if problem.line is None or problem.column is None or query not in text:
        return problem
    line, column = position(text, text.rindex(query))
    return ServerError(
        code=problem.code,
        sqlstate=problem.sqlstate,
        message=problem.message,
        hint=problem.hint,
        line=line + problem.line - 1,
        column=problem.column + column - 1 if problem.line == 1 else problem.column,
        detail=problem.detail,
    )


def _in_clause(problem: ServerError, text: str) -> ServerError:
    """Set the position of a column error to the name in its clause."""
    clause = _CLAUSES.get(problem.code)
    if clause is None or problem.name is None or problem.line is not None:
        return problem
    problem.line, problem.column = place_of(text, problem.name, *clause) or (None, None)
    return problem


def _mark_source(source: Source, context: Context) -> Source:
    known = context.services.catalog.find(source.name)
    return replace(source, materialized_table=known is not None)


def _definition(
    statement: CreateMaterializedTable,
    chosen: RefreshCadence,
    fitted: Shape,
    analysis: Analysis,
    context: Context,
) -> Definition:
    return Definition(
        schema=fitted.schema,
        original_query=statement.query,
        expanded_query=fitted.expanded_query,
        sources=analysis.sources,
        lineage=analysis.lineage,
        freshness=chosen.freshness,
        logical_refresh_mode=chosen.logical_mode,
        refresh_mode=chosen.mode,
        downstream=chosen.downstream,
        on_update=chosen.on_update,
        execute_as=statement.execute_as,
        comment=statement.comment,
        options=options_of(statement, context),
        partition_keys=fitted.partition_keys,
        primary_key=fitted.primary_key,
        settings=stored_settings(context),
        declared=_is_declared(statement),
        distribution=statement.distribution,
        expectations=statement.expectations,
        assertions=statement.assertions,
        immutable=statement.immutable,
    )


def options_of(statement: CreateMaterializedTable, context: Context) -> dict[str, str]:
    """Return a statement's options with the project of the session, unless they name one."""
    options = dict(statement.options)
    project = context.setting(PROJECT_KEY)
    return options if project is None else {PROJECT_KEY: project, **options}


def _is_declared(statement: CreateMaterializedTable) -> bool:
    parts = (statement.columns, statement.primary_key, statement.watermark)
    return any(parts) or bool(statement.expectations or statement.assertions)


def _with_derived(
    statement: CreateMaterializedTable, name: TableName, definition: Definition, context: Context
) -> Definition:
    """Add the parts of a column list that the query does not produce."""
    check_distribution(definition.distribution, definition.schema)
    check_expectations(definition.expectations, definition.schema, context)
    check_assertions(definition.assertions, definition.schema, context)
    check_enforced(name, definition)
    placed = derived_columns(statement.columns, definition.schema)
    definition = replace(
        definition,
        derived=with_types(definition.schema, placed, context),
        persisted_metadata={
            column.name: column.key or column.name
            for column in statement.columns
            if isinstance(column, MetadataColumn) and not column.virtual
        },
        watermark=statement.watermark,
    )
    check_watermark(definition.watermark, definition.visible, context)
    return definition
