"""Checks that the executors of a cluster share the storage of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tidegate_server.core.config_sections import EngineSection
from tidegate_server.core.errors import Code, error

_WAREHOUSE = "spark.sql.warehouse.dir"
_DEFAULT_FILES = "spark.hadoop.fs.defaultFS"
_EXCHANGE = ".tidegate"
"""Directory of the warehouse for files that are no tables; no schema or table has such a name."""


def check_cluster_storage(
    master: str, settings: Mapping[str, str], data: Path, engine: EngineSection
) -> None:
    """Reject a warehouse on this machine's disk if executors run on other machines.

    Each executor would write to its own disk, and its rows would be missing from the table.

    :param master: Spark's master URL; ``local...`` runs everything on this machine.
    :param settings: those of the engine.
    :param engine: says what all machines have mounted at the same path.
    :raises ServerError: CLUSTER_STORAGE.
    """
    if master.startswith("local") or engine.shared_data:
        return
    if engine.shared_warehouse and _WAREHOUSE in settings:
        return
    warehouse = settings.get(_WAREHOUSE, f"file:{data / 'warehouse'}")
    scheme = urlsplit(warehouse).scheme or urlsplit(settings.get(_DEFAULT_FILES, "file:")).scheme
    if scheme in ("", "file"):
        raise error(Code.CLUSTER_STORAGE, master=master, warehouse=warehouse)


def exchange_directory(master: str, settings: Mapping[str, str], engine: EngineSection) -> str:
    """Return where driver and executors hand files to each other; empty for the data directory.

    The parameters are those of :func:`check_cluster_storage`, which must have accepted them.
    """
    if master.startswith("local") or engine.shared_data:
        return ""
    return f"{settings[_WAREHOUSE].rstrip('/')}/{_EXCHANGE}"
