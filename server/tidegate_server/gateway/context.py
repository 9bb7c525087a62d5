"""What a command is given: its session's state and the parts it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate_server.core.config import Config
from tidegate_server.core.messages.answers import Progress
from tidegate_server.core.model.clock import Clock
from tidegate_server.gateway.catalog.base import Catalog
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.memory import MemoryWatch
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.runs.background import Background
from tidegate_server.gateway.runs.waves import Waves
from tidegate_server.gateway.scheduler.base import Ledger, RunRefresh, WorkflowScheduler
from tidegate_server.gateway.store.database import StoreState
from tidegate_server.gateway.store.privileges import MemoryPrivileges, Privileges

WARNING: Final = "Warning: "
"""Begins a log line that warns of something; clients get it as a message of the statement."""
NOTE: Final = "Note: "
"""Begins a log line that says what came of a statement; clients get it as a message, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts shared by all sessions; built once by ``app``."""

    config: Config
    catalog: Catalog
    ledger: Ledger
    scheduler: WorkflowScheduler
    engine: Engine
    run_refresh: RunRefresh
    waves: Waves
    cancel_refresh: Callable[[str], bool]
    """Stops the refreshes that an operation asked for, by its id; False if none is at work."""
    publish_system_tables: Callable[[str], None]
    """Brings the tables of information_schema up to date, waiting for an engine that knows them;
    called before they are read."""
    clock: Clock
    new_id: Callable[[], str]
    server_id: str
    metrics: Metrics = field(default_factory=Metrics)
    privileges: Privileges = field(default_factory=MemoryPrivileges)
    background: Background = field(default_factory=Background)
    store: StoreState | None = None
    """How the store works; None where definitions are kept in memory."""
    memory: MemoryWatch | None = None
    """The memory of the engine; None if it is not watched."""


@dataclass(slots=True, kw_only=True)
class SessionState:
    """What statements change about their session; the engine's child session mirrors it.

    ``settings`` is the overlay over the server's configuration: every SET of the session.
    """

    session_id: str
    user: str
    real_user: str = ""
    """Who logged in; the session may act for somebody else."""
    catalog: str
    schema: str
    settings: dict[str, str] = field(default_factory=dict)
    engine_generation: int | None = None
    """The engine start in which the child session was opened; None before the first time."""
    temporary: set[str] = field(default_factory=set)
    """What the session made for itself alone in that engine, such as ``view v``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One statement's surroundings."""

    services: Services
    session: SessionState
    operation_id: str
    log: Callable[[str], None]
    """Adds a line to the statement's log; :meth:`warn` and :meth:`note` reach a person for sure."""
    progress: Callable[[Progress], None]
    overlay: Mapping[str, str] = field(default_factory=dict)
    """Settings for this statement alone (Thrift's confOverlay)."""
    require_wanted: Callable[[], None] = lambda: None
    """Raises why the statement is over, once a client or a timeout has ended it."""

    def warn(self, text: str) -> None:
        """Warn whoever runs the statement, which goes on."""
        self.log(WARNING + text)

    def note(self, text: str) -> None:
        """Say what came of the statement where its result does not show it."""
        self.log(NOTE + text)

    def setting(self, key: str) -> str | None:
        """Return a setting as this statement sees it, or None."""
        for layer in (self.overlay, self.session.settings, self.services.config.options):
            if key in layer:
                return layer[key]
        return None
