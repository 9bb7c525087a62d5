"""Opens, finds, expires and closes sessions."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.names import DEFAULT_CATALOG, DEFAULT_SCHEMA
from tidegate_server.gateway.audit.record import Event, Record
from tidegate_server.gateway.authorization.setting_checks import check_settings
from tidegate_server.gateway.command.settings import own_notices, spark_notices
from tidegate_server.gateway.context import Services, SessionState
from tidegate_server.gateway.definition.resolve import canonical_catalog
from tidegate_server.gateway.link.client import ABSENCE
from tidegate_server.gateway.options import sparks_names
from tidegate_server.gateway.session.catalog_metadata import catalogs_of
from tidegate_server.gateway.session.configuration import SessionOptions, normalise
from tidegate_server.gateway.session.executor import Executor
from tidegate_server.gateway.session.handle import Handle, issue
from tidegate_server.gateway.session.metadata_cache import MetadataCache
from tidegate_server.gateway.session.metadata_cache_file import MetadataCacheFile
from tidegate_server.gateway.session.operation import Operation
from tidegate_server.gateway.session.session import Prepare, Session

logger = logging.getLogger(__name__)

ANONYMOUS = "anonymous"
_ENGINE_WAIT = 20.0
"""Seconds that opening a session waits for an engine: clients have short timeouts."""
_ALWAYS_THERE = frozenset({DEFAULT_SCHEMA, "information_schema", "global_temp"})


class SessionManager:
    """All sessions of the gateway, and the connection that each belongs to.

    A handle is valid on any connection. When the last connection that used a session has ended,
    it is closed after ``server.disconnect_grace`` seconds, unless another connection uses it.
    """

    def __init__(
        self,
        services: Services,
        prepare: Prepare,
        cache_file: MetadataCacheFile | None = None,
    ) -> None:
        """``cache_file`` holds the metastore snapshot of the previous gateway."""
        self.executor = Executor(
            services.engine, services.cancel_refresh, services.config.server.workers
        )
        self.snapshot = MetadataCache(
            services.catalog,
            services.engine,
            services.clock,
            cache_file,
            with_owners=services.config.authorization.enabled,
        )
        self.metrics = services.metrics
        self._services = services
        self._settings = services.config.server
        self._prepare = prepare
        self._sessions: dict[bytes, Session] = {}
        self._owners: dict[bytes, Session] = {}
        self._by_connection: dict[int, set[bytes]] = {}
        self._connection_ids = itertools.count(1)
        self._lock = threading.Lock()

    def connect(self) -> int:
        """Register a connection and return its id."""
        with self._lock:
            connection_id = next(self._connection_ids)
            self._by_connection[connection_id] = set()
            return connection_id

    def disconnect(self, connection_id: int) -> None:
        """Record that a connection ended; its sessions stay open for the grace period."""
        now = self._services.clock.now()
        with self._lock:
            for guid in self._by_connection.pop(connection_id, ()):
                if session := self._sessions.get(guid):
                    session.connections.discard(connection_id)
                    # A client may have a new connection before the old one is known to have ended.
                    session.orphaned_at = None if session.connections else now

    def open(
        self,
        user: str,
        configuration: Mapping[str, str] | None,
        connection_id: int,
        protocol: int = 10,
        *,
        real_user: str | None = None,
        groups: tuple[str, ...] | None = None,
        address: str = "",
    ) -> Session:
        """Open a session; an empty user is ``anonymous``. Blocks, since it may call the engine.

        ``real_user`` is the user who logged in, if that is another one; ``groups`` are the groups
        of that user, None if the login did not report them. ``address`` is the client's.

        :raises ServerError: TOO_MANY, SCHEMA_NOT_FOUND, INVALID_REQUEST if the connection ended
            meanwhile, AUDIT_UNAVAILABLE, or the error of SET for a setting that it rejects.
        """
        state = SessionState(
            session_id=self._services.new_id(),
            user=user or ANONYMOUS,
            real_user=real_user or user or ANONYMOUS,
            address=address,
            catalog=DEFAULT_CATALOG,
            schema=DEFAULT_SCHEMA,
        )
        record = Record(
            event=Event.LOGIN,
            user=state.user,
            real_user=state.real_user,
            address=address,
        )
        with self._services.audit.recording(record):
            session = self._open(state, configuration, connection_id, protocol, groups)
            record.session_id = session.id
        return session

    def _open(
        self,
        state: SessionState,
        configuration: Mapping[str, str] | None,
        connection_id: int,
        protocol: int,
        groups: tuple[str, ...] | None,
    ) -> Session:
        if groups is not None:
            self._services.privileges.set_groups(state.real_user, groups)
        options = self._check_options(normalise(configuration), state.user)
        for warning in options.warnings:
            logger.warning("OpenSession of user %s: %s", state.user, warning)
        state.catalog, state.schema = self._place(options, state.user)
        state.settings = dict(options.settings)
        session = self._create_session(state, options, protocol)
        with self._lock:
            self._require_free_slot(session.real_user)
            owned = self._by_connection.get(connection_id)
            if owned is None:
                raise error(Code.INVALID_REQUEST, reason="its connection has ended")
            owned.add(session.handle.guid)
            session.connections.add(connection_id)
            self._sessions[session.handle.guid] = session
        logger.info(
            "Session %s of user %s opened by %s", session.id, session.user, session.real_user
        )
        return session

    def get(self, handle: Handle, connection_id: int) -> Session:
        """Return the session of a handle and mark it as used.

        :raises ServerError: INVALID_SESSION_HANDLE.
        """
        session = self._sessions.get(handle.guid)
        if session is None or not session.handle.matches(handle):
            raise error(Code.INVALID_SESSION_HANDLE, handle=handle)
        self._mark_used(session, connection_id)
        return session

    def find_operation(
        self, handle: Handle, connection_id: int
    ) -> tuple[Session, Operation] | None:
        """Return the operation of a handle with its session, and mark both as used."""
        session = self._owners.get(handle.guid)
        operation = session.find(handle.guid) if session is not None else None
        if session is None or operation is None or not operation.handle.matches(handle):
            return None
        self._mark_used(session, connection_id)
        operation.touch()
        return session, operation

    def is_still_open(self, operation: Operation, connection_id: int) -> bool:
        """Return whether an operation is still open; if so, mark it and its session as used."""
        session = self._owners.get(operation.handle.guid)
        if session is None or session.find(operation.handle.guid) is not operation:
            return False
        self._mark_used(session, connection_id)
        operation.touch()
        return True

    def close(self, session: Session) -> None:
        """Close a session and its operations; blocks briefly."""
        with self._lock:
            self._sessions.pop(session.handle.guid, None)
            for connection_id in session.connections:
                self._by_connection.get(connection_id, set()).discard(session.handle.guid)
        session.close()
        logger.info("Session %s closed", session.id)

    def sweep(self) -> None:
        """Close idle sessions and operations, and sessions whose grace period has expired."""
        now = self._services.clock.now()
        for session in tuple(self._sessions.values()):
            if self._is_expired(session, now):
                logger.info("Session %s expired", session.id)
                self.close(session)
            else:
                session.release_idle(now, self._settings.operation_idle_timeout)

    def shutdown(self) -> None:
        """Close everything."""
        for session in tuple(self._sessions.values()):
            self.close(session)
        self.executor.shutdown()
        self.snapshot.save()

    def sessions(self) -> Iterable[Session]:
        """Return the open sessions."""
        return tuple(self._sessions.values())

    def _create_session(
        self,
        state: SessionState,
        options: SessionOptions,
        protocol: int,
    ) -> Session:
        return Session(
            handle=issue(state.session_id),
            state=state,
            options=options,
            protocol=protocol,
            owners=self._owners,
            services=self._services,
            executor=self.executor,
            snapshot=self.snapshot,
            prepare=self._prepare,
            require_turn=self._require_turn,
        )

    def _check_options(self, options: SessionOptions, user: str) -> SessionOptions:
        """Check the settings as SET does, and return the options with all warnings.

        Connecting works even if the engine does not start: the session's first statement in Spark
        applies the settings and reports invalid ones.
        """
        config, settings = self._services.config, sparks_names(options.settings)
        notices = own_notices(settings, config)
        check_settings(settings, self._services, user)
        try:
            notices += spark_notices(settings, self._services.engine, wait=_ENGINE_WAIT)
        except ServerError as error:
            if error.code not in ABSENCE:
                raise
            logger.warning("OpenSession of user %s: its settings were not checked: %s", user, error)
        return replace(options, settings=settings, warnings=(*options.warnings, *notices))

    def _require_free_slot(self, user: str) -> None:
        limit = self._settings.max_sessions
        if len(self._sessions) >= limit:
            hint = "Close sessions, or raise server.max_sessions."
            raise error(Code.TOO_MANY, what="sessions", limit=limit, hint=hint)
        limit = self._settings.max_sessions_per_user
        own = sum(session.real_user == user for session in self._sessions.values()) if limit else 0
        if limit and own >= limit:
            hint = "Close sessions, or raise server.max_sessions_per_user."
            raise error(Code.TOO_MANY, what=f"sessions of user {user}", limit=limit, hint=hint)

    def _require_turn(self, session: Session) -> None:
        limit, user = self._settings.max_statements_per_user, session.real_user
        if not limit:
            return
        own = sum(s.open_operations() for s in self.sessions() if s.real_user == user)
        if own >= limit:
            hint = "Wait until one ends, cancel one, or raise server.max_statements_per_user."
            raise error(Code.TOO_MANY, what=f"statements of user {user}", limit=limit, hint=hint)

    def _place(self, options: SessionOptions, user: str) -> tuple[str, str]:
        """Return the catalog and schema in which a session begins.

        The schema of another catalog is checked by the first statement that needs the engine.

        :raises ServerError: SCHEMA_NOT_FOUND; OBJECT_NOT_FOUND for a catalog that the user may not
            use or that does not exist.
        """
        catalog, schema = options.catalog, options.schema
        first, dot, rest = (schema or "").partition(".")
        usable = catalogs_of(user, self._services) if dot or catalog is not None else ()
        if catalog is None and dot and first.lower() in (*usable, DEFAULT_CATALOG):
            catalog, schema = first, rest
        if catalog is None or canonical_catalog(catalog, self._services) == DEFAULT_CATALOG:
            self._require_schema(schema)
            return DEFAULT_CATALOG, schema or DEFAULT_SCHEMA
        if catalog.lower() not in usable:
            raise error(Code.OBJECT_NOT_FOUND, kind="catalog", name=catalog)
        # Clients send the schema ``default`` if their user names none.
        return catalog.lower(), "" if schema in (None, DEFAULT_SCHEMA) else str(schema)

    def _require_schema(self, schema: str | None) -> None:
        if schema is None or schema.lower() in _ALWAYS_THERE:
            return
        if self._has_schema(schema):
            return
        self.snapshot.invalidate()
        if not self._has_schema(schema) and self.snapshot.knows_metastore():
            raise error(Code.SCHEMA_NOT_FOUND, schema=schema)

    def _has_schema(self, schema: str) -> bool:
        return schema.lower() in {known.lower() for known in self.snapshot.schemas()}

    def _mark_used(self, session: Session, connection_id: int) -> None:
        session.touch(self._services.clock.now())
        if connection_id in session.connections:
            return
        with self._lock:
            owned = self._by_connection.get(connection_id)
            if owned is not None and session.handle.guid in self._sessions:
                owned.add(session.handle.guid)
                session.connections.add(connection_id)
                session.orphaned_at = None

    def _is_expired(self, session: Session, now: datetime) -> bool:
        orphaned = session.orphaned_at
        if orphaned is not None:
            return (now - orphaned).total_seconds() >= self._settings.disconnect_grace
        idle = session.idle_since()
        limit = self._settings.session_idle_timeout
        return idle is not None and (now - idle).total_seconds() >= limit
