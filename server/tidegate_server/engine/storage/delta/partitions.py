"""Rejects rows whose partition values a Delta table would not return unchanged.

Delta stores the value of a partition as text, made from the name of a directory. Some values have
no such text, or share it with others. The check is part of the plan that is written, so it needs no
Spark job of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import quote_identifier, visible_name
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.engine.storage.content.expectations import messages
from tidegate_server.engine.storage.exact import column_named
from tidegate_server.engine.storage.jvm import items, java

_MARK = "tidegate partition value"
_RAISED = re.compile(rf"{_MARK} (\w+): (\{{.*\}})")
_NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
# Characters that Spark writes as %XX in the name of a partition's directory.
_ESCAPED = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\{[]^\x7f"
_NOT_ESCAPED = f"[^{re.escape(_ESCAPED)}]"
_WORD = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# Maximum bytes of a directory's name on nearly all file systems.
_LONGEST = 255
_SHOWN = 100
"""Maximum characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """Why a value cannot be stored."""

    reason: str
    hint: str


_LOSSES: Mapping[str, _Loss] = {
    "EMPTY": _Loss(
        "the empty string is stored as NULL",
        "In the query write nullif({name}, '') for NULL, coalesce(nullif({name}, ''), 'none') for "
        "another word, or partition by another column.",
    ),
    "NULL_NAME": _Loss(
        f"{_NULL_NAME} is how NULL is stored",
        f"In the query write nullif({{name}}, '{_NULL_NAME}') for NULL, or partition by another "
        "column.",
    ),
    "NUL": _Loss(
        "the name of a directory cannot contain the character U+0000",
        "In the query write replace({name}, char(0), ''), or partition by another column.",
    ),
    "ENCODING": _Loss(
        "it is not valid UTF-8",
        "In the query write make_valid_utf8({name}), or partition by another column.",
    ),
    "LENGTH": _Loss(
        f"the name of a partition's directory is limited to {_LONGEST} bytes",
        "Partition by a shorter value, for example left({name}, 50) or sha2({name}, 256), or by "
        "another column.",
    ),
    "MOMENT": _Loss(
        "it is stored as local time of the session's time zone, which here means another time",
        "Partition by CAST({name} AS DATE) or another column, or create the table in a session "
        "with SET TIME ZONE 'UTC'.",
    ),
}


def check_partitions(rows: DataFrame, snapshot: Any, only: Column | None = None) -> DataFrame:
    """Return rows that raise when they are computed if a partition value would be lost.

    :param rows: fitted, after all filters, since rows removed later would be checked too.
    :param snapshot: of the table they are written to.
    :param only: the condition for rows to check; all by default.
    """
    metadata = snapshot.metadata()
    if metadata.partitionColumns().isEmpty():
        return rows
    keys = {str(name).lower() for name in items(metadata.partitionColumns())}
    directories = not _has_random_places(metadata.configuration())

    def check_column(field: T.StructField) -> Column:
        if field.name.lower() not in keys:
            return column_named(field.name)
        losses = _losses(field, rows.sparkSession, directories=directories)
        return _raise_if_lost(field, losses, only)

    return rows.select(*map(check_column, rows.schema.fields))


def find_partition_error(failed: Exception, order: RefreshOrder) -> ServerError | None:
    """Return the error if a Spark job failed because of :func:`check_partitions`."""
    for message in messages(failed):
        found = _RAISED.search(message)
        if found is None:
            continue
        loss, row = _LOSSES[found[1]], json.loads(found[2])
        ((name, value),) = row.items()
        return error(
            Code.MT_PARTITION_VALUE,
            table=visible_name(order.name),
            name=name,
            value=f"'{json.dumps(value)[1:-1]}'",
            reason=loss.reason,
            hint=loss.hint.format(name=_name_sql(name)),
        )
    return None


def _raise_if_lost(
    field: T.StructField, losses: Iterable[tuple[str, Column]], only: Column | None
) -> Column:
    """Return a column that raises while it is computed: Spark could push a filter that raises below
    a join, where it would see rows that the query does not produce."""
    column = column_named(field.name)
    value = column
    for kind, lost in losses:
        shown = F.substring(column.cast("string"), 1, _SHOWN).alias(field.name)
        message = F.concat(F.lit(f"{_MARK} {kind}: "), F.to_json(F.struct(shown)))
        condition = lost if only is None else only & lost
        value = F.when(condition, F.raise_error(message).cast(field.dataType)).otherwise(value)
    return value.alias(field.name)


def _losses(
    field: T.StructField, session: SparkSession, *, directories: bool
) -> Iterator[tuple[str, Column]]:
    """Yield each loss that is possible for a column with its condition, the most specific last.

    :param directories: whether values become names of directories.
    """
    column = column_named(field.name)
    match field.dataType:
        case T.StringType():
            if directories:
                yield "LENGTH", _too_long(field.name)
                yield "NUL", column.contains("\0")
            yield "ENCODING", ~F.is_valid_utf8(column)
            yield "NULL_NAME", column == _NULL_NAME
            yield "EMPTY", column == ""
        case T.TimestampType():
            # Delta reads a year before 0 as one after it.
            lost = F.year(column) < 0
            if not _has_unique_times(session):
                lost |= ~column.eqNullSafe(column.cast("string").cast("timestamp"))
            yield "MOMENT", lost


def _too_long(name: str) -> Column:
    room = _LONGEST - len(_escape(name).encode()) - len("=")
    column = column_named(name)
    bytes_ = F.octet_length(column)
    escapes = F.octet_length(F.regexp_replace(column, _NOT_ESCAPED, ""))
    return (bytes_ > room // 3) & (bytes_ + 2 * escapes > room)


def _escape(name: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in name)


def _has_unique_times(session: SparkSession) -> bool:
    """Say whether local times of the session's time zone are unique, without clock changes."""
    zone = session.conf.get("spark.sql.session.timeZone")
    times = java(session).org.apache.spark.sql.catalyst.util.DateTimeUtils
    return bool(times.getZoneId(zone).getRules().isFixedOffset())


def _has_random_places(configuration: Any) -> bool:
    """Say whether a table's files are in directories not named after partitions."""
    mapped = _option(configuration, "delta.columnMapping.mode") in ("name", "id")
    return mapped or _option(configuration, "delta.randomizeFilePrefixes") == "true"


def _option(configuration: Any, key: str) -> str:
    found = configuration.get(key)
    return str(found.get()).lower() if found.isDefined() else ""


def _name_sql(name: str) -> str:
    """Return a column's name for a query, quoted if necessary."""
    return name if _WORD.fullmatch(name) else quote_identifier(name)
