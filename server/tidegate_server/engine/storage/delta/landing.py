"""The commit of a refresh: made, then found again, or refused because a later epoch was faster."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import Written
from tidegate_server.engine.storage.delta.partitions import lost_partition
from tidegate_server.engine.storage.delta.tables import DeltaTables
from tidegate_server.engine.storage.delta.write import written
from tidegate_server.engine.storage.expectations import broken_expectation

logger = logging.getLogger(__name__)


def landed(
    tables: DeltaTables, commit: Callable[[], object], order: RefreshOrder, snapshot: Any
) -> Written:
    """Commit, then find our commit: Delta skips an outdated epoch without a word.

    :param snapshot: the table's newest one before.
    :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed, MT_PARTITION_VALUE if a
        partition's value cannot be stored, or what an expectation says of the rows.
    """
    before = int(snapshot.version())
    pause_at(Point.BEFORE_COMMIT)
    try:
        commit()
        pause_at(Point.AFTER_COMMIT)
    except (PySparkException, Py4JJavaError) as failed:
        broken = broken_expectation(failed, order) or lost_partition(failed, order)
        if broken is not None:
            raise broken from failed
        done = _own(tables, order, before)
        if done is not None:
            logger.warning("%s was committed, then %s", order.refresh_id, failed)
            return done
        last = tables.last_commit(order.name, order.table_id)
        if last is None or last.epoch < order.epoch:
            raise
        raise fenced(tables, order) from failed
    done = _own(tables, order, before)
    if done is None:
        raise fenced(tables, order)
    return done


def fenced(tables: DeltaTables, order: RefreshOrder) -> ServerError:
    """Return the error of a refresh that another one, of a later epoch, has overtaken."""
    last = tables.last_commit(order.name, order.table_id)
    return error(
        Code.MT_REFRESH_FENCED,
        epoch=order.epoch,
        table=str(order.name),
        current=last.epoch if last is not None else "unknown",
    )


def _own(tables: DeltaTables, order: RefreshOrder, before: int) -> Written | None:
    """Return what the order's own commit wrote, if it is among those after a version."""
    for commit in tables.commits(order):
        if commit.version <= before:
            return None
        if commit.metadata.get("refresh_id") == order.refresh_id:
            return written(commit)
    return None
