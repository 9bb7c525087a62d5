"""The planning of canceled statements ends."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegate_server.engine.session.operations import Operations

pytestmark = pytest.mark.spark

_CANCELED = "CancellationException"


@pytest.fixture
def operations(spark_root: SparkSession) -> Operations:
    return Operations(spark_root)


@pytest.fixture
def session(spark_root: SparkSession) -> SparkSession:
    return spark_root.newSession()


def test_the_analysis_ends(operations: Operations, session: SparkSession) -> None:
    operation = operations.begin("analysis")
    with operations.bind_thread(operation):
        operations.cancel(operation.id)
        with pytest.raises(Py4JJavaError, match=_CANCELED):
            session.sql("SELECT id + 1 FROM range(3)")


def test_the_optimization_ends(operations: Operations, session: SparkSession) -> None:
    operation = operations.begin("optimization")
    with operations.bind_thread(operation):
        frame: Any = session.sql("SELECT id + 1 FROM range(3)")
        operations.cancel(operation.id)
        with pytest.raises(Py4JJavaError, match=_CANCELED):
            frame._jdf.queryExecution().optimizedPlan()


def test_the_planning_ends(operations: Operations, session: SparkSession) -> None:
    operation = operations.begin("planning")
    with operations.bind_thread(operation):
        frame: Any = session.sql("SELECT id + 1 FROM range(3)")
        execution = frame._jdf.queryExecution()
        execution.optimizedPlan()
        operations.cancel(operation.id)
        with pytest.raises(Py4JJavaError, match=_CANCELED):
            execution.sparkPlan()


def test_the_next_operation_is_planned(operations: Operations, session: SparkSession) -> None:
    first = operations.begin("canceled")
    with operations.bind_thread(first):
        operations.cancel(first.id)
    operations.interrupt(first)  # as one that comes too late
    again = operations.begin("canceled")
    with operations.bind_thread(again):
        assert len(session.sql("SELECT id + 1 FROM range(3)").columns) == 1
