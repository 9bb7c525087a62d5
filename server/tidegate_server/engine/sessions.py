"""Child SparkSessions by the gateway's session ids."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.errors import Code, error
from tidegate_server.model.names import quote_identifier

logger = logging.getLogger(__name__)


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
        """Apply settings until the block ends; such statements of one session run in turn."""
        if not settings:
            yield
            return
        with self.lock:
            before = {key: self.spark.conf.get(key, None) for key in settings}
            try:
                apply_settings(self.spark, settings)
                yield
            finally:
                for key, value in before.items():
                    _restore(self.spark, key, value)


class Sessions:
    """Opens, finds and closes children of one root session."""

    def __init__(self, root: SparkSession) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._children: dict[str, Child] = {}

    def open(self, session_id: str, settings: Mapping[str, str], schema: str | None) -> None:
        """Make the session if it is new, apply settings and schema in any case.

        :raises ServerError: Spark's SCHEMA_NOT_FOUND if there is no such schema.
        """
        with self._lock:
            child = self._children.get(session_id)
            if child is None:
                child = self._children[session_id] = Child(self.root.newSession())
        apply_settings(child.spark, settings)
        if schema is not None and child.current()[1].lower() != schema.lower():
            child.spark.sql(f"USE {quote_identifier(schema)}")

    def find(self, session_id: str) -> Child:
        """Return a session.

        :raises ServerError: INVALID_SESSION_HANDLE if it was never opened or is closed.
        """
        with self._lock:
            child = self._children.get(session_id)
        if child is None:
            raise error(Code.INVALID_SESSION_HANDLE, handle=session_id)
        return child

    def close(self, session_id: str) -> None:
        """Forget a session; an unknown one is harmless."""
        with self._lock:
            self._children.pop(session_id, None)


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
