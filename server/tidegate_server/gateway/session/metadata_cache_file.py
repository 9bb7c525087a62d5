"""Keeps the picture of the metastore in a file: a gateway knows it right after its start."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import msgspec

from tidegate_server.gateway.session.metastore_snapshot import KnownTable, MetastoreSnapshot

logger = logging.getLogger(__name__)


class _Content(msgspec.Struct, frozen=True):
    schemas: tuple[str, ...]
    tables: tuple[KnownTable, ...]


class KeptPicture:
    """One file, replaced as a whole; losing it costs nothing but time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saving = threading.Lock()

    def load(self) -> MetastoreSnapshot:
        """Return the picture, an empty one if there is none that can be read."""
        try:
            content = msgspec.msgpack.decode(self._path.read_bytes(), type=_Content)
        except FileNotFoundError:
            return MetastoreSnapshot()
        except (OSError, msgspec.MsgspecError) as problem:
            logger.warning("What was known of the metastore cannot be read: %s", problem)
            return MetastoreSnapshot()
        tables = {table.name.folded(): table for table in content.tables}
        return MetastoreSnapshot(schemas=content.schemas, tables=tables)

    def save(self, picture: MetastoreSnapshot) -> None:
        """Replace the file; a disk that does not take it is logged."""
        content = _Content(picture.schemas, tuple(picture.tables.values()))
        beside = self._path.with_suffix(".new")
        try:
            with self._saving:
                beside.write_bytes(msgspec.msgpack.encode(content))
                os.replace(beside, self._path)
        except OSError as problem:
            logger.warning("What is known of the metastore cannot be kept: %s", problem)
