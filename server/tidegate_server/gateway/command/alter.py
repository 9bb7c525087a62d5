"""ALTER MATERIALIZED TABLE: freshness, refresh mode and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import (
    Definition,
    LogicalRefreshMode,
    MaterializedTable,
    RefreshMode,
)
from tidegate_server.core.sql.statements import (
    AlterResetOptions,
    AlterSetExecuteAs,
    AlterSetFreshness,
    AlterSetImmutable,
    AlterSetOptions,
    AlterSetRefreshMode,
    AlterSetRefreshTrigger,
    Downstream,
)
from tidegate_server.gateway.command.redefine import alterable, analyze_stored
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.announcements import zone_warning
from tidegate_server.gateway.definition.build import (
    asked_mode,
    at_freshness,
    need_scheduler,
    refuse_unstable,
)
from tidegate_server.gateway.definition.checks import (
    RefreshCadence,
    check_enforced,
    check_load_engine,
    check_neighbours,
    check_options,
    check_versions,
    layered_setting,
    pace,
)
from tidegate_server.gateway.definition.columns import check_formatters
from tidegate_server.gateway.definition.immutable import check_region
from tidegate_server.gateway.definition.notices import warn
from tidegate_server.gateway.definition.transaction import apply_definition
from tidegate_server.gateway.link.targets import (
    LOAD_ENGINE_KEY,
    TARGET_KEYS,
    Target,
    change_target,
    read_target,
    reset_target,
)
from tidegate_server.gateway.options import Place, check_target_option
from tidegate_server.gateway.scheduler.cron import TIMEZONE_OPTION

_RESERVED = "connector"
_PACE_OPTIONS = ("materialized-table.schedule.", "materialized-table.refresh-mode.")


def set_freshness(statement: AlterSetFreshness, text: str, context: Context) -> Result:
    """Change a table's freshness; in AUTOMATIC mode the refresh mode follows the threshold.

    :raises ServerError: MT_FRESHNESS_*, MT_STATE while INITIALIZING, MT_NO_SCHEDULER.
    """
    table = alterable(statement.name, context)
    definition = table.definition
    requested = asked_mode(definition.logical_refresh_mode)
    setting = layered_setting(definition.options, context.setting)
    try:
        chosen = pace(statement.freshness, requested, setting, definition.on_update)
    except ServerError as problem:
        raise at_freshness(problem, statement.freshness, text) from problem.__cause__
    return _change_pace(table, chosen, context)


def set_refresh_mode(statement: AlterSetRefreshMode, context: Context) -> Result:
    """Set an explicit refresh mode.

    Raises like :func:`set_freshness`, and MT_QUERY_UNSUPPORTED.
    """
    table = alterable(statement.name, context)
    definition = table.definition
    freshness = Downstream.DOWNSTREAM if definition.downstream else definition.freshness
    setting = layered_setting(definition.options, context.setting)
    chosen = pace(freshness, statement.mode, setting, definition.on_update)
    check_versions(definition.sources, setting, watched=chosen.watched)
    if chosen.logical_mode is LogicalRefreshMode.INCREMENTAL_STRICT:
        refuse_unstable(table.name, chosen.logical_mode, analyze_stored(definition, context))
    return _change_pace(table, chosen, context)


def set_refresh_trigger(statement: AlterSetRefreshTrigger, context: Context) -> Result:
    """Choose whether source changes or the schedule start a table's refreshes.

    In AUTOMATIC mode the refresh mode follows. Raises like :func:`set_freshness`, and
    MT_TRIGGER_UNSUPPORTED or MT_QUERY_UNSUPPORTED.
    """
    table = alterable(statement.name, context)
    definition = table.definition
    freshness = Downstream.DOWNSTREAM if definition.downstream else definition.freshness
    requested = asked_mode(definition.logical_refresh_mode)
    setting = layered_setting(definition.options, context.setting)
    chosen = pace(freshness, requested, setting, statement.on_update)
    check_versions(definition.sources, setting, watched=chosen.watched)
    return _change_pace(table, chosen, context)


def set_execute_as(statement: AlterSetExecuteAs, context: Context) -> Result:
    """Change whose rights a table's refreshes use, from the next one on.

    :raises ServerError: MT_STATE while INITIALIZING.
    """
    table = alterable(statement.name, context)
    definition = replace(table.definition, execute_as=statement.execute_as)
    changed = replace(table, definition=definition)
    if changed != table:
        apply_definition(table, changed, context)
    return nothing()


def set_immutable(statement: AlterSetImmutable, text: str, context: Context) -> Result:
    """Make refreshes leave rows that match a condition unchanged from now on.

    ``text`` is the statement that error positions refer to.

    :raises ServerError: MT_PREDICATE, MT_STATE while INITIALIZING.
    """
    table = alterable(statement.name, context)
    check_region(statement.predicate, table.definition.schema, text, context)
    if statement.predicate == table.definition.immutable:
        return nothing()
    # Rows that are no longer immutable are recomputed, so the content changes.
    definition = replace(
        table.definition,
        immutable=statement.predicate,
        version=table.definition.version + 1,
        restored_from=None,
    )
    return restart_with(table, replace(table, definition=definition), context)


def set_options(statement: AlterSetOptions, context: Context) -> Result:
    """Add or replace options, after which a CONTINUOUS table starts over; or choose an engine.

    :raises ServerError: MT_OPTION_UNKNOWN, MT_OPTION_VALUE, MT_DATE_FORMATTER_* or
        MT_EXECUTION_MODE.
    """
    table = alterable(statement.name, context)
    definition = table.definition
    warn(check_options(statement.options, Place.ALTER), context)
    check_load_engine(statement.options, context.services.config.engines)
    target = {key: value for key, value in statement.options.items() if key in TARGET_KEYS}
    given = {key: value for key, value in statement.options.items() if key not in TARGET_KEYS}
    options = {**definition.options, **given}
    check_formatters(options, definition.partition_keys, definition.schema)
    changed = _with_options(table, options, context)
    if target:
        changed = replace(changed, execution_target=str(_new_target(table, target, context)))
    check_enforced(changed.name, changed.definition)
    if TIMEZONE_OPTION in statement.options:
        warning = zone_warning(changed, "", context)
        if warning is not None:
            context.warn(warning)
    return restart_with(table, changed, context)


def reset_options(statement: AlterResetOptions, context: Context) -> Result:
    """Remove options; unknown keys are ignored. Without its engine, a table is the gateway's own.

    :raises ServerError: MT_OPTION_RESERVED for ``connector``, MT_OPTION_VALUE for a date-formatter
        that a lateness needs.
    """
    table = alterable(statement.name, context)
    definition = table.definition
    if _RESERVED in statement.keys:
        raise error(Code.MT_OPTION_RESERVED, key=_RESERVED)
    kept = {key: value for key, value in definition.options.items() if key not in statement.keys}
    check_formatters(kept, definition.partition_keys, definition.schema)
    target = reset_target(read_target(table.execution_target), statement.keys)
    changed = replace(_with_options(table, kept, context), execution_target=str(target))
    return restart_with(table, changed, context)


def restart_with(table: MaterializedTable, changed: MaterializedTable, context: Context) -> Result:
    """Apply a changed definition; a CONTINUOUS table loses its checkpoint.

    Another engine, also for first loads, continues from the last commit.
    """
    if changed == table:
        return nothing()
    continuous = table.definition.refresh_mode is RefreshMode.CONTINUOUS
    restarts = continuous and not _differ_in_engine(table.definition, changed.definition)
    apply_definition(table, changed, context, restarts=restarts)
    return nothing()


def _differ_in_engine(one: Definition, other: Definition) -> bool:
    """Return whether definitions differ at most in the engine for first loads."""
    load = other.options.get(LOAD_ENGINE_KEY)
    kept = {key: value for key, value in one.options.items() if key != LOAD_ENGINE_KEY}
    if load is not None:
        kept[LOAD_ENGINE_KEY] = load
    return replace(one, options=kept) == other


def _new_target(table: MaterializedTable, options: Mapping[str, str], context: Context) -> Target:
    """Start the engine that options choose and return it; warn of options without effect.

    :raises ServerError: MT_EXECUTION_MODE, MT_OPTION_VALUE or ENGINE_UNAVAILABLE.
    """
    config = context.services.config
    reasons = {key: check_target_option(key, value, config) for key, value in options.items()}
    warn(tuple(f"option {key}: {why}" for key, why in reasons.items() if why), context)
    current = read_target(table.execution_target)
    found = change_target(
        current, options, config.engines, config.engine.master, context.services.new_id
    )
    if found != current:
        context.services.start_engine(found)  # before anything is changed
    return found


def _with_options(
    table: MaterializedTable, options: Mapping[str, str], context: Context
) -> MaterializedTable:
    """Return the definition with new options; schedule options may change its mode."""
    definition = table.definition
    changed = replace(definition, options=options)
    old = definition.options
    keys = {key for key in {*old, *options} if old.get(key) != options.get(key)}
    if not any(key.startswith(_PACE_OPTIONS) for key in keys):
        return replace(table, definition=changed)
    freshness = Downstream.DOWNSTREAM if definition.downstream else definition.freshness
    requested = asked_mode(definition.logical_refresh_mode)
    chosen = pace(
        freshness, requested, layered_setting(options, context.setting), definition.on_update
    )
    need_scheduler("ALTER", chosen.mode, context)
    return replace(table, definition=replace(changed, refresh_mode=chosen.mode))


def _change_pace(table: MaterializedTable, chosen: RefreshCadence, context: Context) -> Result:
    need_scheduler("ALTER", chosen.mode, context)
    definition = replace(
        table.definition,
        freshness=chosen.freshness,
        logical_refresh_mode=chosen.logical_mode,
        refresh_mode=chosen.mode,
        downstream=chosen.downstream,
        on_update=chosen.on_update,
    )
    changed = replace(table, definition=definition)
    catalog = context.services.catalog
    setting = layered_setting(table.definition.options, context.setting)
    check_neighbours(changed, catalog.consumers, catalog.find, setting)
    if changed != table:
        apply_definition(table, changed, context)
    return nothing()
