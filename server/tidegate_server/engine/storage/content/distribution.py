"""DISTRIBUTED BY: into how many files a refresh writes rows, and which rows share a file."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame

from tidegate_server.core.model.clauses import Distribution
from tidegate_server.engine.storage.exact import column_named


def distribute(rows: DataFrame, distribution: Distribution | None) -> DataFrame:
    """Return the rows repartitioned so that each partition is written as one file.

    Empty partitions produce no file. RANGE computes the rows once more to sample its bounds, so
    call this before adding anything that counts rows.
    """
    if distribution is None:
        return rows
    # With neither a number nor columns, Spark chooses the number.
    arguments: list[int | Column] = [column_named(name) for name in distribution.columns]
    if distribution.buckets is not None:
        arguments.insert(0, distribution.buckets)
    if distribution.kind == "RANGE":
        return rows.repartitionByRange(*arguments)
    return rows.repartition(*arguments)


def redistribute_hashed(rows: DataFrame, distribution: Distribution | None) -> DataFrame | None:
    """Repartition the rows of rewritten files as :func:`distribute` does, if by hash.

    None otherwise: a row's hash partition is always the same, while range bounds and round-robin
    partitions would differ in each commit.
    """
    hashed = distribution is not None and distribution.columns and distribution.kind != "RANGE"
    return distribute(rows, distribution) if hashed else None
