"""A cached picture of the metastore, so that metadata calls need no engine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
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
from tidegate_server.gateway.session.metadata_cache_file import KeptPicture
from tidegate_server.gateway.session.metastore_snapshot import (
    KnownTable,
    MetastoreSnapshot,
    forgetting,
    mentioned,
    with_details,
    with_names,
)
from tidegate_server.gateway.session.patterns import compile_pattern

logger = logging.getLogger(__name__)

NAMES_LIFETIME = timedelta(seconds=10)
FUNCTIONS_LIFETIME = timedelta(seconds=60)
GLOBAL_VIEWS = "global_temp"
"""The schema of the temporary views that all sessions share, which is always there."""
READ_AT_ONCE = 100
"""Tables whose details a call waits for; those of more are read behind its back."""

PATIENCE = 0.3
"""Seconds that a call waits for names when those that it has are merely old."""
_BATCH = 2_000
# The metastore does one thing at a time: what is read behind the back of calls is read in small
# parts with as long a rest after each, so that no statement waits long for its turn.
_BATCH_BEHIND = 20
_REST_BEHIND = 1.0


class Snapshot:
    """Merges the catalog's materialized tables with the metastore's other tables.

    The catalog is always asked. Of the metastore, the names are asked for again when they are old
    or a statement may have changed them, which takes milliseconds; what costs more, comments and
    columns, is read once per table and again after a statement that mentions it or when it is old.
    Nothing waits for an engine: without one the kept answer stands, whatever its age. Nor does a
    call wait long for a slow metastore because the names are old: the next call has the new ones.
    """

    def __init__(
        self, catalog: CatalogReader, engine: Engine, clock: Clock, kept: KeptPicture | None = None
    ) -> None:
        self._catalog = catalog
        self._engine = engine
        self._clock = clock
        self._kept = kept
        self._picture = MetastoreSnapshot()
        self._names_at: datetime | None = None
        self._asking = threading.Lock()
        self._changing = threading.Lock()
        self._changes = 0
        self._reader: threading.Thread | None = None
        self._namer: threading.Thread | None = None
        self._made: tuple[MetastoreSnapshot, tuple[MaterializedTable, ...], Listing] | None = None
        self.shared_views = False
        """Whether a session may have made a view that all sessions see."""
        self._functions: tuple[FunctionName, ...] = ()
        self._functions_at: datetime | None = None

    def load(self) -> None:
        """Take up what the gateway before this one knew; called before the first question."""
        if self._kept is not None:
            self._picture = self._kept.load()

    def invalidate(self, statement: str | None = None) -> None:
        """Ask the engine again next time; called after a statement that may have changed names.

        What is known of tables that the statement does not mention stays.
        """
        with self._changing:
            self._changes += 1
            self._names_at = self._functions_at = None
            if statement is not None:
                self._picture = forgetting(self._picture, mentioned(statement))

    def listing(self) -> Listing:
        """Return schemas and tables; the columns only of materialized tables."""
        picture = self._named()
        wanted = self._unread(picture.tables.values(), with_columns=False)
        if len(wanted) > READ_AT_ONCE:
            self._read_behind()
        else:
            self._read(wanted, with_columns=False)
        return self._merged(tuple(self._catalog.tables()))

    def columns_of(self, pattern: TablePattern) -> Listing:
        """Return tables with their columns, reading no more of them than the pattern needs."""
        picture = self._named()
        schema, table = compile_pattern(pattern.schema), compile_pattern(pattern.table)
        materialized = tuple(self._catalog.tables())
        ours = {found.name.folded() for found in materialized}
        wanted = [
            known
            for name, known in picture.tables.items()
            if name not in ours
            and schema.fullmatch(known.name.schema)
            and table.fullmatch(known.name.table)
        ]
        self._read(self._unread(wanted, with_columns=True), with_columns=True)
        return self._merged(materialized)

    def keep(self) -> None:
        """Save what is known for the next gateway."""
        if self._kept is not None:
            self._kept.save(self._picture)

    def schemas(self) -> tuple[str, ...]:
        """Return the names of all schemas known."""
        self._named()
        return self._merged(tuple(self._catalog.tables())).schemas

    def knows_metastore(self) -> bool:
        """Whether an engine has told what there is since the last change."""
        return self._names_at is not None

    def temporary_views(self, session_id: str) -> tuple[ListedTable, ...]:
        """Return the views of a session and the global ones; none without an engine."""
        listed = self._of_session(session_id, ListTemporaryViews(session_id=session_id))
        return tuple(_from_metastore(info) for info in listed.tables) if listed else ()

    def functions(self) -> tuple[FunctionName, ...]:
        """Return the functions of no session alone; none until an engine has told them once."""
        with self._asking:
            if self._is_old(self._functions_at, FUNCTIONS_LIFETIME):
                self._ask_functions()
            return self._functions

    def temporary_functions(self, session_id: str) -> tuple[FunctionName, ...]:
        """Return the functions of a session alone; none without an engine."""
        listed = self._of_session(session_id, ListTemporaryFunctions(session_id=session_id))
        return listed.functions if listed else ()

    def _of_session(self, session_id: str, request: Request[A]) -> A | None:
        """Return what the engine lists of a session; None without an engine."""
        try:
            self._engine.call(OpenSession(session_id=session_id), wait=0)
            return self._engine.call(request, wait=0)
        except ServerError as problem:
            logger.debug("%s was not answered: %s", type(request).__name__, problem)
            return None

    def _merged(self, materialized: tuple[MaterializedTable, ...]) -> Listing:
        """Return everything; the listing of before unless something changed."""
        picture, made = self._picture, self._made
        if made is not None and made[0] is picture and made[1] == materialized:
            return made[2]
        listing = merge(materialized, picture.listed())
        self._made = (picture, materialized, listing)
        return listing

    def _named(self) -> MetastoreSnapshot:
        """Return the picture with names that are not old, or with old ones of a slow metastore."""
        if self._names_at is None:  # never asked for, or changed by a statement of ours
            self._renew_names()
        elif self._is_old(self._names_at, NAMES_LIFETIME):
            self._renew_names_behind().join(PATIENCE)
        return self._picture

    def _renew_names(self) -> None:
        with self._asking:
            if self._is_old(self._names_at, NAMES_LIFETIME):
                self._ask_names()

    def _renew_names_behind(self) -> threading.Thread:
        with self._changing:
            if self._namer is None or not self._namer.is_alive():
                self._namer = threading.Thread(target=self._renew_names, name="names", daemon=True)
                self._namer.start()
            return self._namer

    def _ask_names(self) -> None:
        changes, asked_at = self._changes, self._clock.now()
        try:
            answer = self._engine.call(ListNames(), wait=0)
        except ServerError as problem:
            logger.debug("The metastore was not listed: %s", problem)
            return
        with self._changing:
            before = self._picture
            self._picture = with_names(before, answer)
            if self._changes == changes:
                self._names_at = asked_at
        if before.tables.keys() != self._picture.tables.keys():
            self.keep()

    def _unread(self, tables: Iterable[KnownTable], *, with_columns: bool) -> list[KnownTable]:
        # The more tables there are, the longer the details stand: reading goes on at a fixed rate.
        lifetime = NAMES_LIFETIME * max(1, len(self._picture.tables) // READ_AT_ONCE)
        since = self._clock.now() - lifetime
        return [t for t in tables if not t.is_fresh(since, with_columns=with_columns)]

    def _read_behind(self) -> None:
        with self._changing:
            if self._reader is not None and self._reader.is_alive():
                return
            self._reader = threading.Thread(target=self._read_all, name="metastore", daemon=True)
            self._reader.start()

    def _read_all(self) -> None:
        wanted = self._unread(self._picture.tables.values(), with_columns=False)
        self._read(wanted, with_columns=False, batch_size=_BATCH_BEHIND, rest=_REST_BEHIND)

    def _read(
        self,
        tables: Sequence[KnownTable],
        *,
        with_columns: bool,
        batch_size: int = _BATCH,
        rest: float = 0.0,
    ) -> None:
        """Read details batch by batch, schema by schema; ends early without an engine.

        ``rest`` is how many times as long as it took a pause follows each batch.
        """
        names = sorted(table.name for table in tables)
        for schema, group in groupby(names, key=lambda name: name.schema):
            of_schema = list(group)
            for start in range(0, len(of_schema), batch_size):
                some = of_schema[start : start + batch_size]
                batch = self._still_unread(some, with_columns=with_columns)
                if not batch:
                    continue
                began = time.monotonic()
                if not self._read_batch(schema, batch, with_columns=with_columns):
                    return
                time.sleep(rest * (time.monotonic() - began))
        if names:
            self.keep()

    def _still_unread(self, names: Iterable[TableName], *, with_columns: bool) -> tuple[str, ...]:
        """Return the tables of a schema that nobody else has read, or dropped, meanwhile."""
        found = (self._picture.tables.get(name.folded()) for name in names)
        unread = self._unread((t for t in found if t is not None), with_columns=with_columns)
        return tuple(table.name.table for table in unread)

    def _read_batch(self, schema: str, names: tuple[str, ...], *, with_columns: bool) -> bool:
        changes, asked_at = self._changes, self._clock.now()
        request = ListTables(schema=schema, with_columns=with_columns, names=names)
        try:
            answer = self._engine.call(request, wait=0)
        except ServerError as problem:
            logger.debug("Tables of %s were not read: %s", schema, problem)
            return False
        with self._changing:
            # If something changed meanwhile, this is shown, but read again next time.
            read_at = asked_at if self._changes == changes else None
            self._picture = with_details(
                self._picture, answer.tables, read_at, with_columns=with_columns
            )
        return True

    def _ask_functions(self) -> None:
        changes, asked_at = self._changes, self._clock.now()
        try:
            answer = self._engine.call(ListFunctions(), wait=0)
        except ServerError as problem:
            logger.debug("The functions were not listed: %s", problem)
            return
        self._functions = answer.functions
        with self._changing:
            if self._changes == changes:
                self._functions_at = asked_at

    def _is_old(self, asked_at: datetime | None, lifetime: timedelta) -> bool:
        return asked_at is None or self._clock.now() - asked_at > lifetime


def merge(materialized: Iterable[MaterializedTable], metastore: TableList) -> Listing:
    """Lay the materialized tables over the metastore's; each table appears once."""
    listed: dict[TableName, ListedTable] = {
        info.name.folded(): _from_metastore(info)
        for info in metastore.tables
        if not info.name.table.startswith(STORAGE_PREFIX)
    }
    listed.update({table.name.folded(): _from_catalog(table) for table in materialized})
    schemas = {DEFAULT_SCHEMA, GLOBAL_VIEWS, *metastore.schemas}
    schemas.update(table.name.schema for table in listed.values())
    return Listing(
        schemas=tuple(sorted(schemas)), tables=tuple(listed[name] for name in sorted(listed))
    )


def _from_metastore(info: TableInfo) -> ListedTable:
    kind = VIEW if "VIEW" in info.type.upper() else TABLE
    return ListedTable(name=info.name, type=kind, comment=info.comment, columns=info.columns)


def _from_catalog(table: MaterializedTable) -> ListedTable:
    return ListedTable(
        name=table.name,
        type=MATERIALIZED_TABLE,
        comment=table.comment,
        columns=visible_schema(table.visible).columns,
        primary_key=table.primary_key,
    )
