"""ALTER MATERIALIZED TABLE ... ROLLBACK DEFINITION and its EXPLAIN: back to a definition."""

from __future__ import annotations

import logging
from dataclasses import replace

from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.result import Result, nothing
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.sql.places import place_behind
from tidegate_server.core.sql.statements import AlterRollbackDefinition
from tidegate_server.gateway.command.redefine import alterable, carry_out, compared, explained
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import history
from tidegate_server.gateway.definition.build import asked_mode, define
from tidegate_server.gateway.definition.evolution import Evolution
from tidegate_server.gateway.definition.statement import creating

log = logging.getLogger(__name__)


def roll_back_definition(statement: AlterRollbackDefinition, text: str, context: Context) -> Result:
    """Alter a table to what its definition was, as CREATE OR ALTER with that definition does.

    The earlier definition becomes a new version; rows stay until the next refresh.

    :raises ServerError: MT_DEFINITION_NOT_FOUND, and every code of CREATE OR ALTER.
    """
    earlier, found = _wanted(statement, text, context)
    carry_out(found, context)
    log.info("Rolled the definition of %s back to version %d", found.before.name, _number(earlier))
    context.note(_told(found, _number(earlier)))
    return nothing()


def way_back(statement: AlterRollbackDefinition, text: str, context: Context) -> Evolution:
    """Return what :func:`roll_back_definition` would do; changes nothing, raises the same."""
    _, found = _wanted(statement, text, context)
    if found.rejection is not None:
        raise found.rejection
    return found


def explain(statement: AlterRollbackDefinition, text: str, context: Context) -> Result:
    """Answer the changes and the plan of the refresh that follows; changes nothing.

    :raises ServerError: MT_DEFINITION_NOT_FOUND, and what the analysis of the earlier query says.
    """
    return explained(_wanted(statement, text, context)[1], context)


def _wanted(
    statement: AlterRollbackDefinition, text: str, context: Context
) -> tuple[MaterializedTable, Evolution]:
    """Return the earlier definition and the way to it."""
    table = alterable(statement.name, context)
    try:
        earlier = history.find(table, statement.version, context.services.catalog)
    except ServerError as problem:
        if statement.version is not None:
            problem.line, problem.column = place_behind(text, "TO", "VERSION")
        raise
    return earlier, _evolution(table, earlier, context)


def _told(found: Evolution, version: int) -> str:
    """Say what became of the table."""
    name, now = found.before.name, found.after.definition_version
    if not found.changes:
        return f"{name} is what definition version {version} says already."
    if now == found.before.definition_version:
        return f"{name} is again what definition version {version} says; its content stays."
    return (
        f"{name} has definition version {now}, which is that of version {version}; its next "
        "refresh uses it."
    )


def _evolution(table: MaterializedTable, earlier: MaterializedTable, context: Context) -> Evolution:
    """Return the way back, by the rules of CREATE OR ALTER."""
    creation = replace(
        creating(replace(earlier, name=table.name), or_alter=True),
        refresh_mode=asked_mode(earlier.logical_refresh_mode),
    )
    try:
        wanted = define(creation, "", context, existing=table)
    except ServerError as problem:
        # Its places are in the earlier statement, which is not the one that was sent.
        problem.line = problem.column = None
        raise
    wanted = replace(wanted, original_query=earlier.original_query, declared=earlier.declared)
    found = compared(table, wanted, context)
    if found.after.definition_version == table.definition_version:
        return found
    after = replace(found.after, settings=earlier.settings, restored_from=_number(earlier))
    return replace(found, after=after)


def _number(definition: MaterializedTable) -> int:
    return definition.definition_version
