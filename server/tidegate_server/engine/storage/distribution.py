"""DISTRIBUTED BY: in how many files a refresh writes rows, and which rows share one."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame

from tidegate_server.core.model.clauses import Distribution
from tidegate_server.engine.storage.exact import column_named


def distribute(rows: DataFrame, distribution: Distribution | None) -> DataFrame:
    """Return the rows repartitioned so that each partition is written as one file.

    An empty partition gives no file. Bounds of RANGE are found in a sample, for which the rows are
    computed once more: it has to come before anything that counts them.
    """
    if distribution is None:
        return rows
    # The stubs take a number or columns; with neither, Spark decides on the number.
    arguments: list[int | Column] = [column_named(name) for name in distribution.columns]
    if distribution.buckets is not None:
        arguments.insert(0, distribution.buckets)
    if distribution.kind == "RANGE":
        return rows.repartitionByRange(*arguments)
    return rows.repartition(*arguments)


def redistribute_hashed(rows: DataFrame, distribution: Distribution | None) -> DataFrame | None:
    """Return the rows of files that are rewritten in part, as :func:`distribute`.

    None where that would tear files apart: rows of one hash are in one file, whatever changes
    beside them, while bounds of ranges and turns would be others for each change.
    """
    hashed = distribution is not None and distribution.columns and distribution.kind != "RANGE"
    return distribute(rows, distribution) if hashed else None
