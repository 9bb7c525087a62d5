"""Captures the state of an idle child session, so that it can be discarded and recreated later.

A Spark session takes about 160 KiB for registered functions and settings, nearly all of them the
same in every session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import string_array, texts


@dataclass(frozen=True, slots=True)
class DormantSession:
    """The differences between a session without temporary objects and a new one."""

    catalog: str
    namespace: tuple[str, ...]
    changed: Mapping[str, str]
    """Settings whose values differ from those of a new session."""
    unset: frozenset[str]
    """Settings of a new session that are unset in this one."""


def capture_session(session: SparkSession, new: SparkSession) -> DormantSession | None:
    """Return the state from which to recreate a session; None if anything would be lost.

    Temporary views, functions and variables cannot be recreated: the tables, classes and values
    they were created from may have changed.

    :param new: an unused session of the same engine.
    """
    state, unused = _state(session), _state(new)
    if has_temporary(session, new):
        return None
    settings = texts(session, state.conf().settings())
    first = texts(new, unused.conf().settings())
    manager = state.catalogManager()
    return DormantSession(
        catalog=str(manager.currentCatalog().name()),
        namespace=tuple(manager.currentNamespace()),
        changed={key: value for key, value in settings.items() if first.get(key) != value},
        unset=frozenset(first.keys() - settings.keys()),
    )


def restore_session(session: SparkSession, known: DormantSession) -> None:
    """Restore captured state in a new session.

    :raises pyspark.errors.PySparkException: SCHEMA_NOT_FOUND if its current schema was dropped.
    """
    state = _state(session)
    # Bypasses the checks of SET, since the old session already had these values.
    for key in known.unset:
        state.conf().unsetConf(key)
    for key, value in known.changed.items():
        state.conf().setConfString(key, value)
    manager = state.catalogManager()
    if str(manager.currentCatalog().name()) != known.catalog:
        manager.setCurrentCatalog(known.catalog)
    if tuple(manager.currentNamespace()) != known.namespace:
        manager.setCurrentNamespace(string_array(session, known.namespace))


def copy_session(session: SparkSession) -> SparkSession:
    """Return a new session with the settings, names and temporary objects of another one."""
    owner: Any = session._jsparkSession
    copy = SparkSession(session.sparkContext, owner.cloneSession())
    before, after = _state(session).catalogManager(), _state(copy).catalogManager()
    catalog = str(before.currentCatalog().name())
    if str(after.currentCatalog().name()) != catalog:
        after.setCurrentCatalog(catalog)
    namespace = tuple(before.currentNamespace())
    if tuple(after.currentNamespace()) != namespace:
        after.setCurrentNamespace(string_array(session, namespace))
    _variables(after).addAll(_variables(before))  # Spark leaves them out
    return copy


def _variables(manager: Any) -> Any:
    """Return the map of a session's variables, which Spark keeps private."""
    variables = manager.tempVariableManager()
    known = variables.getClass().getDeclaredField("variables")
    known.setAccessible(True)
    return known.get(variables)


def _state(session: SparkSession) -> Any:
    owner: Any = session._jsparkSession
    return owner.sessionState()


def has_temporary(session: SparkSession, new: SparkSession) -> bool:
    """Say whether a session has temporary views, functions or variables; ``new`` as above."""
    state, unused = _state(session), _state(new)
    return (
        not state.catalog().getTempViewNames().isEmpty()
        or not state.catalogManager().tempVariableManager().isEmpty()
        or _function_builders(state) != _function_builders(unused)
    )


def _function_builders(state: Any) -> tuple[Any, Any]:
    """Return the functions by name; this also shows a temporary one that replaces a built-in."""
    return (
        state.functionRegistry().functionBuilders(),
        state.tableFunctionRegistry().functionBuilders(),
    )
