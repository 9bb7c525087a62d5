"""A read-only catalog over a register of data sets, which another program keeps in SQLite.

The register has two tables::

    CREATE TABLE datasets (schema_name TEXT, table_name TEXT, format TEXT, location TEXT,
                           options TEXT, comment TEXT, version TEXT)
    CREATE TABLE fields (schema_name TEXT, table_name TEXT, position INTEGER, name TEXT, type TEXT)

``options`` is an object of JSON. Whoever delivers data changes ``version``: materialized tables
over a data set are refreshed then, and not before.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tidegate_server.core.catalogs.base import CatalogError, CatalogTable, TableColumn
from tidegate_server.core.catalogs.options import CatalogOption

_TABLE = "WHERE schema_name = ? AND table_name = ?"


@dataclass(frozen=True, slots=True)
class RegisterType:
    """The type ``register``."""

    name: str = "register"
    description: str = "Data sets that a register in SQLite lists."
    options: tuple[CatalogOption, ...] = (
        CatalogOption(name="database", description="The file of the register.", required=True),
    )

    def open(self, options: Mapping[str, str]) -> RegisterCatalog:
        """Return the catalog of a register that can be read."""
        catalog = RegisterCatalog(Path(options["database"]))
        try:
            catalog.schemas()
        except sqlite3.Error as problem:
            raise CatalogError(f"{catalog.file} is no register: {problem}") from problem
        return catalog


@dataclass(frozen=True, slots=True)
class RegisterCatalog:
    """What a register lists; each call opens it, since connections belong to one thread."""

    file: Path

    def schemas(self) -> Sequence[str]:
        """Return the schemas of all data sets."""
        with self._register() as register:
            rows = register.execute("SELECT DISTINCT schema_name FROM datasets ORDER BY 1")
            return [name for (name,) in rows]

    def tables(self, schema: str) -> Sequence[str]:
        """Return the data sets of a schema."""
        with self._register() as register:
            query = "SELECT table_name FROM datasets WHERE schema_name = ? ORDER BY 1"
            return [name for (name,) in register.execute(query, (schema,))]

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        """Return a data set."""
        with self._register() as register:
            query = f"SELECT format, location, options, comment FROM datasets {_TABLE}"
            found = register.execute(query, (schema, name)).fetchone()
            if found is None:
                return None
            query = f"SELECT name, type FROM fields {_TABLE} ORDER BY position"
            fields = register.execute(query, (schema, name)).fetchall()
        data_format, location, options, comment = found
        return CatalogTable(
            format=data_format,
            columns=tuple(TableColumn(name=field, type=kind) for field, kind in fields),
            location=location,
            options=json.loads(options or "{}"),
            comment=comment,
        )

    def version(self, schema: str, name: str) -> str | None:
        """Return what the register says of the last delivery."""
        with self._register() as register:
            query = f"SELECT version FROM datasets {_TABLE}"
            found = register.execute(query, (schema, name)).fetchone()
        return None if found is None else found[0]

    @contextmanager
    def _register(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as register:
            yield register
