"""Comments and columns of many tables, read from the metastore's own database in one query.

Through Hive's client each table costs about a dozen queries: half a minute for 10,000 tables. What
Spark wrote about its tables stands in one place, as text; of all others Hive's client is asked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from py4j.protocol import Py4JError

from tidegate_server.engine.metastore.bulk import Database, Listing

logger = logging.getLogger(__name__)

_SOURCES: Final = "spark.sql.sources."
_NO_COLUMNS: Final = '{"type":"struct","fields":[]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTable:
    """A table, not a view, as Spark wrote it down."""

    name: str
    comment: str | None
    columns: str
    """A struct as JSON; an empty one for Delta, which keeps its columns itself."""


class StoredTables:
    """Reads the database of a metastore that the engine runs itself; nothing of another one."""

    def __init__(self, session: Any, listing: Listing) -> None:
        """Take a Java SparkSession and what queries."""
        self._listing = listing
        self._database = _database(session.sessionState().newHadoopConf())

    def of(self, schema: str, names: Sequence[str]) -> tuple[StoredTable, ...]:
        """Return what can be read so; the tables that are left out may well exist."""
        if self._database is None or not names:
            return ()
        try:
            rows = self._listing.properties(self._database, schema, names)
        except Py4JError as problem:
            logger.info("the metastore's database is not read directly: %s", problem)
            self._database = None
            return ()
        return understood(rows)


def understood(rows: Iterable[tuple[str, str, str, str | None]]) -> tuple[StoredTable, ...]:
    """Return the tables whose properties tell everything: rows of name, type, key and value."""
    found = []
    for name, group in groupby(sorted(rows, key=lambda row: row[0]), key=lambda row: row[0]):
        mine = list(group)
        properties = {key: value or "" for _, _, key, value in mine}
        columns = _columns(properties) if mine[0][1] != "VIRTUAL_VIEW" else None
        if columns is not None:
            comment = properties.get("comment")
            found.append(StoredTable(name=name, comment=comment, columns=columns))
    return tuple(found)


def _columns(properties: Mapping[str, str]) -> str | None:
    """Return the columns as Spark would restore them, those of partitions last."""
    provider = properties.get(f"{_SOURCES}provider", "hive").lower()
    if provider == "delta":
        return _NO_COLUMNS
    text = _whole(properties)
    if provider == "hive" or text is None:
        return None
    count = int(properties.get(f"{_SOURCES}schema.numPartCols", "0"))
    last = [properties.get(f"{_SOURCES}schema.partCol.{place}") for place in range(count)]
    struct = json.loads(text)
    fields = {field["name"]: field for field in struct["fields"]}
    if any(name not in fields for name in last):
        return None
    ordered = [field for name, field in fields.items() if name not in last]
    return json.dumps({**struct, "fields": [*ordered, *(fields[str(name)] for name in last)]})


def _whole(properties: Mapping[str, str]) -> str | None:
    """Return the schema, which is cut into parts where it is long."""
    if (text := properties.get(f"{_SOURCES}schema")) is not None:
        return text
    count = int(properties.get(f"{_SOURCES}schema.numParts", "0"))
    parts = [properties.get(f"{_SOURCES}schema.part.{place}") for place in range(count)]
    return None if not parts or None in parts else "".join(part or "" for part in parts)


def _database(settings: Any) -> Database | None:
    url = settings.get("javax.jdo.option.ConnectionURL")
    if not url or settings.get("hive.metastore.uris"):
        return None
    return Database(
        url=str(url),
        user=str(settings.get("javax.jdo.option.ConnectionUserName") or "APP"),
        password=str(settings.get("javax.jdo.option.ConnectionPassword") or "mine"),
    )
