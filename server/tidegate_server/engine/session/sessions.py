"""Child SparkSessions by the gateway's session ids."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    DEFAULT_SCHEMA,
    quote_identifier,
)
from tidegate_server.engine.session.dormant import (
    DormantSession,
    capture_session,
    copy_session,
    has_temporary,
    restore_session,
)
from tidegate_server.engine.session.file_changes import FileChanges, forget_files

logger = logging.getLogger(__name__)

AWAKE: Final = 64
"""Idle sessions to keep in memory for a fast next statement."""


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A query that was analyzed, but has not run yet."""

    id: str
    text: str
    plan: Any


@dataclass(slots=True)
class Child:
    """One session, with its own temporary views, settings and current schema."""

    spark: SparkSession
    lock: threading.RLock = field(default_factory=threading.RLock)
    surveyed: AnalyzedQuery | None = None
    """The query surveyed last, unless another statement came after it."""

    def keep_surveyed(self, text: str, plan: Any) -> str:
        """Keep a query for :meth:`take_surveyed`; return its id."""
        self.surveyed = AnalyzedQuery(uuid.uuid4().hex, text, plan)
        return self.surveyed.id

    def take_surveyed(self, id: str, text: str) -> Any | None:
        """Return the analyzed plan of a query, once; None if it was not kept."""
        kept, self.surveyed = self.surveyed, None
        found = kept is not None and (kept.id, kept.text) == (id, text)
        return kept.plan if kept is not None and found else None

    def current(self) -> tuple[str, str]:
        """Return the current catalog and schema."""
        manager: Any = self.spark._jsparkSession.sessionState().catalogManager()
        return str(manager.currentCatalog().name()), ".".join(manager.currentNamespace())

    def has_catalog(self, name: str) -> bool:
        """Return whether there is a catalog of this name."""
        manager: Any = self.spark._jsparkSession.sessionState().catalogManager()
        return bool(manager.isCatalogRegistered(name))

    @contextmanager
    def overlay(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Apply settings until the block ends; statements of one session with settings run one
        after the other.

        :raises pyspark.errors.PySparkException: if Spark rejects one.
        """
        if not settings:
            yield
            return
        with self.lock:
            before = {key: self.spark.conf.get(key, None) for key in settings}
            try:
                _set(self.spark, settings)
                yield
            finally:
                for key, value in before.items():
                    _restore(self.spark, key, value)


@dataclass(slots=True)
class _OpenSession:
    """An open session: either awake, with a child, or asleep."""

    child: Child | None = None
    asleep: DormantSession | None = None
    users: int = 0
    transition: threading.Lock = field(default_factory=threading.Lock)
    """Held while the session falls asleep or wakes up."""
    files: int | None = None
    """The state of all files when the session last dropped its file listings."""
    working: list[int | None] = field(default_factory=list)
    """For each running statement, the state of all files when it began."""


class Sessions:
    """Opens, lends and closes children of one root session.

    Of the idle sessions, the ``awake`` most recently used ones stay in memory. The others are
    discarded and recreated at their next use, unless that would lose temporary objects.
    """

    def __init__(
        self,
        root: SparkSession,
        changes: FileChanges | None = None,
        awake: int = AWAKE,
        load_catalog: Callable[[SparkSession, str], None] = lambda spark, name: None,
    ) -> None:
        """Keep sessions of ``root``; ``load_catalog`` gives one a catalog to make current."""
        self.root = root
        self._load_catalog = load_catalog
        self.changes = changes or FileChanges()
        self._awake = awake
        self._unused = root.newSession()
        self._lock = threading.Lock()
        self._known: dict[str, _OpenSession] = {}
        self._idle: OrderedDict[str, _OpenSession] = OrderedDict()
        """The idle sessions that could be put to sleep, the least recently used one first."""

    def open(
        self,
        session_id: str,
        settings: Mapping[str, str],
        schema: str | None,
        catalog: str | None = None,
    ) -> None:
        """Create the session if it is new, then apply settings, catalog and schema.

        :raises ServerError: OBJECT_NOT_FOUND if there is no such catalog.
        :raises pyspark.errors.PySparkException: if Spark rejects a setting, or SCHEMA_NOT_FOUND if
            there is no such schema.
        """
        with self._lock:
            self._known.setdefault(session_id, _OpenSession())
        with self.using(session_id) as child:
            _set(child.spark, settings)
            if catalog is not None and child.current()[0].lower() != catalog.lower():
                self._load_catalog(child.spark, catalog)
                if not child.has_catalog(catalog):
                    raise error(Code.OBJECT_NOT_FOUND, kind="catalog", name=catalog)
                child.spark.sql(f"SET CATALOG {quote_identifier(catalog)}")
            if schema is not None and child.current()[1].lower() != schema.lower():
                child.spark.sql(f"USE {'.'.join(map(quote_identifier, schema.split('.')))}")

    @contextmanager
    def using(self, session_id: str) -> Iterator[Child]:
        """Lend a session until the block ends; it sees files as they are when the block begins.

        :raises ServerError: INVALID_SESSION_HANDLE if it was never opened or is closed.
        :raises pyspark.errors.PySparkException: SCHEMA_NOT_FOUND, once, if its current schema was
            dropped while it was asleep.
        """
        with self._lock:
            known = self._known.get(session_id)
            if known is None:
                raise error(Code.INVALID_SESSION_HANDLE, handle=session_id)
            known.users += 1
            self._idle.pop(session_id, None)
        try:
            child = self._wake_up(known)
            with self._list_changed_files(known, child):
                yield child
        finally:
            eldest = self._give_back(session_id, known)
            if eldest is not None:
                self._put_to_sleep(eldest)

    def copy(self, session_id: str, copy_id: str) -> None:
        """Create a session with the settings, names and temporary objects of another one.

        :raises ServerError: INVALID_SESSION_HANDLE if that was never opened or is closed.
        """
        with self.using(session_id) as child:
            copy = Child(copy_session(child.spark))
        with self._lock:
            self._known[copy_id] = _OpenSession(child=copy)

    def close(self, session_id: str) -> None:
        """Forget a session; an unknown one is harmless."""
        with self._lock:
            self._known.pop(session_id, None)
            self._idle.pop(session_id, None)

    def close_all(self) -> None:
        """Forget all sessions."""
        with self._lock:
            self._known.clear()
            self._idle.clear()

    def count_awake(self) -> int:
        """Return how many client sessions are in memory."""
        with self._lock:
            return sum(known.child is not None for known in self._known.values())

    def count_with_temporary(self) -> int:
        """Return how many sessions have temporary views, functions or variables."""
        with self._lock:
            children = [known.child for known in self._known.values() if known.child is not None]
        return sum(has_temporary(child.spark, self._unused) for child in children)

    def _wake_up(self, known: _OpenSession) -> Child:
        with known.transition:
            if known.child is not None:
                return known.child
            child = known.child = Child(self.root.newSession())
            before, known.asleep = known.asleep, None
            if before is not None:
                self._load_catalog(child.spark, before.catalog)
                if not child.has_catalog(before.catalog):  # it was dropped meanwhile
                    before = replace(before, catalog=DEFAULT_CATALOG, namespace=(DEFAULT_SCHEMA,))
                restore_session(child.spark, before)
            return child

    @contextmanager
    def _list_changed_files(self, known: _OpenSession, child: Child) -> Iterator[None]:
        """Have a session list files again if they may have changed since it listed them.

        A statement that began before the last change may still add outdated listings.
        """
        state = self.changes.state()
        with self._lock:
            current = {state} == {known.files, *known.working} and state is not None
            known.files = state
            known.working.append(state)
        try:
            if not current:
                forget_files(child.spark)
            yield
        finally:
            with self._lock:
                known.working.remove(state)

    def _give_back(self, session_id: str, known: _OpenSession) -> _OpenSession | None:
        """Give a session back; return another one to put to sleep, or None."""
        with self._lock:
            known.users -= 1
            if not known.users and self._known.get(session_id) is known:
                self._idle[session_id] = known
            if len(self._idle) <= self._awake:
                return None
            return self._idle.popitem(last=False)[1]

    def _put_to_sleep(self, known: _OpenSession) -> None:
        with known.transition:
            if known.users or known.child is None:
                return  # it is in use again, or already asleep
            try:
                known.asleep = capture_session(known.child.spark, self._unused)
            except (PySparkException, Py4JError) as caught:
                logger.warning("a session stays awake: %s", caught)
            if known.asleep is not None:
                known.child = None


def _set(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        spark.conf.set(key, value)


def apply_settings(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Apply the settings that Spark accepts; log and skip static and invalid ones."""
    for key, value in settings.items():
        try:
            spark.conf.set(key, value)
        except (PySparkException, Py4JError) as caught:
            logger.warning("skipped the setting %s: %s", key, caught)


def _restore(spark: SparkSession, key: str, value: str | None) -> None:
    if value is not None:
        apply_settings(spark, {key: value})
        return
    try:
        spark.conf.unset(key)
    except (PySparkException, Py4JError) as caught:
        logger.warning("cannot unset the setting %s: %s", key, caught)
