"""What a command gets: its session's state and the services it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate_server.core.config import Config
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.model.access import Features
from tidegate_server.core.model.clock import Clock
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.connections import SentConnections
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.memory import MemoryWatch
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.runs.background import Background
from tidegate_server.gateway.runs.waves import Waves
from tidegate_server.gateway.scheduler.base import Ledger, RunRefresh, WorkflowScheduler
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
    run_refresh: RunRefresh
    waves: Waves
    cancel_refresh: Callable[[str], bool]
    """Cancels the refreshes that an operation started, by its id; False if none is running."""
    publish_system_tables: Callable[[str], None]
    """Updates the tables of information_schema before a statement reads them, waiting for an
    engine that knows them."""
    clock: Clock
    new_id: Callable[[], str]
    server_id: str
    metrics: Metrics = field(default_factory=Metrics)
    privileges: Privileges = field(default_factory=MemoryPrivileges)
    external: ExternalObjects = field(default_factory=MemoryExternalObjects)
    sent_connections: SentConnections = field(default_factory=SentConnections)
    background: Background = field(default_factory=Background)
    store: StoreState | None = None
    """The health of the store; None if definitions are kept in memory."""
    memory: MemoryWatch | None = None
    """The memory of the engine; None if it is not watched."""

    def ensure_connections(self) -> None:
        """Give the engine the connections as the store has them; waits for an engine."""
        found = self.external.all(SecuredKind.CONNECTION)
        self.sent_connections.ensure(found, self.engine, self.config.secrets)


@dataclass(slots=True, kw_only=True)
class SessionState:
    """The mutable state of a session; the engine's child session mirrors it.

    ``settings`` overlays the server's configuration with every SET of the session.
    """

    session_id: str
    user: str
    real_user: str = ""
    """Who logged in; ``user`` differs under impersonation."""
    catalog: str
    schema: str
    settings: dict[str, str] = field(default_factory=dict)
    engine_generation: int | None = None
    """The engine start in which the child session was opened; None if it was never opened."""
    temporary: set[str] = field(default_factory=set)
    """The session's temporary objects in that engine, such as ``view v``."""


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
    require_wanted: Callable[[], None] = lambda: None
    """Raises the reason once a client or a timeout has ended the statement."""

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
