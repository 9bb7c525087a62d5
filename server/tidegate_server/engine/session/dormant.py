"""What it takes to make a child session again, so that an idle one need not be held.

A session of Spark is some 160 KiB of registered functions and settings, nearly all of them the same
in every session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import java


@dataclass(frozen=True, slots=True)
class DormantSession:
    """All that tells a session without temporary objects from a new one."""

    catalog: str
    namespace: tuple[str, ...]
    changed: Mapping[str, str]
    """Settings with other values than in a new session."""
    unset: frozenset[str]
    """Settings of a new session that this one has not."""


def asleep(session: SparkSession, new: SparkSession) -> DormantSession | None:
    """Return what it takes to make a session again; None if that would lose anything.

    Temporary views, functions and variables cannot be made again: what they were made from may be
    another by now.

    :param new: a session of the same engine that nothing was done in.
    """
    state, unused = _state(session), _state(new)
    if has_temporary(session, new):
        return None
    settings, first = _settings(session, state), _settings(new, unused)
    manager = state.catalogManager()
    return DormantSession(
        catalog=str(manager.currentCatalog().name()),
        namespace=tuple(manager.currentNamespace()),
        changed={key: value for key, value in settings.items() if first.get(key) != value},
        unset=frozenset(first.keys() - settings.keys()),
    )


def awaken(session: SparkSession, known: DormantSession) -> None:
    """Give a new session what tells the old one from it.

    :raises pyspark.errors.PySparkException: SCHEMA_NOT_FOUND if its current schema is gone.
    """
    state = _state(session)
    # Beyond the checks of SET: what was there is to be there again.
    for key in known.unset:
        state.conf().unsetConf(key)
    for key, value in known.changed.items():
        state.conf().setConfString(key, value)
    manager = state.catalogManager()
    if str(manager.currentCatalog().name()) != known.catalog:
        manager.setCurrentCatalog(known.catalog)
    if tuple(manager.currentNamespace()) != known.namespace:
        manager.setCurrentNamespace(_strings(session, known.namespace))


def _state(session: SparkSession) -> Any:
    owner: Any = session._jsparkSession
    return owner.sessionState()


def has_temporary(session: SparkSession, new: SparkSession) -> bool:
    """Say whether a session has temporary views, functions or variables; ``new`` as above."""
    state, unused = _state(session), _state(new)
    return (
        not state.catalog().getTempViewNames().isEmpty()
        or not state.catalogManager().tempVariableManager().isEmpty()
        or _functions(state) != _functions(unused)
    )


def _functions(state: Any) -> tuple[Any, Any]:
    """Return what the names of functions stand for, also where one took the place of a built-in."""
    return (
        state.functionRegistry().functionBuilders(),
        state.tableFunctionRegistry().functionBuilders(),
    )


def _settings(session: SparkSession, state: Any) -> dict[str, str]:
    """Return the settings in one call: py4j would ask for each by itself."""
    writer = java(session).com.fasterxml.jackson.databind.ObjectMapper()
    found: dict[str, str] = json.loads(writer.writeValueAsString(state.conf().settings()))
    return found


def _strings(session: SparkSession, parts: tuple[str, ...]) -> Any:
    context: Any = session.sparkContext
    gateway = context._gateway
    array = gateway.new_array(gateway.jvm.java.lang.String, len(parts))
    for place, part in enumerate(parts):
        array[place] = part
    return array
