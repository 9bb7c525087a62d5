"""A session: its state and its operations."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.log_context import log_context
from tidegate_server.core.messages.requests import CloseSession
from tidegate_server.core.model.dialects import SqlDialect
from tidegate_server.core.model.names import FunctionName
from tidegate_server.core.model.result import Result
from tidegate_server.core.model.states import OperationState
from tidegate_server.core.model.zones import SESSION_ZONE
from tidegate_server.core.sql.redact import secrets_in
from tidegate_server.core.statement_size import require_parsable
from tidegate_server.gateway.audit.record import Record
from tidegate_server.gateway.authorization.listings import function_filter
from tidegate_server.gateway.authorization.users import rights_of
from tidegate_server.gateway.context import Context, Services, SessionState
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.options import dialect_in, sparks_names
from tidegate_server.gateway.session.catalog_metadata import (
    catalogs_of,
    is_alias,
    list_catalog,
    named_catalog,
)
from tidegate_server.gateway.session.configuration import SessionOptions
from tidegate_server.gateway.session.executor import Executor
from tidegate_server.gateway.session.handle import Handle, issue
from tidegate_server.gateway.session.hive_listing import NamesOnly
from tidegate_server.gateway.session.metadata import Listing, TablePattern, as_plain_tables
from tidegate_server.gateway.session.metadata_cache import MetadataCache
from tidegate_server.gateway.session.narrowing import narrow_metadata
from tidegate_server.gateway.session.operation import Operation, OperationKind, shorten
from tidegate_server.gateway.session.statement_ids import StatementIds
from tidegate_server.gateway.session.text import substitute

logger = logging.getLogger(__name__)


class PreparedStatement(Protocol):
    """A parsed statement."""

    @property
    def kind(self) -> str:
        """Its kind in its own words, of a statement of Spark the first; empty if unknown."""
        ...

    @property
    def returns_rows(self) -> bool:
        """Whether it returns rows."""
        ...

    @property
    def may_change_names(self) -> bool:
        """Whether it may create, rename or drop objects."""
        ...

    @property
    def lists_names(self) -> bool:
        """Whether it is SHOW TABLES or SHOW VIEWS."""
        ...

    def run(self, context: Context) -> Result:
        """Execute it; raises ServerError."""
        ...


Prepare = Callable[[str, SqlDialect], PreparedStatement]
"""Parses a statement; never raises."""
RequireTurn = Callable[["Session"], None]
"""Raises TOO_MANY if the user who logged in has too many running statements."""

_MAY_MAKE_TEMPORARY = re.compile(r"\b(temp|temporary|cache)\b", re.IGNORECASE)

_ALL = TablePattern()

MAX_OPERATIONS = 1000
"""Maximum number of open operations per session."""


class Session:
    """Owns its operations; thread-safe.

    ``owners`` is the manager's map from operation to session, which the session updates.
    ``protocol`` is the number n of the negotiated HIVE_CLI_SERVICE_PROTOCOL_Vn.
    """

    def __init__(
        self,
        *,
        handle: Handle,
        state: SessionState,
        options: SessionOptions,
        protocol: int,
        owners: dict[bytes, Session],
        services: Services,
        executor: Executor,
        snapshot: MetadataCache,
        prepare: Prepare,
        require_turn: RequireTurn,
    ) -> None:
        self.handle = handle
        self.id = state.session_id
        self.state = state
        self.options = options
        self.protocol = protocol
        self.snapshot = snapshot
        self.connections: set[int] = set()
        """The open connections that have used the session."""
        self.orphaned_at: datetime | None = None
        """When the last of them ended."""
        self._statement_ids = StatementIds()
        self._owners = owners
        self._services = services
        self._executor = executor
        self._prepare = prepare
        self._require_turn = require_turn
        self._operations: dict[bytes, Operation] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._may_have_temporary = False
        self._last_used = services.clock.now()

    @property
    def user(self) -> str:
        """The user that the session acts for."""
        return self.state.user

    @property
    def _engine(self) -> Engine:
        return self._services.engine_of(self.user)

    @property
    def real_user(self) -> str:
        """The user who logged in; the session may act for another user."""
        return self.state.real_user

    @property
    def zone(self) -> str:
        """The time zone of the session."""
        return self.state.settings.get(SESSION_ZONE) or self._services.config.timezone

    @property
    def max_statement_bytes(self) -> int:
        """The maximum size of a statement's text; 0 means no limit."""
        return self._services.config.engine.max_statement_bytes

    def submit_once(
        self,
        statement_id: str,
        text: str,
        *,
        overlay: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Operation:
        """Start a statement, or return its operation if it was started under this id before.

        :raises ServerError: as :meth:`submit`; INVALID_REQUEST if the id cannot be used;
            INVALID_OPERATION_HANDLE if the operation was closed.
        """

        def start() -> bytes:
            return self.submit(text, overlay=overlay, timeout=timeout).handle.guid

        guid = self._statement_ids.start_once(statement_id, text, start)
        operation = self.find(guid)
        if operation is None:
            raise error(Code.INVALID_OPERATION_HANDLE, handle=uuid.UUID(bytes=guid))
        return operation

    def submit(
        self, text: str, *, overlay: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Operation:
        """Start a statement and return immediately; ``timeout`` is in seconds.

        :raises ServerError: STATEMENT_TOO_LARGE; TOO_MANY if the session has too many open
            operations, or its user too many running statements; INVALID_SESSION_HANDLE if it is
            closed.
        """
        overlay = sparks_names(overlay or {})
        settings = {**self.state.settings, **overlay}
        try:
            statement = substitute(text, settings, self.max_statement_bytes)
            require_parsable(statement, self._services.config.engine.max_statement_tokens)
            dialect = dialect_in(overlay, self.state.settings, self._services.config.options)
            prepared = self._prepare(statement, dialect)
            return self.start(statement, prepared, overlay=overlay, timeout=timeout)
        except ServerError as problem:
            self._record_rejection(text, problem)
            raise

    def _record_rejection(self, text: str, problem: ServerError) -> None:
        """Record a statement that never ran; those that run record themselves."""
        record = Record(
            user=self.user,
            real_user=self.real_user,
            address=self.state.address,
            session_id=self.id,
            text=text,
            failure=problem,
        )
        self._services.audit.write(record)

    def start(
        self,
        statement: str,
        prepared: PreparedStatement,
        *,
        overlay: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Operation:
        """Start a statement that is prepared already; otherwise like :meth:`submit`."""
        self._require_turn(self)
        operation = self._register(
            OperationKind.EXECUTE_STATEMENT,
            statement,
            has_result_set=prepared.returns_rows,
            overlay=overlay,
            statement_kind=prepared.kind,
        )
        work = self._statement_work(operation, prepared)
        limit = self._services.config.server.query_timeout
        timeout = min(timeout or limit, limit) if limit else timeout
        with log_context(
            user=self.user,
            session_id=self.id,
            operation_id=operation.id,
            secrets=secrets_in(statement),
        ):
            logger.info("Operation %s of session %s: %s", operation.id, self.id, shorten(statement))
            self._executor.submit(operation, work, timeout)
        return operation

    def run_metadata_call(self, kind: OperationKind, work: Callable[[], Result]) -> Operation:
        """Run a metadata call on the calling thread; raises as :meth:`submit`."""
        operation = self._register(kind, kind.value, has_result_set=True, overlay=None)
        with log_context(user=self.user, session_id=self.id, operation_id=operation.id):
            self._executor.run(operation, work)
        return operation

    def find(self, guid: bytes) -> Operation | None:
        """Return one of the session's operations."""
        return self._operations.get(guid)

    def cancel(self, operation: Operation) -> None:
        """Cancel an operation, unless it has ended."""
        self._executor.cancel(operation, f" by user {self.user}")

    def release(self, operation: Operation) -> None:
        """Close an operation: cancel it, free its result and drop it."""
        self._operations.pop(operation.handle.guid, None)
        self._owners.pop(operation.handle.guid, None)
        self._end(operation)

    def close(self) -> None:
        """Close every operation and the engine's child session; later calls have no effect."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            operations, self._operations = list(self._operations.values()), {}
        for operation in operations:
            self._owners.pop(operation.handle.guid, None)
            self._end(operation)
        try:
            self._engine.call(CloseSession(session_id=self.id), wait=0)
        except ServerError as error:
            logger.debug("The engine did not close session %s: %s", self.id, error)

    def catalogs(self) -> tuple[str, ...]:
        """Return the catalogs that the user may use, besides the session catalog."""
        return catalogs_of(self.user, self._services)

    def listing(self, pattern: TablePattern = _ALL, *, tables: bool = True) -> Listing:
        """Return the tables visible in this session; only materialized tables have columns.

        If the pattern names another catalog, its tables that match; asks the engine.
        """
        other = named_catalog(pattern.catalog, self.user, self._services)
        if other is not None and not is_alias(other, self._services):
            return list_catalog(
                other, pattern, self.user, self._services, columns=False, tables=tables
            )
        return _named(other, self._visible_listing(self.snapshot.listing()))

    def columns_of(self, pattern: TablePattern) -> Listing:
        """Return the same, with the columns of the tables that match."""
        other = named_catalog(pattern.catalog, self.user, self._services)
        if other is not None and not is_alias(other, self._services):
            return list_catalog(
                other, pattern, self.user, self._services, columns=True, tables=True
            )
        return _named(other, self._visible_listing(self.snapshot.columns_of(pattern)))

    def functions(self) -> tuple[FunctionName, ...]:
        """Return the functions visible in this session, ordered by schema and name."""
        found = set(self.snapshot.functions())
        rights = rights_of(self.user, self._services)
        if rights is not None and not rights.administrator:
            found = set(filter(function_filter(self._services, rights), found))
        if self._may_have_temporary:
            found.update(self.snapshot.temporary_functions(self.id, self._engine))
        return tuple(sorted(found, key=lambda each: (each.schema or "", each.name)))

    def touch(self, now: datetime) -> None:
        """Record that the session was used."""
        self._last_used = now

    def release_idle(self, now: datetime, seconds: float) -> None:
        """Close the operations that have ended and have not been used for so many seconds."""
        for operation in tuple(self._operations.values()):
            since = operation.idle_since()
            if since is not None and (now - since).total_seconds() >= seconds:
                logger.info("Operation %s of session %s expired", operation.id, self.id)
                self.release(operation)

    def idle_since(self) -> datetime | None:
        """Return when the session was last used; None while an operation is running."""
        return None if self.open_operations() else self._last_used

    def open_operations(self) -> int:
        """Return the number of operations that have not ended."""
        return sum(not operation.state.terminal for operation in tuple(self._operations.values()))

    def _register(
        self,
        kind: OperationKind,
        statement: str,
        *,
        has_result_set: bool,
        overlay: Mapping[str, str] | None,
        statement_kind: str = "",
    ) -> Operation:
        operation = Operation(
            handle=issue(self._services.new_id()),
            kind=kind,
            clock=self._services.clock,
            statement=statement,
            has_result_set=has_result_set or self.options.always_result_set,
            overlay=overlay,
            statement_kind=statement_kind,
            on_end=self._count,
        )
        with self._lock:
            if self._closed:
                raise error(Code.INVALID_SESSION_HANDLE, handle=self.id)
            if len(self._operations) >= MAX_OPERATIONS:
                hint = "Close operations whose results have been read."
                raise error(Code.TOO_MANY, what="open operations", limit=MAX_OPERATIONS, hint=hint)
            self._operations[operation.handle.guid] = operation
            self._owners[operation.handle.guid] = self
        return operation

    def _statement_work(
        self, operation: Operation, prepared: PreparedStatement
    ) -> Callable[[], Result]:
        context = Context(
            services=self._services,
            session=self.state,
            operation_id=operation.id,
            log=operation.write_log,
            progress=operation.report,
            overlay=operation.overlay,
            require_wanted=operation.require_wanted,
        )

        def work() -> Result:
            try:
                result = prepared.run(context)
                alone = self.options.lists_names_alone and prepared.lists_names
                return NamesOnly(result) if alone else result
            finally:
                if prepared.may_change_names:
                    self._invalidate_names(operation.statement)
                self.touch(self._services.clock.now())

        return work

    def _visible_listing(self, listing: Listing) -> Listing:
        """Remove what the user may not see; add temporary views."""
        rights = rights_of(self.user, self._services)
        shown = listing
        if rights is not None and not rights.administrator:
            tables = self._services.catalog.tables()
            shown = narrow_metadata(listing, tables, rights)
        if self._may_have_temporary or self.snapshot.shared_views:
            views = self.snapshot.temporary_views(self.id, self._engine)
            shown = replace(shown, tables=(*views, *shown.tables))
        plain = self._services.config.server.materialized_as_table
        return as_plain_tables(shown) if plain else shown

    def _invalidate_names(self, statement: str) -> None:
        self.snapshot.invalidate(statement)
        if _MAY_MAKE_TEMPORARY.search(statement):
            self._may_have_temporary = True
            self.snapshot.shared_views |= "global" in statement.lower()

    def _count(self, kind: OperationKind, state: OperationState, seconds: float) -> None:
        metrics = self._services.metrics
        metrics.operation_ended(kind.value, state.value)
        if kind is OperationKind.EXECUTE_STATEMENT:
            metrics.statement_ended(state.value, seconds)

    def _end(self, operation: Operation) -> None:
        self._executor.cancel(operation, ": it was closed")
        operation.close()


def _named(catalog: str | None, listing: Listing) -> Listing:
    """Return a listing of the session catalog under the alias that a client asked for."""
    if catalog is None:
        return listing
    tables = (
        replace(each, name=replace(each.name, catalog=catalog)) if each.name.catalog else each
        for each in listing.tables
    )
    return replace(listing, tables=tuple(tables), catalog=catalog)
