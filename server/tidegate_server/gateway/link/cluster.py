"""Checks that the executors of a cluster share the storage of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tidegate_server.core.errors import Code, error

_WAREHOUSE = "spark.sql.warehouse.dir"
_DEFAULT_FILES = "spark.hadoop.fs.defaultFS"


def check_cluster_storage(
    master: str, settings: Mapping[str, str], data: Path, *, shared_data: bool
) -> None:
    """Reject a warehouse on this machine's disk if executors run on other machines.

    Each executor would write to its own disk, and its rows would be missing from the table.

    :param master: Spark's master URL; ``local...`` runs everything on this machine.
    :param shared_data: whether all machines have the data directory at the same path.
    :raises ServerError: CLUSTER_STORAGE.
    """
    if master.startswith("local") or shared_data:
        return
    warehouse = settings.get(_WAREHOUSE, f"file:{data / 'warehouse'}")
    scheme = urlsplit(warehouse).scheme or urlsplit(settings.get(_DEFAULT_FILES, "file:")).scheme
    if scheme in ("", "file"):
        raise error(Code.CLUSTER_STORAGE, master=master, warehouse=warehouse)
