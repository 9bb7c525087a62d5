"""A snapshot of the metastore, and pure functions that update it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from tidegate_server.core.messages.answers import NameList, TableInfo, TableList
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.types import Column

_WORD = re.compile(r"\w+")
# A statement with one of these words may name a table by an expression.
_INDIRECT = frozenset({"identifier", "execute", "begin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """A table or view; only its name and type are known until it has been read.

    ``columns`` is None if they were never read.
    """

    name: TableName
    type: str
    comment: str | None = None
    columns: tuple[Column, ...] | None = None
    owner: str = ""
    """Empty if unknown."""
    read_at: datetime | None = None

    def is_fresh(self, since: datetime, *, with_columns: bool) -> bool:
        """Return whether it was read after a moment, including its columns if they are needed."""
        has_columns = self.columns is not None or not with_columns
        return has_columns and self.read_at is not None and self.read_at > since


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastoreSnapshot:
    """Schemas of the metastore, and its tables by folded name."""

    schemas: tuple[str, ...] = ()
    tables: Mapping[TableName, KnownTable] = field(default_factory=dict)
    schema_owners: Mapping[str, str] = field(default_factory=dict)

    def as_table_list(self) -> TableList:
        """Return it in the format of the engine's answer."""
        infos = (
            TableInfo(name=t.name, type=t.type, comment=t.comment, columns=t.columns or ())
            for t in self.tables.values()
        )
        return TableList(schemas=self.schemas, tables=tuple(infos))


def with_names(snapshot: MetastoreSnapshot, names: NameList) -> MetastoreSnapshot:
    """Add new names, drop those that are gone, and keep the details of the others."""
    tables: dict[TableName, KnownTable] = {}
    for schema in names.schemas:
        for kind, found in (("TABLE", schema.tables), ("VIEW", schema.views)):
            for table in found:
                name = TableName(DEFAULT_CATALOG, schema.schema, table)
                known = snapshot.tables.get(name.folded())
                if known is None or known.type != kind:
                    known = KnownTable(name=name, type=kind)
                owner = schema.owners.get(table, "")
                if known.owner != owner:
                    known = replace(known, owner=owner)
                tables[name.folded()] = known
    return MetastoreSnapshot(
        schemas=tuple(schema.schema for schema in names.schemas),
        tables=tables,
        schema_owners={schema.schema: schema.owner for schema in names.schemas if schema.owner},
    )


def with_details(
    snapshot: MetastoreSnapshot,
    infos: Iterable[TableInfo],
    read_at: datetime | None,
    *,
    with_columns: bool,
) -> MetastoreSnapshot:
    """Add the details of tables; those whose name is unknown are ignored."""
    tables = dict(snapshot.tables)
    for info in infos:
        known = tables.get(info.name.folded())
        if known is not None:
            tables[info.name.folded()] = replace(
                known,
                type=info.type,
                comment=info.comment,
                columns=info.columns if with_columns else known.columns,
                read_at=read_at,
            )
    return replace(snapshot, tables=tables)


def without_details(
    snapshot: MetastoreSnapshot, words: Collection[str] | None
) -> MetastoreSnapshot:
    """Drop all but the names of the tables that ``words`` contains; None means all tables."""
    tables = {
        name: KnownTable(name=known.name, type=known.type, owner=known.owner)
        if words is None or name.table in words
        else known
        for name, known in snapshot.tables.items()
    }
    return replace(snapshot, tables=tables)


def words_of(statement: str) -> frozenset[str] | None:
    """Return the words of a statement, which may be table names; None if any name is possible."""
    words = frozenset(_WORD.findall(statement.lower()))
    return None if words & _INDIRECT else words
