"""VERIFY MATERIALIZED TABLE: its content against its definition query."""

from __future__ import annotations

import logging

import pyarrow as pa

from tidegate_server.core.messages.requests import VerifyTable
from tidegate_server.core.model.result import Result, RowsResult
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.core.sql.statements import VerifyMaterializedTable
from tidegate_server.gateway.authorization.admission import admit_order
from tidegate_server.gateway.command.lifecycle import wrong_state
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import resolve
from tidegate_server.gateway.runs.orders import refresh_order

log = logging.getLogger(__name__)

_COLUMNS = (
    ("table", "string", pa.string()),
    ("version", "bigint", pa.int64()),
    ("epoch", "bigint", pa.int64()),
    ("equal", "boolean", pa.bool_()),
    ("missing_rows", "bigint", pa.int64()),
    ("extra_rows", "bigint", pa.int64()),
    ("sample", "string", pa.string()),
    ("left_out", "string", pa.string()),
)
_SCHEMA = Schema(tuple(Column(name=name, type=type) for name, type, _ in _COLUMNS))


def verify(statement: VerifyMaterializedTable, context: Context) -> Result:
    """Recompute the query on the vector that a version recorded, and compare.

    Returns one row. Changes nothing and takes no lease.

    :raises ServerError: MT_STATE while the table is INITIALIZING, MT_VERIFY_IMPOSSIBLE if the
        definition or a source is no longer the one the version was computed from.
    """
    table = resolve.materialized_table(statement.name, context)
    if table.state.status is RefreshStatus.INITIALIZING:
        raise wrong_state(table, "VERIFY", "ACTIVATED or SUSPENDED")
    request = RefreshRequest(
        table_id=table.id, trigger=Trigger.MANUAL, requested_by=context.session.user
    )
    order = refresh_order(
        table,
        request,
        refresh_id=context.operation_id,
        epoch=0,
        asked_at=context.services.clock.now(),
    )
    order = admit_order(order, context.services, record=context.record)
    context.log(f"Verifying {table.name}")
    answer = context.services.engine.call(VerifyTable(order=order, version=statement.version))
    for source, snapshot in answer.snapshots.items():
        context.log(f"Compared with snapshot {snapshot} of {source}")
    if answer.left_out is not None:
        context.note(f"Immutable rows were not compared: those where {answer.left_out}")
    if not answer.equal:
        log.warning("%s differs from its query: %s", table.name, answer)
    row = (
        str(table.name),
        answer.version,
        answer.epoch,
        answer.equal,
        answer.missing_rows,
        answer.extra_rows,
        answer.sample or None,
        answer.left_out,
    )
    return RowsResult(_SCHEMA, [row], types=tuple(arrow for _, _, arrow in _COLUMNS))
