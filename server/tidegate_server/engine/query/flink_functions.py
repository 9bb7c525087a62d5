"""The functions that translated Flink SQL calls (``FlinkFunctions.java``).

They are built-in functions: a temporary one could not be used in views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java, java_source, scala_object

FUNCTIONS: Final[Mapping[str, tuple[int, int, str]]] = {
    "flink_avg": (2, 2, "(sum, count) - the average with the type of Flink's AVG"),
    "flink_ceil": (1, 2, "(x[, unit]) - rounds a number or a time up as Flink does"),
    "flink_cumulate_ends": (4, 4, "(time, step, max, offset) - the ends of a time's windows"),
    "flink_date_format": (2, 2, "(time, pattern) - formats a time without changing its zone"),
    "flink_divide": (2, 2, "(a, b) - the quotient with the type of Flink's division"),
    "flink_floor": (1, 2, "(x[, unit]) - rounds a number or a time down as Flink does"),
    "flink_hop_starts": (4, 4, "(time, slide, size, offset) - the starts of a time's windows"),
    "flink_precision": (2, 2, "(time, digits) - drops further fractional digits of a time"),
    "flink_string": (1, 1, "(x) - the text of Flink's CAST to STRING"),
    "flink_substring": (2, 3, "(text, start[, length]) - Flink's SUBSTRING"),
    "flink_timestampadd": (3, 3, "(unit, count, time) - Flink's TIMESTAMPADD"),
    "flink_timestampdiff": (3, 3, "(unit, from, to) - Flink's TIMESTAMPDIFF"),
    "flink_to_timestamp": (2, 2, "(text, pattern) - Flink's TO_TIMESTAMP"),
    "flink_truncate": (2, 2, "(x, digits) - a number without further digits"),
    "flink_unnest": (1, 1, "(collection) - the rows of an array or a map"),
    "flink_window_end": (3, 3, "(time, size, offset) - the end of a time's window"),
    "flink_window_start": (3, 3, "(time, size, offset) - the start of a time's window"),
    "flink_window_time": (2, 2, "(time, end) - the last millisecond of a window"),
}
"""The least and the greatest number of arguments of each, and its description."""


def install_flink_functions(spark: SparkSession) -> None:
    """Make the functions known to all sessions that are created from now on."""
    source = java_source(__package__, "FlinkFunctions")
    functions = compiled_instance(spark, "tidegate.FlinkFunctions", source)
    jvm = java(spark)
    builtin = scala_object(jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry").builtin()
    for name, (least, most, usage) in FUNCTIONS.items():
        builtin.registerFunction(
            jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name),
            functions.information(name, f"_FUNC_{usage}."),
            functions.builder(name, least, most),
        )
