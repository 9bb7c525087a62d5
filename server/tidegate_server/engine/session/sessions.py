"""Child SparkSessions by the gateway's session ids."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.engine.session.dormant import DormantSession, asleep, awaken, has_temporary
from tidegate_server.engine.session.file_changes import FileChanges, forget_files

logger = logging.getLogger(__name__)

AWAKE: Final = 64
"""Idle sessions that are held for a quick next statement."""


@dataclass(frozen=True, slots=True)
class Child:
    """One session: temporary views, settings and current schema are its own."""

    spark: SparkSession
    lock: threading.RLock = field(default_factory=threading.RLock)

    def current(self) -> tuple[str, str]:
        """Return the current catalog and schema."""
        manager: Any = self.spark._jsparkSession.sessionState().catalogManager()
        return str(manager.currentCatalog().name()), ".".join(manager.currentNamespace())

    @contextmanager
    def overlaid(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Apply settings until the block ends; such statements of one session run in turn.

        :raises pyspark.errors.PySparkException: if Spark refuses one.
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
class _Known:
    """A session that is open: awake as a child, or asleep."""

    child: Child | None = None
    asleep: DormantSession | None = None
    users: int = 0
    turning: threading.Lock = field(default_factory=threading.Lock)
    """Held while it falls asleep or awakes."""
    files: int | None = None
    """The state of all files when it last forgot those it had listed."""
    working: list[int | None] = field(default_factory=list)
    """The states of all files when what runs in it began."""


class Sessions:
    """Opens, lends and closes children of one root session.

    Of those that nobody uses at the moment, the ``awake`` that were used last are held; others are
    made again when they are used, unless something in them would be lost.
    """

    def __init__(self, root: SparkSession, awake: int = AWAKE) -> None:
        self.root = root
        self.changes = FileChanges()
        self._awake = awake
        self._unused = root.newSession()
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._idle: OrderedDict[str, _Known] = OrderedDict()
        """The unused ones that could be put to sleep, the one used longest ago first."""

    def open(self, session_id: str, settings: Mapping[str, str], schema: str | None) -> None:
        """Make the session if it is new, apply settings and schema in any case.

        :raises pyspark.errors.PySparkException: if Spark refuses a setting, or SCHEMA_NOT_FOUND if
            there is no such schema.
        """
        with self._lock:
            self._known.setdefault(session_id, _Known())
        with self.using(session_id) as child:
            _set(child.spark, settings)
            if schema is not None and child.current()[1].lower() != schema.lower():
                child.spark.sql(f"USE {quote_identifier(schema)}")

    @contextmanager
    def using(self, session_id: str) -> Iterator[Child]:
        """Lend a session until the block ends; it reads files as they are when it begins.

        :raises ServerError: INVALID_SESSION_HANDLE if it was never opened or is closed.
        :raises pyspark.errors.PySparkException: SCHEMA_NOT_FOUND, once, if its current schema was
            dropped while it slept.
        """
        with self._lock:
            known = self._known.get(session_id)
            if known is None:
                raise error(Code.INVALID_SESSION_HANDLE, handle=session_id)
            known.users += 1
            self._idle.pop(session_id, None)
        try:
            child = self._child(known)
            with self._files_known(known, child):
                yield child
        finally:
            eldest = self._returned(session_id, known)
            if eldest is not None:
                self._put_to_sleep(eldest)

    def close(self, session_id: str) -> None:
        """Forget a session; an unknown one is harmless."""
        with self._lock:
            self._known.pop(session_id, None)
            self._idle.pop(session_id, None)

    def awake(self) -> int:
        """Return how many sessions Spark holds for clients."""
        with self._lock:
            return sum(known.child is not None for known in self._known.values())

    def temporary(self) -> int:
        """Return how many sessions have temporary views, functions or variables."""
        with self._lock:
            children = [known.child for known in self._known.values() if known.child is not None]
        return sum(has_temporary(child.spark, self._unused) for child in children)

    def _child(self, known: _Known) -> Child:
        with known.turning:
            if known.child is not None:
                return known.child
            child = known.child = Child(self.root.newSession())
            before, known.asleep = known.asleep, None
            if before is not None:
                awaken(child.spark, before)
            return child

    @contextmanager
    def _files_known(self, known: _Known, child: Child) -> Iterator[None]:
        """Have a session list files again that may have changed since it did.

        What began before the last change may still list them as they were.
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

    def _returned(self, session_id: str, known: _Known) -> _Known | None:
        """Take a session back; returns one to put to sleep."""
        with self._lock:
            known.users -= 1
            if not known.users and self._known.get(session_id) is known:
                self._idle[session_id] = known
            if len(self._idle) <= self._awake:
                return None
            return self._idle.popitem(last=False)[1]

    def _put_to_sleep(self, known: _Known) -> None:
        with known.turning:
            if known.users or known.child is None:
                return  # somebody came first
            try:
                known.asleep = asleep(known.child.spark, self._unused)
            except (PySparkException, Py4JError) as problem:
                logger.warning("a session stays awake: %s", problem)
            if known.asleep is not None:
                known.child = None


def _set(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for key, value in settings.items():
        spark.conf.set(key, value)


def apply_settings(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what Spark accepts; static and unusable settings are logged and left out."""
    for key, value in settings.items():
        try:
            spark.conf.set(key, value)
        except (PySparkException, Py4JError) as refused:
            logger.warning("setting %s is left out: %s", key, refused)


def _restore(spark: SparkSession, key: str, value: str | None) -> None:
    if value is not None:
        apply_settings(spark, {key: value})
        return
    try:
        spark.conf.unset(key)
    except (PySparkException, Py4JError) as refused:
        logger.warning("setting %s cannot be unset: %s", key, refused)
