"""A catalog over a directory: a folder for each schema, with the files of its tables and an index.

It can be read and written. ``<root>/<schema>/index.json`` records the tables; a table without a
LOCATION has a folder of its own beside it. Names are stored in lower case.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidegate_server.core.catalogs.base import DELTA, CatalogError, CatalogTable
from tidegate_server.core.catalogs.encoding import decode_table, encode_table
from tidegate_server.core.catalogs.options import CatalogOption

FORMATS = ("parquet", "csv", "json", "orc", "avro", DELTA)
_INDEX = "index.json"
_LOCK = ".lock"
# Names become folders, and Spark reads some letters in paths as patterns.
_NAME = re.compile(r"[a-z0-9][a-z0-9_]*")

Index = dict[str, dict[str, Any]]
"""The tables of a schema as JSON; ``owned`` says whether the catalog made their folders."""


@dataclass(frozen=True, slots=True)
class DirectoryType:
    """The type ``directory``."""

    name: str = "directory"
    description: str = "Tables of files in a directory."
    options: tuple[CatalogOption, ...] = (
        CatalogOption(
            name="path", description="The absolute path of the directory.", required=True
        ),
        CatalogOption(
            name="default-format",
            description="The format of tables that are created without USING.",
            values=FORMATS,
        ),
    )

    def open(self, options: Mapping[str, str]) -> DirectoryCatalog:
        """Return the catalog of a directory, which must exist."""
        root = Path(options["path"])
        if not root.is_absolute() or not root.is_dir():
            raise CatalogError(f"{root} is no absolute path of a directory")
        return DirectoryCatalog(root, options.get("default-format", "parquet").lower())


@dataclass(frozen=True, slots=True)
class DirectoryCatalog:
    """The tables of one directory; each call reads the index, which others may have changed."""

    root: Path
    default_format: str

    def schemas(self) -> Sequence[str]:
        """Return the names of the folders that have an index."""
        return sorted(each.parent.name for each in self.root.glob(f"*/{_INDEX}"))

    def tables(self, schema: str) -> Sequence[str]:
        """Return the names in the index of a schema."""
        return sorted(self._read(schema.lower()))

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        """Return a table of the index."""
        found = self._read(schema.lower()).get(name.lower())
        return None if found is None else decode_table(found["table"])

    def create_schema(self, name: str, properties: Mapping[str, str]) -> None:
        """Create a folder with an empty index."""
        if "location" in properties:
            raise CatalogError("its schemas are folders of its own directory")
        with self._locked():
            folder = self.root / _checked(name)
            folder.mkdir()
            self._write(folder.name, {})

    def drop_schema(self, name: str) -> None:
        """Remove the folder of a schema without tables; foreign files in it are an error."""
        with self._locked():
            folder = self.root / _checked(name)
            others = [each.name for each in folder.iterdir() if each.name != _INDEX]
            if others:
                raise CatalogError(f"the folder {folder} also has {', '.join(sorted(others))}")
            (folder / _INDEX).unlink()
            folder.rmdir()

    def create_table(self, schema: str, name: str, table: CatalogTable) -> CatalogTable:
        """Record a table; without a LOCATION, its files are in a new folder."""
        data_format = (table.format or self.default_format).lower()
        if data_format not in FORMATS:
            raise CatalogError(f"its formats are {', '.join(FORMATS)}, not {data_format}")
        schema, name = schema.lower(), _checked(name)
        owned = table.location is None
        # Not after the name alone: a renamed table keeps its folder.
        folder = self.root / schema / f"{name}-{uuid.uuid4().hex[:8]}"
        made = replace(table, format=data_format, location=table.location or str(folder))
        if data_format == DELTA:
            made = replace(made, columns=(), partition_keys=())
        with self._locked():
            index = self._read(schema)
            if owned:
                folder.mkdir()
            self._write(schema, {**index, name: {"table": encode_table(made), "owned": owned}})
        return made

    def alter_table(self, schema: str, name: str, table: CatalogTable) -> None:
        """Record a table as it is now; files at a new LOCATION are not the catalog's."""
        with self._locked():
            index = self._read(schema.lower())
            before = index[name.lower()]
            owned = before["owned"] and before["table"]["location"] == table.location
            index[name.lower()] = {"table": encode_table(table), "owned": owned}
            self._write(schema.lower(), index)

    def drop_table(self, schema: str, name: str) -> bool:
        """Forget a table, and delete its files if they are in a folder of the catalog."""
        with self._locked():
            index = self._read(schema.lower())
            found = index.pop(name.lower(), None)
            if found is None:
                return False
            self._write(schema.lower(), index)
        if found["owned"]:
            shutil.rmtree(found["table"]["location"], ignore_errors=True)
        return True

    def rename_table(self, schema: str, name: str, new_schema: str, new_name: str) -> None:
        """Rename a table within its schema; its files stay where they are."""
        if schema.lower() != new_schema.lower():
            raise CatalogError("its tables stay in their schema")
        with self._locked():
            index = self._read(schema.lower())
            index[_checked(new_name)] = index.pop(name.lower())
            self._write(schema.lower(), index)

    def _read(self, schema: str) -> Index:
        if _NAME.fullmatch(schema) is None:
            return {}
        try:
            found: Index = json.loads((self.root / schema / _INDEX).read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def _write(self, schema: str, index: Index) -> None:
        """Replace an index; who reads it meanwhile reads the one before."""
        file = self.root / schema / _INDEX
        new = file.with_suffix(f".{uuid.uuid4().hex}")
        new.write_text(json.dumps(index, indent=2), "utf-8")
        os.replace(new, file)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold off the other threads, and the engines of other users."""
        with (self.root / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _checked(name: str) -> str:
    folded = name.lower()
    if _NAME.fullmatch(folded) is None:
        raise CatalogError(f"{name} is no name of letters, digits and underscores")
    return folded
