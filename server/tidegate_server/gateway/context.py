"""What a command gets: its session's state and the services it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate_server.core.config import Config
from tidegate_server.core.jobs import JobInsert
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.messages.requests import Ping
from tidegate_server.core.model.access import Features
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import CATALOG_KINDS
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.audit.record import Record
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.engine_pool import EnginePool
from tidegate_server.gateway.link.memory import MemoryWatch
from tidegate_server.gateway.link.routing import Home
from tidegate_server.gateway.link.targets import Target
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.runs.background import Background
from tidegate_server.gateway.runs.jobs import JobKeeper
from tidegate_server.gateway.runs.waves import Waves
from tidegate_server.gateway.scheduler.base import Ledger, RunRefresh, WorkflowScheduler
from tidegate_server.gateway.spark_catalogs import SentCatalogs
from tidegate_server.gateway.store.database import StoreState
from tidegate_server.gateway.store.external import ExternalObjects, MemoryExternalObjects
from tidegate_server.gateway.store.privileges import MemoryPrivileges, Privileges

WARNING: Final = "Warning: "
"""Prefix of a log line with a warning; clients get it as a message of the statement."""
NOTE: Final = "Note: "
"""Prefix of a log line about a statement's outcome; clients get it as a message, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services shared by all sessions; built once by ``app``."""

    config: Config
    catalog: Catalog
    ledger: Ledger
    scheduler: WorkflowScheduler
    engine: Engine
    """Runs the gateway's own requests, and those about a table in its executor's engine."""
    run_refresh: RunRefresh
    waves: Waves
    cancel_refresh: Callable[[str], bool]
    """Cancels the refreshes that an operation started, by its id; False if none is running."""
    publish_system_tables: Callable[[str, bool], None]
    """Updates the tables of information_schema before a statement with this text reads them,
    waiting for an engine that knows them; those for administrators only on request."""
    clock: Clock
    new_id: Callable[[], str]
    server_id: str
    metrics: Metrics = field(default_factory=Metrics)
    audit: AuditLog = field(default_factory=AuditLog)
    privileges: Privileges = field(default_factory=MemoryPrivileges)
    external: ExternalObjects = field(default_factory=MemoryExternalObjects)
    sent_catalogs: SentCatalogs = field(default_factory=SentCatalogs)
    jobs: JobKeeper | None = None
    """Keeps jobs running; None where there are none."""
    background: Background = field(default_factory=Background)
    store: StoreState | None = None
    """The health of the store; None if definitions are kept in memory."""
    memory: MemoryWatch | None = None
    """The memory of the engine; None if it is not watched."""
    user_engines: EnginePool | None = None
    """The engines of users; None if all share the gateway's."""
    target_engines: Mapping[str, EnginePool] = field(default_factory=dict)
    """The engines that tables choose, by the names of their sections."""
    may_use: Callable[[ExternalObject, str], bool] = lambda catalog, user: True
    """Whether a user has the privilege to use a catalog or connection."""

    def engine_of(self, user: str) -> Engine:
        """Return the engine that runs what a user asks for."""
        if self.user_engines is None or not user:
            return self.engine
        return self.user_engines.of(user)

    def ensure_catalogs(self, user: str) -> None:
        """Give a user's engine the catalogs and connections as the store has them; waits for it.

        An engine that is the user's alone gets only those that the user may use.
        """
        alone = bool(user) and self.user_engines is not None
        self._ensure_catalogs_in(self.engine_of(user), user if alone else "")

    def start_engine(self, target: Target) -> None:
        """Start the engine that tables can choose, unless it is up.

        :raises ServerError: ENGINE_UNAVAILABLE if it does not start.
        """
        if target.engine:
            self.target_engines[target.engine].of(target.key).call(Ping())

    def ensure_catalogs_of(self, home: Home) -> None:
        """Give the engine of a table the catalogs and connections that it may need."""
        self._ensure_catalogs_in(home.engine, home.user)

    def _ensure_catalogs_in(self, engine: Engine, user: str) -> None:
        """Give an engine all of them, or those that its only user may use."""
        found = tuple(
            each
            for kind in CATALOG_KINDS
            for each in self.external.all(kind)
            if not user or self.may_use(each, user)
        )
        self.sent_catalogs.ensure(found, engine, self.config.secrets)


@dataclass(slots=True, kw_only=True)
class SessionState:
    """The mutable state of a session; the engine's child session mirrors it.

    ``settings`` overlays the server's configuration with every SET of the session.
    """

    session_id: str
    user: str
    real_user: str = ""
    """Who logged in; ``user`` differs under impersonation."""
    address: str = ""
    """The address of the client that opened the session; empty if unknown."""
    catalog: str
    schema: str
    settings: dict[str, str] = field(default_factory=dict)
    read_by_client: tuple[str, ...] = ()
    """Prefixes of settings that have an effect in the client, as those of Flink's SQL client."""
    engine_generation: int | None = None
    """The engine start in which the child session was opened; None if it was never opened."""
    temporary: set[str] = field(default_factory=set)
    """The session's temporary objects in that engine, such as ``view v``."""
    statement_set: list[JobInsert | SparkStatement] | None = None
    """The INSERTs since BEGIN STATEMENT SET, over streams and others; None if no set is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The context in which one statement runs."""

    services: Services
    session: SessionState
    operation_id: str
    log: Callable[[str], None]
    """Adds a line to the statement's log; :meth:`warn` and :meth:`note` also reach the client."""
    progress: Callable[[Progress], None]
    overlay: Mapping[str, str] = field(default_factory=dict)
    """Settings for this statement alone (Thrift's confOverlay)."""
    features: Features | None = None
    """What the user may use beyond tables; None for all."""
    record: Record = field(default_factory=Record)
    """What the audit log says about the statement; privilege checks add its objects."""
    require_wanted: Callable[[], None] = lambda: None
    """Raises the reason once a client or a timeout has ended the statement."""

    @property
    def engine(self) -> Engine:
        """The engine of the session's user."""
        return self.services.engine_of(self.session.user)

    def warn(self, text: str) -> None:
        """Warn the user; the statement continues."""
        self.log(WARNING + text)

    def note(self, text: str) -> None:
        """Report an outcome that the statement's result does not show."""
        self.log(NOTE + text)

    def setting(self, key: str) -> str | None:
        """Return a setting in effect for this statement, or None."""
        for layer in (self.overlay, self.session.settings, self.services.config.options):
            if key in layer:
                return layer[key]
        return None
