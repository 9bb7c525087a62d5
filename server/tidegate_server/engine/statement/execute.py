"""Runs a statement of a session exactly once and describes its result."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.core.messages.answers import Executed
from tidegate_server.core.messages.requests import Execute
from tidegate_server.core.model.types import Schema
from tidegate_server.core.sql.streams import reject_streams
from tidegate_server.engine.gate.gate import enforcing, running_as, suspended
from tidegate_server.engine.query.connector_views import drop_as_view
from tidegate_server.engine.query.wide_writes import adapted_writes
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.results.store import ResultStore
from tidegate_server.engine.session.file_changes import FileChanges
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.statement.change_feed import without_feed_if_reserved
from tidegate_server.engine.statement.changed_files import changes_files
from tidegate_server.engine.statement.drop import protect_other_files
from tidegate_server.engine.statement.execute_immediate import expand_execute_immediate
from tidegate_server.engine.statement.explained import require_planned
from tidegate_server.engine.statement.guard import disown, guard
from tidegate_server.engine.statement.history import without_state
from tidegate_server.engine.statement.inline import inline_tables
from tidegate_server.engine.statement.pin import pin_versions, report_missing_versions
from tidegate_server.engine.statement.registered import update_entries
from tidegate_server.engine.statement.resources import check_resources
from tidegate_server.engine.statement.show_create import show_create_table
from tidegate_server.engine.statement.show_extended import with_schemas
from tidegate_server.engine.statement.unfinished import reclaim_storage
from tidegate_server.engine.storage.delta.commits import inserted_rows
from tidegate_server.engine.storage.formats import TableFormats
from tidegate_server.engine.storage.jvm import frame_of, is_command, java

_AFFECTED = "num_affected_rows"
_WRITTEN = "numOutputRows"


def execute(
    request: Execute,
    child: Child,
    operation: Operation,
    results: ResultStore,
    formats: TableFormats,
    changes: FileChanges,
) -> Executed:
    """Run the statement; commands run inside ``spark.sql`` and are never repeated.

    :param changes: counts the statement if it changes tables of files.
    :raises ServerError: MT_WRONG_KIND if it would change a materialized table; NOT_SUPPORTED if
        its tables cannot be inlined or pinned, or if it runs a text that is not constant;
        MT_SNAPSHOT_UNAVAILABLE if the pinned versions were removed; RESOURCE_NOT_FOUND;
        INVALID_READER; ACCESS_DENIED for what was not admitted.
    """
    reject_streams(request.sql)
    started = time.time_ns() // 1_000_000
    exact = request.pinned is None and not request.inlined
    with (
        child.overlay(request.settings),
        running_as(child.spark, request.user),
        enforcing(child.spark, request.admission, request.user, mark=True, exact=exact),
        report_missing_versions(request.pinned),
    ):
        surveyed = child.take_surveyed(request.plan_id, request.sql)
        if surveyed is not None:
            frame = frame_of(child.spark, surveyed)
        else:
            frame = _run_text(request, child, operation, formats, changes)
            require_planned(child.spark, frame)
        operation.check()
        catalog, schema = child.current()
        if not frame.columns:
            return Executed(
                result_id="",
                schema=Schema(),
                has_result_set=False,
                chunks=0,
                rows=0,
                current_catalog=catalog,
                current_schema=schema,
                modified_rows=_inserted_rows(child, frame, started),
            )
        with suspended(child.spark):  # the plan has passed; the files are the engine's own
            stored = results.store(frame, operation, request)
        return Executed(
            result_id=stored.result_id,
            schema=result_schema(frame),
            has_result_set=True,
            chunks=stored.chunks,
            rows=stored.rows,
            current_catalog=catalog,
            current_schema=schema,
            inline=stored.inline,
            modified_rows=_affected_rows(frame),
        )


def _run_text(
    request: Execute,
    child: Child,
    operation: Operation,
    formats: TableFormats,
    changes: FileChanges,
) -> DataFrame:
    """Analyze a statement and run it as far as Spark does so at once; return its frame."""
    text = drop_as_view(child.spark, expand_execute_immediate(child.spark, request.sql))
    if text != request.sql:
        reject_streams(text)
    check_resources(child.spark, text)
    guarded = guard(child.spark, text)
    changes_listings = changes_files(child.spark, text, guarded.targets)
    try:
        with (
            changes.count_change() if changes_listings else nullcontext(),
            reclaim_storage(child.spark, guarded.targets, operation.id),
            update_entries(child.spark, guarded.targets, request.user),
            protect_other_files(child.spark, guarded.targets),
            adapted_writes(child.spark) if guarded.targets else nullcontext(),
        ):
            expanded = replace(request, sql=text)
            return without_feed_if_reserved(
                child, text, lambda: _run_statement(expanded, child, formats)
            )
    finally:
        disown(child.spark, guarded.copies)


def _run_statement(request: Execute, child: Child, formats: TableFormats) -> DataFrame:
    """Return the statement's frame; a command has already run then."""
    if request.pinned is not None:
        return pin_versions(request, request.pinned, child, formats)
    if (created := show_create_table(child.spark, request.sql)) is not None:
        return created
    with inline_tables(request, child, formats.own) as sql:
        return without_state(with_schemas(child.spark, sql, child.spark.sql(sql)))


def _affected_rows(frame: DataFrame) -> int | None:
    """Return the row count that Delta's UPDATE, DELETE and MERGE report in their first column."""
    if frame.columns[0] != _AFFECTED or not is_command(frame):
        return None
    row = frame.first()
    return int(row[0]) if row is not None and row[0] is not None else None


def _inserted_rows(child: Child, frame: DataFrame, started: int) -> int | None:
    """Return how many rows an INSERT or CREATE TABLE AS wrote, if Spark counted them."""
    if not is_command(frame):
        return None
    command: Any = frame._jdf.queryExecution().executedPlan().commandPhysicalPlan()
    metrics = command.metrics()
    if metrics.contains(_WRITTEN):
        return int(metrics.apply(_WRITTEN).value())
    return inserted_rows(java(child.spark), frame._jdf.queryExecution().analyzed(), started)
