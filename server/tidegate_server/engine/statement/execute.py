"""Runs a statement of a session exactly once and describes what came of it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from tidegate_server.core.messages.answers import Executed
from tidegate_server.core.messages.requests import Execute
from tidegate_server.core.model.types import Schema
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.results.store import ResultStore
from tidegate_server.engine.session.file_changes import FileChanges
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.statement.change_feed import without_feed_if_reserved
from tidegate_server.engine.statement.changed_files import changes_files
from tidegate_server.engine.statement.drop import only_own_files
from tidegate_server.engine.statement.execute_immediate import written_out
from tidegate_server.engine.statement.guard import disown, guard
from tidegate_server.engine.statement.inline import inlined
from tidegate_server.engine.statement.pin import pinned, readable
from tidegate_server.engine.statement.registered import registered
from tidegate_server.engine.statement.resources import check_resources
from tidegate_server.engine.statement.show_create import shown_create
from tidegate_server.engine.statement.show_extended import with_schemas
from tidegate_server.engine.statement.unfinished import taken_back
from tidegate_server.engine.storage.base import TableFormat
from tidegate_server.engine.storage.delta.commits import inserted_rows
from tidegate_server.engine.storage.jvm import java, kind

_AFFECTED = "num_affected_rows"
_WRITTEN = "numOutputRows"


def execute(
    request: Execute,
    child: Child,
    operation: Operation,
    results: ResultStore,
    format: TableFormat,
    changes: FileChanges,
) -> Executed:
    """Run the statement; commands run inside ``spark.sql`` and are never run again.

    :param changes: where it counts if it changes tables of files.
    :raises ServerError: MT_WRONG_KIND if it would change a materialized table, NOT_SUPPORTED if
        tables cannot be replaced or given versions in it, or if it is not known beforehand,
        MT_SNAPSHOT_UNAVAILABLE if those versions are gone, RESOURCE_NOT_FOUND.
    """
    started = time.time_ns() // 1_000_000
    with child.overlay(request.settings), readable(request.pinned):
        text = written_out(child.spark, request.sql)
        check_resources(child.spark, text)
        guarded = guard(child.spark, text)
        counted = changes_files(child.spark, text, guarded.targets)
        try:
            with (
                changes.count_change() if counted else nullcontext(),
                taken_back(child.spark, guarded.targets, operation.id),
                registered(child.spark, guarded.targets, request.user),
                only_own_files(child.spark, guarded.targets),
            ):
                written = replace(request, sql=text)
                frame = without_feed_if_reserved(
                    child, text, lambda: _analyzed(written, child, format)
                )
        finally:
            disown(child.spark, guarded.copies)
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


def _analyzed(request: Execute, child: Child, format: TableFormat) -> DataFrame:
    """Return what the statement gives; a command has run by then."""
    if request.pinned is not None:
        return pinned(request, request.pinned, child, format)
    if (created := shown_create(child.spark, request.sql)) is not None:
        return created
    with inlined(request, child, format) as sql:
        return with_schemas(child.spark, sql, child.spark.sql(sql))


def _affected_rows(frame: DataFrame) -> int | None:
    """Return what Delta's UPDATE, DELETE and MERGE answer as their first column."""
    if frame.columns[0] != _AFFECTED or not _is_command(frame):
        return None
    row = frame.first()
    return int(row[0]) if row is not None and row[0] is not None else None


def _inserted_rows(child: Child, frame: DataFrame, started: int) -> int | None:
    """Return how many rows an INSERT or CREATE TABLE AS wrote, when Spark has counted them."""
    if not _is_command(frame):
        return None
    command: Any = frame._jdf.queryExecution().executedPlan().commandPhysicalPlan()
    metrics = command.metrics()
    if metrics.contains(_WRITTEN):
        return int(metrics.apply(_WRITTEN).value())
    return inserted_rows(java(child.spark), frame._jdf.queryExecution().analyzed(), started)


def _is_command(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().executedPlan()
    return kind(plan) == "CommandResultExec"
