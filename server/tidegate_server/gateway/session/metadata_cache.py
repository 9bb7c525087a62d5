"""A cached snapshot of the metastore, so that metadata calls need no engine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import TableInfo, TableList
from tidegate_server.core.messages.requests import (
    A,
    ListFunctions,
    ListNames,
    ListTables,
    ListTemporaryFunctions,
    ListTemporaryViews,
    OpenSession,
    Request,
)
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.names import DEFAULT_SCHEMA, STORAGE_PREFIX, FunctionName, TableName
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.catalog.base import CatalogReader
from tidegate_server.gateway.definition.derived import visible_schema
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.session.metadata import (
    MATERIALIZED_TABLE,
    TABLE,
    VIEW,
    ListedTable,
    Listing,
    TablePattern,
)
from tidegate_server.gateway.session.metadata_cache_file import MetadataCacheFile
from tidegate_server.gateway.session.metastore_snapshot import (
    KnownTable,
    MetastoreSnapshot,
    with_details,
    with_names,
    without_details,
    words_of,
)
from tidegate_server.gateway.session.patterns import compile_pattern

logger = logging.getLogger(__name__)

NAMES_LIFETIME = timedelta(seconds=10)
FUNCTIONS_LIFETIME = timedelta(seconds=60)
GLOBAL_VIEWS = "global_temp"
"""The schema of the temporary views that all sessions share; it always exists."""
READ_AT_ONCE = 100
"""Maximum number of tables whose details a call waits for; more are read in the background."""

PATIENCE = 0.3
"""Seconds that a call waits for new names if the known ones are only outdated."""
_BATCH = 2_000
# The metastore handles one request at a time: the background thread reads small batches, with a
# pause as long as the batch took, so that no statement waits long.
_BACKGROUND_BATCH = 20
_BACKGROUND_REST = 1.0


class MetadataCache:
    """Merges the catalog's materialized tables with the metastore's other tables.

    The catalog is read on every call. The metastore's names are read again, within milliseconds,
    when they are outdated or a statement may have changed them. Comments and columns are more
    expensive: they are read once per table, and again when they are outdated or a statement
    mentions the table. Nothing waits for an engine: without one the cached data is returned,
    whatever its age. If the names are only outdated and the metastore is slow, the call returns
    them soon and the next call has the new ones.
    """

    def __init__(
        self,
        catalog: CatalogReader,
        engine: Engine,
        clock: Clock,
        file: MetadataCacheFile | None = None,
        *,
        with_owners: bool = False,
    ) -> None:
        """``with_owners`` also reads the owners of schemas, tables and views."""
        self._with_owners = with_owners
        self._catalog = catalog
        self._engine = engine
        self._clock = clock
        self._file = file
        self._snapshot = MetastoreSnapshot()
        self._names_at: datetime | None = None
        self._asking_lock = threading.Lock()
        self._change_lock = threading.Lock()
        self._changes = 0
        self._reader: threading.Thread | None = None
        self._namer: threading.Thread | None = None
        self._cached_listing: (
            tuple[MetastoreSnapshot, tuple[MaterializedTable, ...], Listing] | None
        ) = None
        self.shared_views = False
        """Whether a session may have created a view that is visible in all sessions."""
        self._functions: tuple[FunctionName, ...] = ()
        self._functions_at: datetime | None = None

    def load(self) -> None:
        """Load the snapshot of the previous gateway; called before the first metadata call."""
        if self._file is not None:
            self._snapshot = self._file.load()

    def invalidate(self, statement: str | None = None) -> None:
        """Mark the names as outdated; called after a statement that may have changed them.

        Details of tables that the statement does not mention are kept.
        """
        with self._change_lock:
            self._changes += 1
            self._names_at = self._functions_at = None
            if statement is not None:
                self._snapshot = without_details(self._snapshot, words_of(statement))

    def listing(self) -> Listing:
        """Return schemas and tables; only materialized tables have columns."""
        snapshot = self._with_current_names()
        wanted = self._stale_tables(snapshot.tables.values(), with_columns=False)
        if len(wanted) > READ_AT_ONCE:
            self._read_in_background()
        else:
            self._read(wanted, with_columns=False)
        return self._full_listing(tuple(self._catalog.tables()))

    def columns_of(self, pattern: TablePattern) -> Listing:
        """Return tables with their columns, reading only those that match the pattern."""
        snapshot = self._with_current_names()
        schema, table = compile_pattern(pattern.schema), compile_pattern(pattern.table)
        materialized = tuple(self._catalog.tables())
        ours = {found.name.folded() for found in materialized}
        wanted = [
            known
            for name, known in snapshot.tables.items()
            if name not in ours
            and schema.fullmatch(known.name.schema)
            and table.fullmatch(known.name.table)
        ]
        self._read(self._stale_tables(wanted, with_columns=True), with_columns=True)
        return self._full_listing(materialized)

    def save(self) -> None:
        """Save the snapshot for the next gateway."""
        if self._file is not None:
            self._file.save(self._snapshot)

    def schemas(self) -> tuple[str, ...]:
        """Return the names of all known schemas."""
        self._with_current_names()
        return self._full_listing(tuple(self._catalog.tables())).schemas

    def knows_metastore(self) -> bool:
        """Return whether the names have been read since the last change."""
        return self._names_at is not None

    def temporary_views(self, session_id: str, engine: Engine) -> tuple[ListedTable, ...]:
        """Return a session's temporary views and the global ones; none without an engine."""
        request = ListTemporaryViews(session_id=session_id)
        listed = _ask_for_session(session_id, request, engine)
        return tuple(_from_metastore(info) for info in listed.tables) if listed else ()

    def functions(self) -> tuple[FunctionName, ...]:
        """Return the functions that all sessions share; none until an engine has listed them."""
        with self._asking_lock:
            if self._is_old(self._functions_at, FUNCTIONS_LIFETIME):
                self._ask_functions()
            return self._functions

    def temporary_functions(self, session_id: str, engine: Engine) -> tuple[FunctionName, ...]:
        """Return a session's temporary functions; none without an engine."""
        request = ListTemporaryFunctions(session_id=session_id)
        listed = _ask_for_session(session_id, request, engine)
        return listed.functions if listed else ()

    def _full_listing(self, materialized: tuple[MaterializedTable, ...]) -> Listing:
        """Return all schemas and tables, reusing the previous listing unless something changed."""
        snapshot, cached = self._snapshot, self._cached_listing
        if cached is not None and cached[0] is snapshot and cached[1] == materialized:
            return cached[2]
        owners = {name: known.owner for name, known in snapshot.tables.items()}
        listing = merge(materialized, snapshot.as_table_list(), owners, snapshot.schema_owners)
        self._cached_listing = (snapshot, materialized, listing)
        return listing

    def _with_current_names(self) -> MetastoreSnapshot:
        """Return the snapshot with current names, or outdated ones if the metastore is slow."""
        if self._names_at is None:  # never read, or changed by a statement
            self._renew_names()
        elif self._is_old(self._names_at, NAMES_LIFETIME):
            self._renew_names_in_background().join(PATIENCE)
        return self._snapshot

    def _renew_names(self) -> None:
        with self._asking_lock:
            if self._is_old(self._names_at, NAMES_LIFETIME):
                self._ask_names()

    def _renew_names_in_background(self) -> threading.Thread:
        with self._change_lock:
            if self._namer is None or not self._namer.is_alive():
                self._namer = threading.Thread(target=self._renew_names, name="names", daemon=True)
                self._namer.start()
            return self._namer

    def _ask_names(self) -> None:
        changes, asked_at = self._changes, self._clock.now()
        try:
            answer = self._engine.call(ListNames(with_owners=self._with_owners), wait=0)
        except ServerError as error:
            logger.debug("Listing the metastore failed: %s", error)
            return
        with self._change_lock:
            before = self._snapshot
            self._snapshot = with_names(before, answer)
            if self._changes == changes:
                self._names_at = asked_at
        if before.tables.keys() != self._snapshot.tables.keys():
            self.save()

    def _stale_tables(
        self, tables: Iterable[KnownTable], *, with_columns: bool
    ) -> list[KnownTable]:
        # Details are used longer the more tables there are, which bounds the rate of reads.
        lifetime = NAMES_LIFETIME * max(1, len(self._snapshot.tables) // READ_AT_ONCE)
        since = self._clock.now() - lifetime
        return [t for t in tables if not t.is_fresh(since, with_columns=with_columns)]

    def _read_in_background(self) -> None:
        with self._change_lock:
            if self._reader is not None and self._reader.is_alive():
                return
            self._reader = threading.Thread(target=self._read_all, name="metastore", daemon=True)
            self._reader.start()

    def _read_all(self) -> None:
        wanted = self._stale_tables(self._snapshot.tables.values(), with_columns=False)
        self._read(wanted, with_columns=False, batch_size=_BACKGROUND_BATCH, rest=_BACKGROUND_REST)

    def _read(
        self,
        tables: Sequence[KnownTable],
        *,
        with_columns: bool,
        batch_size: int = _BATCH,
        rest: float = 0.0,
    ) -> None:
        """Read details in batches, schema by schema; stop if the engine does not answer.

        ``rest`` is the length of the pause after each batch, as a multiple of its duration.
        """
        names = sorted(table.name for table in tables)
        for schema, group in groupby(names, key=lambda name: name.schema):
            of_schema = list(group)
            for start in range(0, len(of_schema), batch_size):
                some = of_schema[start : start + batch_size]
                batch = self._still_stale(some, with_columns=with_columns)
                if not batch:
                    continue
                began = time.monotonic()
                if not self._read_batch(schema, batch, with_columns=with_columns):
                    return
                time.sleep(rest * (time.monotonic() - began))
        if names:
            self.save()

    def _still_stale(self, names: Iterable[TableName], *, with_columns: bool) -> tuple[str, ...]:
        """Return the names that no other thread has read meanwhile and that still exist."""
        found = (self._snapshot.tables.get(name.folded()) for name in names)
        unread = self._stale_tables((t for t in found if t is not None), with_columns=with_columns)
        return tuple(table.name.table for table in unread)

    def _read_batch(self, schema: str, names: tuple[str, ...], *, with_columns: bool) -> bool:
        changes, asked_at = self._changes, self._clock.now()
        request = ListTables(schema=schema, with_columns=with_columns, names=names)
        try:
            answer = self._engine.call(request, wait=0)
        except ServerError as error:
            logger.debug("Reading the tables of %s failed: %s", schema, error)
            return False
        with self._change_lock:
            # If something changed meanwhile, use the details, but read them again next time.
            read_at = asked_at if self._changes == changes else None
            self._snapshot = with_details(
                self._snapshot, answer.tables, read_at, with_columns=with_columns
            )
        return True

    def _ask_functions(self) -> None:
        changes, asked_at = self._changes, self._clock.now()
        try:
            answer = self._engine.call(ListFunctions(), wait=0)
        except ServerError as error:
            logger.debug("Listing the functions failed: %s", error)
            return
        self._functions = answer.functions
        with self._change_lock:
            if self._changes == changes:
                self._functions_at = asked_at

    def _is_old(self, asked_at: datetime | None, lifetime: timedelta) -> bool:
        return asked_at is None or self._clock.now() - asked_at > lifetime


def _ask_for_session(session_id: str, request: Request[A], engine: Engine) -> A | None:
    """Send a request about a session to its engine; None without one."""
    try:
        engine.call(OpenSession(session_id=session_id), wait=0)
        return engine.call(request, wait=0)
    except ServerError as error:
        logger.debug("%s failed: %s", type(request).__name__, error)
        return None


def merge(
    materialized: Iterable[MaterializedTable],
    metastore: TableList,
    owners: Mapping[TableName, str] | None = None,
    schema_owners: Mapping[str, str] | None = None,
) -> Listing:
    """Merge the materialized tables into the metastore's; each table appears once."""
    owners = owners or {}
    listed: dict[TableName, ListedTable] = {
        info.name.folded(): _from_metastore(info, owners.get(info.name.folded(), ""))
        for info in metastore.tables
        if not info.name.table.startswith(STORAGE_PREFIX)
    }
    listed.update({table.name.folded(): _from_catalog(table) for table in materialized})
    schemas = {DEFAULT_SCHEMA, GLOBAL_VIEWS, *metastore.schemas}
    schemas.update(table.name.schema for table in listed.values())
    return Listing(
        schemas=tuple(sorted(schemas)),
        tables=tuple(listed[name] for name in sorted(listed)),
        schema_owners=schema_owners or {},
    )


def _from_metastore(info: TableInfo, owner: str = "") -> ListedTable:
    kind = VIEW if "VIEW" in info.type.upper() else TABLE
    return ListedTable(
        name=info.name, type=kind, comment=info.comment, columns=info.columns, owner=owner
    )


def _from_catalog(table: MaterializedTable) -> ListedTable:
    definition = table.definition
    return ListedTable(
        name=table.name,
        type=MATERIALIZED_TABLE,
        comment=definition.comment,
        columns=visible_schema(definition.visible).columns,
        primary_key=definition.primary_key,
    )
