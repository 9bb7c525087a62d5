"""Flink's settings and table options that have no effect here, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate_server.core.config import SCHEDULER_OPTIONS

FLINKS_PREFIXES = (
    "kubernetes.",
    "yarn.",
    "pipeline.",
    "parallelism.default",
    "sql-client.",
    "sql-gateway.",
    "state.backend",
    "state.checkpoint",
    "state.savepoint",
    "restart-strategy",
    "taskmanager.",
    "jobmanager.",
)
"""Prefixes of Flink's settings that are neither Tidegate's nor Spark's."""

SERVERS_OWN = "it can only be set in the server's configuration"

_PLACE = "engine.master defines where the engine runs"
_COMMITS = "each commit of a table records the versions of all its sources"
_NO_JOB = "there are no Flink jobs here; SHOW REFRESH HISTORY lists the refreshes"
_RETRIES = "use materialized-table.refresh.retries"
_PLANNER = "Spark plans the queries; its settings begin with spark.sql."
_SETTINGS: tuple[tuple[str, str], ...] = (
    (SCHEDULER_OPTIONS, SERVERS_OWN),
    ("table.catalog-store.", SERVERS_OWN),
    ("table.materialized-table.", SERVERS_OWN),
    ("table.", _PLANNER),
    ("kubernetes.", _PLACE),
    ("yarn.", _PLACE),
    ("taskmanager.", _PLACE),
    ("jobmanager.", _PLACE),
    ("parallelism.default", "use spark.sql.shuffle.partitions"),
    ("pipeline.max-parallelism", "use spark.sql.shuffle.partitions"),
    ("pipeline.", _NO_JOB),
    ("sql-client.", "it is for Flink's client; clients here have their own settings"),
    ("sql-gateway.", "it is for Flink's gateway; this one has its configuration file"),
    ("restart-strategy", _RETRIES),
    ("state.backend", _COMMITS),
    ("state.checkpoint", _COMMITS),
    ("state.savepoint", _COMMITS),
    ("execution.checkpointing.", _COMMITS),
    ("execution.runtime-mode", "REFRESH_MODE defines how a materialized table is refreshed"),
    ("execution.", "the engine is Spark, which has no such setting"),
)
"""Prefixes, longer ones first, with the reason why such a setting has no effect."""

_DELTA = "rows are stored in a Delta table of the warehouse"
_STREAMS = "STREAM read_kafka(...) and STREAM read_files(...) read from elsewhere"
STORED_ELSEWHERE: Mapping[str, str] = {
    "connector": f"{_DELTA}: leave it out; {_STREAMS}",
    "path": f"{_DELTA}, at a location of its own: leave it out",
    "location": f"{_DELTA}, at a location of its own: leave it out",
    "topic": f"{_DELTA}: leave it out; {_STREAMS}",
    "url": f"{_DELTA}: leave it out",
    "table-name": f"{_DELTA}: leave it out",
}
"""Options that would store rows elsewhere, in lower case, each with the reason for rejection."""

_FILES = "DISTRIBUTED INTO n BUCKETS sets how many files a refresh writes"
_TABLE: Mapping[str, str] = {
    "format": f"{_DELTA}, whose files are Parquet",
    "bucket": _FILES,
    "sink.parallelism": f"{_FILES}, spark.sql.shuffle.partitions how many partitions it computes",
}


def without_effect(key: str) -> str | None:
    """Return why a setting has no effect; None if it may have one."""
    folded = key.lower()
    return next((reason for begin, reason in _SETTINGS if folded.startswith(begin)), None)


def table_remark(key: str, value: str, *, kept: bool) -> str | None:
    """Return why a table option that is not Tidegate's has no effect; None if it needs no remark.

    :param kept: whether it is stored in the definition.
    """
    folded = key.lower()
    if folded == "format" and value.strip().lower() == "delta":
        return None
    if (reason := _TABLE.get(folded)) is not None:
        return reason
    if folded.startswith("delta."):
        return "Tidegate manages the properties of the Delta table; use materialized-table.upkeep.*"
    return f"it is not a Tidegate option{', and is only stored' if kept else ''}"
