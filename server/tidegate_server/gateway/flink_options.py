"""Settings and table options of Flink's that change nothing here, each with the reason."""

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
"""How names of Flink's settings begin that are neither Tidegate's nor Spark's."""

SERVERS_OWN = "the server alone has it, in its configuration"

_PLACE = "the engine works where engine.master says"
_COMMITS = "the versions of all sources stand in each commit of a table"
_NO_JOB = "there is no job of Flink here; SHOW REFRESH HISTORY lists the refreshes"
_RETRIES = "write materialized-table.refresh.retries"
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
    ("parallelism.default", "write spark.sql.shuffle.partitions"),
    ("pipeline.max-parallelism", "write spark.sql.shuffle.partitions"),
    ("pipeline.", _NO_JOB),
    ("sql-client.", "it is for Flink's client, and each client here has its own settings"),
    ("sql-gateway.", "it is for Flink's gateway; this one has its configuration file"),
    ("restart-strategy", _RETRIES),
    ("state.backend", _COMMITS),
    ("state.checkpoint", _COMMITS),
    ("state.savepoint", _COMMITS),
    ("execution.checkpointing.", _COMMITS),
    ("execution.runtime-mode", "REFRESH_MODE says how a materialized table is refreshed"),
    ("execution.", "the engine is Spark's, and has no such setting"),
)
"""How names begin, the longer ones first, and why such a setting changes nothing."""

_DELTA = "rows are stored in a Delta table of the warehouse"
_STREAMS = "STREAM read_kafka(...) and STREAM read_files(...) read from elsewhere"
STORED_ELSEWHERE: Mapping[str, str] = {
    "connector": f"{_DELTA}: leave it out; {_STREAMS}",
    "path": f"{_DELTA}, at a place of its own: leave it out",
    "location": f"{_DELTA}, at a place of its own: leave it out",
    "topic": f"{_DELTA}: leave it out; {_STREAMS}",
    "url": f"{_DELTA}: leave it out",
    "table-name": f"{_DELTA}: leave it out",
}
"""Options that send rows elsewhere, which is not done; in lower case, each with the reason."""

_FILES = "DISTRIBUTED INTO n BUCKETS says how many files a refresh writes"
_TABLE: Mapping[str, str] = {
    "format": f"{_DELTA}, whose files are Parquet",
    "bucket": _FILES,
    "sink.parallelism": f"{_FILES}, spark.sql.shuffle.partitions in how many parts it computes",
}


def without_effect(key: str) -> str | None:
    """Return why a setting changes nothing; None for one that may."""
    folded = key.lower()
    return next((reason for begin, reason in _SETTINGS if folded.startswith(begin)), None)


def table_remark(key: str, value: str, *, kept: bool) -> str | None:
    """Return why an option of a table that is none of Tidegate's changes nothing.

    :param kept: whether it is kept in the definition.
    """
    folded = key.lower()
    if folded == "format" and value.strip().lower() == "delta":
        return None
    if (reason := _TABLE.get(folded)) is not None:
        return reason
    if folded.startswith("delta."):
        return (
            "properties of the Delta table are Tidegate's; materialized-table.upkeep.* are options"
        )
    return f"it is no option of Tidegate{', and is kept as a note' if kept else ''}"
