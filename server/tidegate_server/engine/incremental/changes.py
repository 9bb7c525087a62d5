"""The change of a source between two versions, as rows with a weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.core.model.runs import ChangeMethod
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.engine.storage.base import FoundChange, SourceFormat
from tidegate_server.engine.storage.exact import WEIGHT, quote_column, sum_weights

_AS_READ = frozenset({ChangeMethod.UNCHANGED, ChangeMethod.APPENDED})

__all__ = ["WEIGHT", "Change", "source_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of a source after version ``before`` up to ``after``."""

    source: Source
    before: int
    after: int
    base: int
    """The version to read for the old rows: the last one with the same rows as ``before``, since
    earlier ones may expire after a compaction."""
    method: ChangeMethod
    reason: str
    """Why the change is unknown; empty unless the method is WHOLE."""
    rows: int | None
    """Upper bound of the rows added and removed, if the commits record it."""
    guess: int | None
    """Estimate of ``rows`` from file sizes."""
    read: Callable[[Sequence[str]], DataFrame] | None
    """Returns some of the source's columns and ``__weight BIGINT``, never 0; None if the method is
    WHOLE.

    Each row occurs once, unless the rows were appended or a column cannot be compared.
    """
    release: Callable[[], None] | None = None
    """Releases what ``read`` needs, when its frame is not used any more."""


def source_change(
    session: SparkSession, format: SourceFormat, source: Source, before: int, after: int
) -> Change:
    """Return the change of ``source``; starts no Spark job.

    Rows are compared exactly: NULL equals NULL and NaN equals NaN, but 0.0 and -0.0 differ, as
    they do when a query prints them.
    """
    found = _find_change(session, format, source, before, after)
    return Change(
        source=source,
        before=before,
        after=after,
        base=before if found.base is None else found.base,
        method=found.method,
        reason=found.reason,
        rows=found.rows,
        guess=found.guess,
        read=_reader(session, format, source, after, found),
        release=found.release,
    )


def _find_change(
    session: SparkSession, format: SourceFormat, source: Source, before: int, after: int
) -> FoundChange:
    if source.kind is not SourceKind.VERSIONED:
        return FoundChange(method=ChangeMethod.WHOLE, reason="SOURCE_WITHOUT_VERSIONS")
    return format.change(session, source.name, source.table_id, before, after)


def _reader(
    session: SparkSession, format: SourceFormat, source: Source, after: int, found: FoundChange
) -> Callable[[Sequence[str]], DataFrame] | None:
    def nothing() -> DataFrame:
        none = format.rows(session, source.name, after).limit(0)
        return none.withColumn(WEIGHT, F.lit(1).cast("bigint"))

    read = nothing if found.method is ChangeMethod.UNCHANGED else found.read
    if read is None:
        return None

    def read_columns(names: Sequence[str]) -> DataFrame:
        rows = read().selectExpr(*map(quote_column, (*names, WEIGHT)))
        return rows if found.method in _AS_READ else sum_weights(rows)

    return read_columns
