"""The catalog in the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.locations import overlap
from tidegate_server.core.model.names import QUARANTINE_SUFFIX, TableName
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import (
    HeldVersion,
    LogicalRefreshMode,
    MaterializedTable,
    RefreshMode,
)
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.gateway.catalog.base import check_move, is_under
from tidegate_server.gateway.catalog.lookups import Lookups
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.stored_table import StoredTable
from tidegate_server.gateway.store.tables import definition_versions as d
from tidegate_server.gateway.store.tables import materialized_tables as t
from tidegate_server.gateway.store.tables import sources as s

_REMEMBERED = 2_000
"""Maximum number of look-ups that are remembered."""


class SqlCatalog:
    """Keeps definitions in tables of the store; every call is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Other servers may change a shared store at any time.
        self._lookups = Lookups(0 if database.shared else _REMEMBERED)

    def find(self, name: TableName) -> MaterializedTable | None:
        folded = name.folded()
        parameters = {"catalog": folded.catalog, "schema": folded.schema, "table": folded.table}
        return self._look_up(folded, _NAMED, parameters)

    def by_id(self, table_id: str) -> MaterializedTable | None:
        return self._look_up(table_id, _WITH_ID, {"id": table_id})

    def tables(
        self, catalog: str | None = None, schema: str | None = None
    ) -> tuple[MaterializedTable, ...]:
        where: list[ColumnElement[bool]] = []
        if catalog is not None:
            where.append(t.c.folded_catalog == catalog.lower())
        if schema is not None:
            where.append(t.c.folded_schema == schema.lower())
        return self._select(*where)

    def tables_at(
        self, names: Iterable[TableName], locations: Iterable[str]
    ) -> tuple[MaterializedTable, ...]:
        names, locations = set(names), set(locations)
        if not names and not locations:
            return ()
        # Every definition takes long to decode, so only those are read that may be meant.
        texts = {each.table.lower() for each in names}
        texts |= {text.removesuffix(QUARANTINE_SUFFIX) for text in texts}
        columns = select(t.c.id, t.c.folded_table, t.c.storage_table, t.c.location)
        with self._database.read() as connection:
            rows = connection.execute(columns).all()
            candidates = [
                row.id
                for row in rows
                if row.folded_table in texts
                or (row.storage_table is not None and row.storage_table.table.lower() in texts)
                or any(overlap(location, row.location) for location in locations)
            ]
            if not candidates:
                return ()
            found = _read_tables(connection, _Selection.of(t.c.id.in_(candidates)))
        return tuple(table for table in found if is_under(table, names, locations))

    def watched(self) -> tuple[MaterializedTable, ...]:
        continuous = t.c.refresh_mode == RefreshMode.CONTINUOUS.value
        return self._select(or_(continuous, t.c.on_update.is_not(None)))

    def downstream(self) -> tuple[MaterializedTable, ...]:
        return self._select(t.c.downstream)

    def consumers(self, name: TableName) -> tuple[MaterializedTable, ...]:
        folded = name.folded()
        reading = select(s.c.materialized_table_id).where(
            s.c.folded_catalog == folded.catalog,
            s.c.folded_schema == folded.schema,
            s.c.folded_table == folded.table,
        )
        return self._select(t.c.id.in_(reading))

    def replaced_definitions(self, table_id: str | None = None) -> tuple[MaterializedTable, ...]:
        kept = select(d.c.definition).order_by(d.c.table_id, d.c.definition_version)
        if table_id is not None:
            kept = kept.where(d.c.table_id == table_id)
        with self._database.read() as connection:
            return tuple(stored.table() for stored in connection.execute(kept).scalars())

    def create(self, table: MaterializedTable) -> None:
        try:
            with self._writing() as connection:
                stored = StoredTable.of(table)
                connection.execute(insert(t).values(**_values(stored), **_status(stored)))
                _write_sources(connection, table.id, table.definition.sources)
        except IntegrityError as failure:
            raise _already_exists(table.name) from failure

    def replace(self, *tables: MaterializedTable) -> None:
        with self._writing() as connection:
            if len(tables) > 1:
                _free_names(connection, tables)
            for table in tables:
                try:
                    _replace(connection, table)
                except IntegrityError as failure:
                    raise _already_exists(table.name) from failure

    def move(
        self, table_id: str, start: RefreshStatus, end: RefreshStatus, reason: str | None = None
    ) -> bool:
        check_move(start, end)
        change = (
            update(t)
            .where(t.c.id == table_id, t.c.refresh_status == start.value)
            .values(refresh_status=end.value, status_reason=reason)
        )
        with self._writing() as connection:
            return connection.execute(change).rowcount == 1

    def record_held_version(self, table_id: str, held: HeldVersion | None) -> None:
        with self._writing() as connection:
            connection.execute(update(t).where(t.c.id == table_id).values(held=held))

    def note_sources(self, table_id: str, sources: tuple[Source, ...]) -> None:
        with self._writing() as connection:
            there = select(t.c.id).where(t.c.id == table_id).with_for_update()
            if connection.execute(there).first() is not None:
                _write_sources(connection, table_id, sources)

    def drop(self, table_id: str) -> None:
        with self._writing() as connection:
            connection.execute(delete(t).where(t.c.id == table_id))

    def _look_up(
        self, key: Hashable, selection: _Selection, parameters: Mapping[str, str]
    ) -> MaterializedTable | None:
        self._database.require_file()
        return self._lookups.find(key, lambda: _first(self._read(selection, parameters)))

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._database.begin() as connection:
                yield connection
        finally:
            self._lookups.forget()

    def _select(self, *where: ColumnElement[bool]) -> tuple[MaterializedTable, ...]:
        return self._read(_Selection.of(*where))

    def _read(
        self, selection: _Selection, parameters: Mapping[str, str] | None = None
    ) -> tuple[MaterializedTable, ...]:
        with self._database.read() as connection:
            return _read_tables(connection, selection, parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """The statements that read some tables.

    SQLAlchemy takes as long to build and to hash them as to run them, so those of :meth:`find` and
    :meth:`by_id` exist once, with parameters.
    """

    tables: Select[Any]
    sources: Select[Any]

    @classmethod
    def of(cls, *where: ColumnElement[bool]) -> _Selection:
        tables = select(t).where(*where)
        reading = s.c.materialized_table_id.in_(select(t.c.id).where(*where))
        return cls(
            tables=tables.order_by(t.c.folded_catalog, t.c.folded_schema, t.c.folded_table),
            sources=select(s).where(reading).order_by(s.c.position),
        )


_NAMED = _Selection.of(
    t.c.folded_catalog == bindparam("catalog"),
    t.c.folded_schema == bindparam("schema"),
    t.c.folded_table == bindparam("table"),
)
_WITH_ID = _Selection.of(t.c.id == bindparam("id"))


def _read_tables(
    connection: Connection, selection: _Selection, parameters: Mapping[str, str] | None = None
) -> tuple[MaterializedTable, ...]:
    rows = connection.execute(selection.tables, parameters).all()
    if not rows:
        return ()
    reads: dict[str, list[Source]] = defaultdict(list)
    for edge in connection.execute(selection.sources, parameters):
        reads[edge.materialized_table_id].append(_source(edge))
    # Sorted again: a database's collation may differ from Python's order, which we promise.
    found = [_table(row, tuple(reads[row.id])) for row in rows]
    return tuple(sorted(found, key=lambda table: table.name.folded()))


def _name_values(name: TableName) -> dict[str, str]:
    folded = name.folded()
    return {
        "catalog_name": name.catalog,
        "schema_name": name.schema,
        "table_name": name.table,
        "folded_catalog": folded.catalog,
        "folded_schema": folded.schema,
        "folded_table": folded.table,
    }


def _status(stored: StoredTable) -> Mapping[str, Any]:
    return {
        "refresh_status": stored.refresh_status.value,
        "status_reason": stored.status_reason,
        "held": stored.held,
    }


def _values(stored: StoredTable) -> Mapping[str, Any]:
    """Return all columns except the status, which only ``move`` and ``hold`` change later."""
    return {
        **_name_values(stored.name),
        "id": stored.id,
        "columns": stored.schema,
        "original_query": stored.original_query,
        "expanded_query": stored.expanded_query,
        "freshness_value": stored.freshness.value,
        "freshness_unit": stored.freshness.unit.name,
        "logical_refresh_mode": stored.logical_refresh_mode.value,
        "refresh_mode": stored.refresh_mode.value,
        "owner": stored.owner,
        "created_at": stored.created_at,
        "location": stored.location,
        "comment": stored.comment,
        "options": stored.options,
        "partition_keys": stored.partition_keys,
        "primary_key": stored.primary_key,
        "settings": stored.settings,
        "execution_target": stored.execution_target,
        "definition_version": stored.definition_version,
        "storage_table": stored.storage_table,
        "declared": stored.declared,
        "derived": stored.derived,
        "persisted_metadata": stored.persisted_metadata,
        "watermark": stored.watermark,
        "distribution": stored.distribution,
        "start_mode": stored.start_mode,
        "downstream": stored.downstream,
        "on_update": stored.on_update,
        "execute_as": stored.execute_as,
        "expectations": stored.expectations,
        "assertions": stored.assertions,
        "immutable": stored.immutable,
        "backfilled_from": stored.backfilled_from,
        "lineage": stored.lineage,
        "resume_options": stored.resume_options,
        "checkpoint_floor": stored.checkpoint_floor,
        "defined_by": stored.defined_by,
        "defined_at": stored.defined_at,
        "restored_from": stored.restored_from,
        "leaving": stored.leaving,
        "swapping": stored.swapping,
        "dropping": stored.dropping,
        "rolling_back": stored.rolling_back,
    }


def _free_names(connection: Connection, tables: Sequence[MaterializedTable]) -> None:
    """Give tables temporary names within the transaction, so that they can exchange theirs."""
    ids = [table.id for table in tables]
    connection.execute(update(t).where(t.c.id.in_(ids)).values(folded_table=t.c.id))


def _replace(connection: Connection, table: MaterializedTable) -> None:
    _archive_definition(connection, table.id, table.definition.version)
    change = update(t).where(t.c.id == table.id).values(**_values(StoredTable.of(table)))
    if connection.execute(change).rowcount == 0:
        raise error(Code.MT_NOT_FOUND, table=table.name)
    _write_sources(connection, table.id, table.definition.sources)


def _archive_definition(connection: Connection, table_id: str, version: int) -> None:
    """Archive the definition that a higher version replaces; delete those a lower one undoes."""
    current = select(t.c.definition_version).where(t.c.id == table_id)
    found = connection.execute(current).scalar_one_or_none()
    if found is None or found == version:
        return
    if found > version:
        undone = (d.c.table_id == table_id, d.c.definition_version >= version)
        connection.execute(delete(d).where(*undone))
        return
    for stored in _read_tables(connection, _WITH_ID, {"id": table_id}):
        definition = StoredTable.of(replace(stored, pending=None))
        kept = {"table_id": table_id, "definition_version": found, "definition": definition}
        connection.execute(insert(d).values(**kept))


def _write_sources(connection: Connection, table_id: str, sources: Sequence[Source]) -> None:
    connection.execute(delete(s).where(s.c.materialized_table_id == table_id))
    rows = [
        {
            **_name_values(source.name),
            "materialized_table_id": table_id,
            "position": position,
            "kind": source.kind.value,
            "table_id": source.table_id,
            "materialized_table": source.materialized_table,
            "via": source.via,
            "columns": source.columns,
        }
        for position, source in enumerate(sources)
    ]
    if rows:
        connection.execute(insert(s), rows)


def _table(row: Row[Any], reads: tuple[Source, ...]) -> MaterializedTable:
    stored = StoredTable(
        id=row.id,
        name=TableName(row.catalog_name, row.schema_name, row.table_name),
        schema=row.columns,
        original_query=row.original_query,
        expanded_query=row.expanded_query,
        freshness=Freshness(row.freshness_value, TimeUnit[row.freshness_unit]),
        logical_refresh_mode=LogicalRefreshMode(row.logical_refresh_mode),
        refresh_mode=RefreshMode(row.refresh_mode),
        refresh_status=RefreshStatus(row.refresh_status),
        owner=row.owner,
        created_at=row.created_at,
        location=row.location,
        comment=row.comment,
        options=row.options,
        partition_keys=row.partition_keys,
        primary_key=row.primary_key,
        sources=reads,
        settings=row.settings,
        execution_target=row.execution_target,
        status_reason=row.status_reason,
        definition_version=row.definition_version,
        storage_table=row.storage_table,
        declared=row.declared,
        derived=row.derived,
        persisted_metadata=row.persisted_metadata,
        watermark=row.watermark,
        distribution=row.distribution,
        start_mode=row.start_mode,
        downstream=row.downstream,
        on_update=row.on_update,
        execute_as=row.execute_as,
        expectations=row.expectations,
        assertions=row.assertions,
        immutable=row.immutable,
        backfilled_from=row.backfilled_from,
        lineage=row.lineage,
        resume_options=row.resume_options,
        checkpoint_floor=row.checkpoint_floor,
        defined_by=row.defined_by,
        defined_at=row.defined_at,
        restored_from=row.restored_from,
        leaving=row.leaving,
        swapping=row.swapping,
        dropping=row.dropping,
        rolling_back=row.rolling_back,
        held=row.held,
    )
    return stored.table()


def _source(row: Row[Any]) -> Source:
    return Source(
        name=TableName(row.catalog_name, row.schema_name, row.table_name),
        kind=SourceKind(row.kind),
        table_id=row.table_id,
        materialized_table=row.materialized_table,
        via=row.via,
        columns=row.columns or Schema(),
    )


def _first(found: tuple[MaterializedTable, ...]) -> MaterializedTable | None:
    return found[0] if found else None


def _already_exists(name: TableName) -> ServerError:
    return error(Code.MT_ALREADY_EXISTS, kind="Materialized table", table=name)
