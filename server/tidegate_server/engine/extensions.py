"""Adds to a Spark session what the sessions that are created from it share."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate_server.engine.gate.gate import install_gate
from tidegate_server.engine.jvm.block_locks import install_block_locks
from tidegate_server.engine.jvm.cancel_checks import install_cancel_checks
from tidegate_server.engine.jvm.code_size import bound_code_size
from tidegate_server.engine.query.connector_sinks import install_connector_sinks
from tidegate_server.engine.query.flink_functions import install_flink_functions
from tidegate_server.engine.query.large_values import refuse_large_values
from tidegate_server.engine.query.plan_size import refuse_large_plans
from tidegate_server.engine.query.table_readers import install_table_readers
from tidegate_server.engine.query.wide_writes import install_wide_writes
from tidegate_server.engine.session.canceled_plans import end_canceled_plans
from tidegate_server.engine.storage.delta.scans import install_delta_scans


def install_extensions(spark: SparkSession) -> None:
    """Install locks, functions, rules and the gate, in the order in which they are applied."""
    install_block_locks(spark)
    install_flink_functions(spark)
    install_table_readers(spark)
    install_gate(spark)
    refuse_large_plans(spark)
    refuse_large_values(spark)
    install_wide_writes(spark)
    install_delta_scans(spark)
    install_connector_sinks(spark)  # the gate sees the names in a statement first
    install_cancel_checks(spark)
    bound_code_size(spark)
    end_canceled_plans(spark)
