"""Commits a refresh, and verifies that its commit is in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidegate_server.core.faults import Point, pause_at
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.base import Written, fencing_error
from tidegate_server.engine.storage.content.expectations import find_expectation_error
from tidegate_server.engine.storage.delta.partitions import find_partition_error
from tidegate_server.engine.storage.delta.tables import DeltaTables
from tidegate_server.engine.storage.delta.write import write_result

logger = logging.getLogger(__name__)


def commit_and_verify(
    tables: DeltaTables, commit: Callable[[], object], order: RefreshOrder, snapshot: Any
) -> Written:
    """Commit, then look for the commit, since Delta silently skips an outdated epoch.

    :param snapshot: the table's newest one before the commit.
    :raises ServerError: MT_REFRESH_FENCED if a later epoch was committed, MT_PARTITION_VALUE if a
        partition value cannot be stored, MT_EXPECTATION_FAILED.
    """
    before = int(snapshot.version())
    pause_at(Point.BEFORE_COMMIT)
    try:
        commit()
        pause_at(Point.AFTER_COMMIT)
    except (PySparkException, Py4JJavaError) as failed:
        broken = find_expectation_error(failed, order) or find_partition_error(failed, order)
        if broken is not None:
            raise broken from failed
        done = _find_own(tables, order, before)
        if done is not None:
            logger.warning("%s was committed, then failed: %s", order.refresh_id, failed)
            return done
        last = tables.last_commit(order.name, order.table_id)
        if last is None or last.epoch < order.epoch:
            raise
        raise fencing_error(order, last) from failed
    done = _find_own(tables, order, before)
    if done is None:
        raise fencing_error(order, tables.last_commit(order.name, order.table_id))
    return done


def _find_own(tables: DeltaTables, order: RefreshOrder, before: int) -> Written | None:
    """Return the result of the order's own commit, if there is one after version ``before``."""
    for commit in tables.commits(order):
        if commit.version <= before:
            return None
        if commit.metadata.get("refresh_id") == order.refresh_id:
            return write_result(commit)
    return None
