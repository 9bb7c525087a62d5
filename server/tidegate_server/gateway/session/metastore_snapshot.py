"""What is known of the metastore, as a value that pure functions bring up to date."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from tidegate_server.core.messages.answers import NameList, TableInfo, TableList
from tidegate_server.core.model.names import DEFAULT_CATALOG, TableName
from tidegate_server.core.model.types import Column

_WORD = re.compile(r"\w+")
# A statement with one of these may name a table by an expression.
_INDIRECT = frozenset({"identifier", "execute", "begin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """A table or view; only its name and type are sure until it was read.

    ``columns`` None means that they were never asked for.
    """

    name: TableName
    type: str
    comment: str | None = None
    columns: tuple[Column, ...] | None = None
    read_at: datetime | None = None

    def is_fresh(self, since: datetime, *, with_columns: bool) -> bool:
        """Tell whether it was read after a moment, with its columns if they are wanted."""
        has_columns = self.columns is not None or not with_columns
        return has_columns and self.read_at is not None and self.read_at > since


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastoreSnapshot:
    """Schemas and tables of the metastore, by their folded names."""

    schemas: tuple[str, ...] = ()
    tables: Mapping[TableName, KnownTable] = field(default_factory=dict)

    def listed(self) -> TableList:
        """Return it as the engine would tell it."""
        infos = (
            TableInfo(name=t.name, type=t.type, comment=t.comment, columns=t.columns or ())
            for t in self.tables.values()
        )
        return TableList(schemas=self.schemas, tables=tuple(infos))


def with_names(picture: MetastoreSnapshot, names: NameList) -> MetastoreSnapshot:
    """Take new names in, drop those that are gone, keep what is known of the others."""
    tables: dict[TableName, KnownTable] = {}
    for schema in names.schemas:
        for kind, found in (("TABLE", schema.tables), ("VIEW", schema.views)):
            for table in found:
                name = TableName(DEFAULT_CATALOG, schema.schema, table)
                known = picture.tables.get(name.folded())
                if known is None or known.type != kind:
                    known = KnownTable(name=name, type=kind)
                tables[name.folded()] = known
    return MetastoreSnapshot(
        schemas=tuple(schema.schema for schema in names.schemas), tables=tables
    )


def with_details(
    picture: MetastoreSnapshot,
    infos: Iterable[TableInfo],
    read_at: datetime | None,
    *,
    with_columns: bool,
) -> MetastoreSnapshot:
    """Take in what was read of some tables; those that are not known by name stay out."""
    tables = dict(picture.tables)
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
    return replace(picture, tables=tables)


def forgetting(picture: MetastoreSnapshot, words: Collection[str] | None) -> MetastoreSnapshot:
    """Forget all but the names of the tables that ``words`` name; None means of all tables."""
    tables = {
        name: KnownTable(name=known.name, type=known.type)
        if words is None or name.table in words
        else known
        for name, known in picture.tables.items()
    }
    return replace(picture, tables=tables)


def mentioned(statement: str) -> frozenset[str] | None:
    """Return the words of a statement, any of which may be a table's name; None for any name."""
    words = frozenset(_WORD.findall(statement.lower()))
    return None if words & _INDIRECT else words
