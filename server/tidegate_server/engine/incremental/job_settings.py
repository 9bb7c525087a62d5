"""Settings of Spark for the jobs of one refresh, by the size of what they process."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tidegate_server.engine.query.wide_writes import write_settings

_ADAPTIVE = "spark.sql.adaptive.enabled"
_PARTITIONS = "spark.sql.shuffle.partitions"
_PROJECTIONS = "spark.sql.codegen.factoryMode"

# With more, Spark should coalesce small ones.
_FEW_PARTITIONS = 16
# Up to this many, interpreting projections takes less time than compiling them: 5 microseconds a
# row of four columns that is written, most of them for the statistics of the files.
_FEW_ROWS = 30_000


def job_settings(
    spark: SparkSession, *, columns: int, rows: int, little_changed: bool, copied: int = 0
) -> Mapping[str, str]:
    """Return settings for the jobs of a refresh.

    Small jobs are spared the preparations that pay only for many rows. Replanning after each stage,
    and generating the code of projections again in each task, also in jobs over Delta's log, would
    be most of a small refresh's cost. Scans, filters, joins and most aggregates are compiled as a
    whole all the same, whatever they turn out to process.

    :param columns: the number of those of the table.
    :param rows: those of the stored tables that the jobs read, estimated; 0 if they read none.
    :param little_changed: whether few of them have changed since the last refresh, so that few rows
        are left after the scans.
    :param copied: the rows that may be written again unchanged, beside changed ones.
    """
    settings = dict(write_settings(spark, columns))
    if little_changed and int(spark.conf.get(_PARTITIONS) or 0) <= _FEW_PARTITIONS:
        settings[_ADAPTIVE] = "false"
    if (little_changed or 0 < rows <= _FEW_ROWS) and copied <= _FEW_ROWS:
        settings[_PROJECTIONS] = "NO_CODEGEN"
    return settings
