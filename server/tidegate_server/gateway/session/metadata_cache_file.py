"""Stores the snapshot of the metastore in a file, so that a gateway has it at startup."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import msgspec

from tidegate_server.core.permissions import write_private
from tidegate_server.gateway.session.metastore_snapshot import KnownTable, MetastoreSnapshot

logger = logging.getLogger(__name__)


class _Content(msgspec.Struct, frozen=True):
    schemas: tuple[str, ...]
    tables: tuple[KnownTable, ...]
    schema_owners: dict[str, str] = {}


class MetadataCacheFile:
    """One file, replaced as a whole; losing it only costs time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._save_lock = threading.Lock()

    def load(self) -> MetastoreSnapshot:
        """Return the snapshot, or an empty one if the file is missing or unreadable."""
        try:
            content = msgspec.msgpack.decode(self._path.read_bytes(), type=_Content)
        except FileNotFoundError:
            return MetastoreSnapshot()
        except (OSError, msgspec.MsgspecError) as error:
            logger.warning("The saved snapshot of the metastore cannot be read: %s", error)
            return MetastoreSnapshot()
        tables = {table.name.folded(): table for table in content.tables}
        return MetastoreSnapshot(
            schemas=content.schemas, tables=tables, schema_owners=content.schema_owners
        )

    def save(self, snapshot: MetastoreSnapshot) -> None:
        """Replace the file; an error is only logged."""
        content = _Content(
            snapshot.schemas, tuple(snapshot.tables.values()), dict(snapshot.schema_owners)
        )
        beside = self._path.with_suffix(".new")
        try:
            with self._save_lock:
                write_private(beside, msgspec.msgpack.encode(content))
                os.replace(beside, self._path)
        except OSError as error:
            logger.warning("The snapshot of the metastore cannot be saved: %s", error)
