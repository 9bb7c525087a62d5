"""Verifies that a version of a materialized table equals its query at one vector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import Verified
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.refresh.maintenance import RowPart
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.definition.analyze import analyzed_plan
from tidegate_server.engine.gate.gate import enforcing
from tidegate_server.engine.incremental.analysis.shape import Node
from tidegate_server.engine.incremental.query import read_query
from tidegate_server.engine.query.determinism import Stability, time_dependent, unstable_parts
from tidegate_server.engine.query.logical_time import bind_time
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.refresh.source_drift import recorded_columns
from tidegate_server.engine.session.operations import Operation
from tidegate_server.engine.session.sessions import apply_settings
from tidegate_server.engine.storage.base import TableFormat, VersionGoneError
from tidegate_server.engine.storage.commit_record import RecordedRefresh
from tidegate_server.engine.storage.content.expectations import exclude_dropped
from tidegate_server.engine.storage.content.region import immutable_condition, mutable_rows
from tidegate_server.engine.storage.exact import (
    WEIGHT,
    column_named,
    comparable,
    has_exact_values,
    sum_weights,
)
from tidegate_server.engine.storage.retention import is_gone
from tidegate_server.engine.storage.sources import looked_up_once

TOLERANCE = 1e-9
"""Largest relative difference at which floating-point numbers are equal."""

_SAMPLED = 5
_PLACE = "__place"
_SIDE = "__side"
_MATCHED = "__matched"


def verify(
    order: RefreshOrder,
    version: int | None,
    spark: SparkSession,
    format: TableFormat,
    operation: Operation,
    *,
    part: RowPart | None = None,
) -> Verified:
    """Recompute the query on the vector recorded by ``version``, and compare.

    :param order: supplies the definition; its epoch is not used.
    :param version: the newest one if None.
    :param part: the rows that are computed and compared; None for all.
    :raises ServerError: MT_VERIFY_IMPOSSIBLE if the query or its sources have changed since that
        version was computed.
    """
    state = format.find(order.name)
    if state is None:
        raise error(Code.MT_DATA_LOST, table=str(order.name), reason="its table does not exist")
    chosen = state.newest if version is None else version
    commit = format.last_commit(order.name, order.table_id, at=chosen)
    problem = _impossible(order, chosen, state.newest, commit)
    if problem is not None or commit is None:
        raise _verify_impossible(order, chosen, problem or "it holds no refresh")
    session = spark.newSession()
    apply_settings(session, order.settings)
    # Rows immutable at that time need not match the query.
    frozen_at = commit.record.frozen_at
    try:
        tables = Tables(
            session,
            format,
            recorded=recorded_columns(order),
            wanted=commit.record.vector,
            fingerprinted=True,
        )
        with looked_up_once(session, order.tables):
            wanted, shape = _recompute(order, commit, chosen, tables)
            snapshots = tables.snapshots()
        operation.check()
        stored = session.sql(f"SELECT * FROM {format.version_sql(order.name, chosen)}")
        stored = mutable_rows(stored, order, frozen_at)
        if part is not None:
            belongs = _belongs(part, _telling(shape, order, wanted))
            wanted, stored = wanted.where(belongs), stored.where(belongs)
        missing, extra, sample = compare(wanted, stored)
        if (missing or extra) and tables.changed_sources():
            raise _verify_impossible(
                order, chosen, "files of its sources changed while they were read"
            )
    except (PySparkException, Py4JJavaError, VersionGoneError) as failed:
        if not is_gone(failed):
            raise
        raise _verify_impossible(
            order, chosen, "a version it needs cannot be read any more"
        ) from failed
    return Verified(
        version=chosen,
        epoch=commit.epoch,
        missing_rows=missing,
        extra_rows=extra,
        sample=json.dumps(sample) if sample else "",
        left_out=immutable_condition(order, frozen_at),
        snapshots={
            str(source.name): snapshot
            for source in tables.sources.values()
            if (snapshot := snapshots.get(source.table_id)) is not None
        },
    )


def compare(wanted: DataFrame, stored: DataFrame) -> tuple[int, int, list[Mapping[str, object]]]:
    """Return how many rows of each frame the other lacks, and some of them.

    Both have the same columns. Values are compared exactly, then differing floating-point values
    with a relative tolerance, since their sums depend on the order.
    """
    sides = [
        _textual(frame).withColumn(WEIGHT, F.lit(sign).cast("bigint"))
        for frame, sign in ((wanted, 1), (stored, -1))
    ]
    differing = sum_weights(sides[0].unionAll(sides[1])).localCheckpoint(eager=False)
    counts = _counts(differing)
    if counts[0] and counts[1] and _floating(differing):
        differing = _unpaired_rows(differing).localCheckpoint(eager=False)
        counts = _counts(differing)
    sample = [json.loads(row[0]) for row in differing.select(_row_json(differing)).take(_SAMPLED)]
    return *counts, sample


def _impossible(
    order: RefreshOrder, version: int, newest: int, commit: RecordedRefresh | None
) -> str | None:
    if version > newest:
        return f"its newest version is {newest}"
    if commit is None:
        return "no refresh is recorded at or before it"
    if commit.partial:
        return "only some of its rows were refreshed"
    plain = [s for s in order.sources if s.kind is not SourceKind.VERSIONED]
    unversioned = [
        str(source.name) for source in plain if source.table_id not in commit.record.vector
    ]
    if unversioned:
        return f"{', '.join(unversioned)} keeps no versions"
    if commit.record.definition_version != order.definition_version:
        return "it was computed by another definition query"
    return None


def _recompute(
    order: RefreshOrder,
    commit: RecordedRefresh,
    version: int,
    tables: Tables,
) -> tuple[DataFrame, Node]:
    """Return the rows of the query, and its shape."""
    session, format = tables.spark, tables.format
    order = replace(order, logical_time=commit.record.logical_time)
    text = tables.pin(order.expanded_query, DEFAULT_CATALOG, DEFAULT_SCHEMA)
    now = tables.vector()
    changed = [
        str(source.name)
        for source in order.sources
        if source.kind is SourceKind.PLAIN
        and now.get(source.table_id) != commit.record.vector[source.table_id]
    ]
    if changed:
        raise _verify_impossible(order, version, f"files of {', '.join(changed)} are others by now")
    if dict(now) != dict(commit.record.vector):
        reason = "its sources are other tables by now"
        if now.keys() == commit.record.vector.keys():
            reason = "its sources have gone back to earlier versions"
        raise _verify_impossible(order, version, reason)
    others = tables.other_histories(commit.record)
    if others:
        raise _verify_impossible(order, version, f"by now, {'; '.join(others)}")
    with enforcing(session, order.admission, order.executor):
        frame = session.sql(text)
    found = unstable_parts(analyzed_plan(frame))
    if any(name.startswith(Stability.VOLATILE.value) for name in found):
        shown = ", ".join(time_dependent(found))
        raise _verify_impossible(
            order, version, f"its query reads {shown}, another value each time"
        )
    query = read_query(order, session, tables, text, frame)
    if time_dependent(found):
        # The refresh time is recorded; such queries have no fingerprint.
        frame = bind_time(frame, order.logical_time)
    elif not query.stable:
        raise _verify_impossible(
            order, version, "its query is not known to give the same rows again"
        )
    if commit.record.fingerprint not in (None, query.fingerprint):
        raise _verify_impossible(
            order, version, "a view, function or setting of its query has changed"
        )
    return exclude_dropped(
        mutable_rows(format.fit_columns(order, frame), order, commit.record.frozen_at), order
    ), query.shape


def _telling(shape: Node, order: RefreshOrder, rows: DataFrame) -> list[str]:
    """Return the columns whose hash assigns rows to parts.

    Keys of the query's last aggregate or window are best: Spark then computes only the rows of the
    part. Inexact numbers are excluded: two that are close enough to be equal would be in different
    parts.
    """
    exact = [f.name for f in rows.schema.fields if has_exact_values(f.dataType)]
    keyed = next((node.columns for node in shape.nodes() if node.columns), ())
    return [order.columns[index] for index in keyed] or exact


def _belongs(part: RowPart, columns: Sequence[str]) -> Column:
    if not columns:
        return F.lit(True)
    place = F.pmod(F.xxhash64(*map(column_named, columns)), F.lit(part.of))
    return place == part.number


def _verify_impossible(order: RefreshOrder, version: int, reason: str) -> ServerError:
    return error(
        Code.MT_VERIFY_IMPOSSIBLE,
        table=str(order.name),
        version=version,
        reason=reason,
        hint="Versions made by the present definition can be verified as long as VACUUM and the "
        "log's retention leave their sources' versions readable.",
    )


def _textual(frame: DataFrame) -> DataFrame:
    """Convert incomparable columns to JSON."""
    return frame.select(
        *(
            column_named(f.name)
            if comparable(f.dataType)
            else F.to_json(column_named(f.name)).alias(f.name)
            for f in frame.schema.fields
        )
    )


def _counts(differing: DataFrame) -> tuple[int, int]:
    weight = F.col(WEIGHT)
    row = differing.agg(
        F.sum(F.when(weight > 0, weight).otherwise(0)),
        F.sum(F.when(weight < 0, -weight).otherwise(0)),
    ).first()
    return (0, 0) if row is None else (int(row[0] or 0), int(row[1] or 0))


def _unpaired_rows(differing: DataFrame) -> DataFrame:
    """Drop pairs of a missing and an extra row that differ in last digits only.

    Among rows with equal other columns, both sides are sorted by their numbers and paired.
    """
    numbers = _floating(differing)
    others = [column_named(f.name) for f in _fields(differing) if f.name not in numbers]
    copies = F.sequence(F.lit(1), F.abs(F.col(WEIGHT)).cast("int"))
    rows = differing.withColumn(_PLACE, F.explode(copies))
    signed = rows.withColumn(_SIDE, F.signum(WEIGHT).cast("bigint")).drop(WEIGHT)
    ordered = [column_named(name) for name in numbers]
    place = Window.partitionBy(_SIDE, *others).orderBy(*ordered)
    placed = signed.withColumn(_PLACE, F.row_number().over(place))
    pair = Window.partitionBy(_PLACE, *others)
    both = F.count("*").over(pair) == 2
    near = (_near(F.min(c).over(pair), F.max(c).over(pair), F.count(c).over(pair)) for c in ordered)
    single = placed.withColumn(_MATCHED, reduce(and_, near, both)).where(~F.col(_MATCHED))
    return single.select(
        *(column_named(f.name) for f in _fields(differing)), F.col(_SIDE).alias(WEIGHT)
    )


def _near(low: Column, high: Column, known: Column) -> Column:
    """Say whether two numbers are equal up to the tolerance; NaN is the largest."""
    size = F.greatest(F.abs(low), F.abs(high))
    close = (size < float("inf")) & (F.abs(high - low) <= TOLERANCE * size)
    return (known == 0) | ((known == 2) & ((low == high) | close))


def _floating(frame: DataFrame) -> list[str]:
    kinds = (T.FloatType, T.DoubleType)
    return [f.name for f in _fields(frame) if isinstance(f.dataType, kinds)]


def _fields(frame: DataFrame) -> list[T.StructField]:
    return [f for f in frame.schema.fields if f.name != WEIGHT]


def _row_json(differing: DataFrame) -> Column:
    row = F.struct(*(column_named(f.name) for f in _fields(differing)))
    side = F.when(F.col(WEIGHT) > 0, "missing").otherwise("extra")
    return F.to_json(
        F.struct(side.alias("side"), F.abs(F.col(WEIGHT)).alias("times"), row.alias("row")),
        {"ignoreNullFields": "false"},
    )
