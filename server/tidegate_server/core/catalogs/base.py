"""The interface of catalogs written in Python.

It follows Flink's ``Catalog``: what a catalog contains, the changes of that, and, in the place of
``getFactory``, how Spark reads and writes a table.
https://nightlies.apache.org/flink/flink-docs-master/docs/dev/table/catalogs/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tidegate_server.core.catalogs.options import CatalogOption
from tidegate_server.core.catalogs.rows import ROWS

DELTA: Final = "delta"
"""The format whose tables describe themselves: columns and properties are in their log."""


HIVE: Final = "hive"
"""The format of tables that a SerDe of Hive reads."""


class CatalogError(Exception):
    """Why a catalog cannot do what was asked; users see the message, which has no full stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table."""

    name: str
    type: str
    """As in SQL: ``int``, ``decimal(10, 2)``, ``array<string>``."""
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SerDe:
    """The classes of Hive that read a table of files in the format ``hive``.

    Only those are accepted that tables of Hive in the session catalog may have, too.
    """

    serde: str
    input_format: str
    output_format: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePartition:
    """A partition of a table of files."""

    values: tuple[str | None, ...]
    """The texts of its values, in the order of the partition keys; None is NULL."""
    location: str
    """The absolute path or URI of its directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How the columns of a table are computed from those of its data source."""

    source: tuple[TableColumn, ...]
    """The columns that the data source has."""
    values: Mapping[str, str]
    """Expressions of SQL over these columns, by a name for each."""
    columns: tuple[str, ...]
    """An expression for each column of the table, over the columns and the values above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table, and how Spark reads and writes it."""

    format: str = ""
    """The name of a data source of Spark, such as ``parquet``, ``csv``, ``delta`` or ``jdbc``. It
    is empty in a table to create if the statement has no USING. The catalog itself reads and writes
    the rows of tables in the format ``rows`` (:mod:`tidegate_server.core.catalogs.rows`)."""
    columns: tuple[TableColumn, ...] = ()
    """All columns, the partition keys last unless the format is ``rows``; none for tables in the
    format ``delta``."""
    partition_keys: tuple[str, ...] = ()
    location: str | None = None
    """The directory or the file of a table of files. It is None in a table to create if the
    statement has no LOCATION."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Those of the data source; the location is not among them."""
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    """Whether statements that change the rows or the definition are rejected. The partitions are
    then those that the catalog lists (:class:`Partitioned`)."""
    serde: SerDe | None = None
    """The classes that read a table in the format ``hive``, which is read only."""
    derivation: Derivation | None = None
    """How the columns are computed; None if the data source has them. The table is read only."""

    def __post_init__(self) -> None:
        """Reject what has no meaning; raises ValueError."""
        names = [each.name for each in self.columns]
        folded = [name.lower() for name in names]
        if len(set(folded)) < len(folded):
            raise ValueError(f"two columns have one name: {', '.join(names)}")
        keys = tuple(self.partition_keys)
        last = tuple(names[-len(keys) :]) == keys
        if self.columns and keys and not last and self.format != ROWS:
            raise ValueError(f"the partition keys {', '.join(keys)} are not the last columns")
        if any(key.lower() == "path" for key in self.options):
            raise ValueError("the option path is the location of the table")
        if (self.serde is not None) != (self.format == HIVE) or (self.serde and not self.read_only):
            raise ValueError("a table has a SerDe if its format is hive, and is then read only")
        if self.derivation is not None and (
            not self.read_only or len(self.derivation.columns) != len(self.columns)
        ):
            raise ValueError("a table with a derivation is read only; each column is derived")


class Catalog(Protocol):
    """An open catalog that can be read.

    Several threads call it at the same time. Names have the case in which they are stored. Methods
    raise :class:`CatalogError` with a reason for users; any other exception is logged as well.
    """

    def schemas(self) -> Sequence[str]:
        """Return the names of all schemas."""
        ...

    def tables(self, schema: str) -> Sequence[str]:
        """Return the names of the tables of a schema; none if there is no such schema."""
        ...

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        """Return a table; None if there is none. Every statement that names a table calls this."""
        ...


class Watched(Protocol):
    """What a catalog offers if it knows when the rows of a table change.

    Without it, Tidegate takes the version of a Delta table and the listing of a table of files, and
    assumes that other tables have changed.
    """

    def version(self, schema: str, name: str) -> str | None:
        """Return a text that differs after each change of the rows; None if that is not known."""
        ...


class Partitioned(Protocol):
    """What a catalog offers if it has tables that are read only and partitioned."""

    def partitions(self, schema: str, name: str) -> Sequence[TablePartition]:
        """Return the partitions of a table, which are read, and no others.

        Each statement that reads the table calls this, for each mention of it.
        """
        ...


class Writable(Protocol):
    """What a catalog offers if its tables and schemas are created, altered and dropped in SQL.

    Each method may be missing; the statement is then rejected. Rows are written by Spark.
    """

    def create_schema(self, name: str, properties: Mapping[str, str]) -> None:
        """Create a schema that does not exist; ``comment`` is one of the properties."""
        ...

    def drop_schema(self, name: str) -> None:
        """Drop a schema that has no tables."""
        ...

    def create_table(self, schema: str, name: str, table: CatalogTable) -> CatalogTable:
        """Create a table that does not exist, without rows, and return it as it is then.

        The catalog chooses the format and the location unless they are given. Spark writes the log
        of a Delta table afterwards; if that fails, the table is dropped again.
        """
        ...

    def alter_table(self, schema: str, name: str, table: CatalogTable) -> None:
        """Replace what is recorded of a table; of its columns, only comments and new ones differ.

        It is not called for Delta tables, whose log is changed.
        """
        ...

    def drop_table(self, schema: str, name: str) -> bool:
        """Drop a table with those of its files that the catalog owns; False if there is none."""
        ...

    def rename_table(self, schema: str, name: str, new_schema: str, new_name: str) -> None:
        """Rename a table; there is none of the new name."""
        ...


class Closable(Protocol):
    """What a catalog offers if it holds connections or threads."""

    def close(self) -> None:
        """Release them: the catalog was dropped, changed, or only checked."""
        ...


class PythonCatalogType(Protocol):
    """A type of catalogs written in Python; an entry point of the group ``tidegate.catalogs``.

    The entry point leads to an instance, or to a class without parameters.
    """

    @property
    def name(self) -> str:
        """What users write as the option ``type``, in lower case; the name of the entry point."""
        ...

    @property
    def description(self) -> str:
        """One sentence on what such a catalog contains."""
        ...

    @property
    def options(self) -> tuple[CatalogOption, ...]:
        """All options besides ``type``; others are rejected."""
        ...

    def open(self, options: Mapping[str, str]) -> Catalog:
        """Return the catalog that options describe.

        :param options: checked, with keys in lower case; secrets are in place.
        :raises CatalogError, ValueError: with the reason, if they do not fit together.
        """
        ...
