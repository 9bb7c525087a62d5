"""Workflow schedulers that somebody else wrote: what they promise, and how they are found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.gateway.plugins import find_plugin

GROUP: Final = "tidegate.schedulers"
"""The entry-point group in which packages offer schedulers."""
_METHODS = ("create", "modify", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicRefresh:
    """All that a scheduler of somebody else's needs to keep one FULL table fresh.

    At each fire it posts ``{"isPeriodic": true, "scheduleTime": "yyyy-MM-dd HH:mm:ss"}`` to
    ``endpoint``; ``scheduleTime`` is read on the clock of ``timezone``, unless it ends with an
    offset such as ``+01:00``.
    """

    table_id: str
    table: str
    """The qualified name, for people; the id stays when the table is renamed."""
    cron: str
    """A Quartz expression of seven fields, or ``@every n UNIT``."""
    timezone: str
    """The zone in which the expression and the partitions' date-formatters are meant."""
    active: bool
    """False while the table is SUSPENDED."""
    expanded_query: str
    settings: Mapping[str, str]
    """The session settings stored with the table; its refreshes run under them anyway."""
    dynamic_options: Mapping[str, str]
    """The options of the last RESUME WITH."""
    endpoint: str
    """URL of the REST call that refreshes the table."""


class SchedulerPlugin(Protocol):
    """A workflow scheduler outside the gateway; whatever a method raises fails the statement.

    Its workflows survive restarts of the gateway, which does not announce them again.
    """

    def create(self, refresh: PeriodicRefresh) -> None:
        """Begin to fire; a workflow of the same table id is replaced."""
        ...

    def modify(self, refresh: PeriodicRefresh) -> None:
        """Replace a workflow; ``active`` false pauses it."""
        ...

    def delete(self, table_id: str) -> None:
        """Fire no more; a workflow that is gone already is harmless."""
        ...


def load_plugin(name: str, options: Mapping[str, str]) -> SchedulerPlugin:
    """Make a scheduler from the name of an entry point, or from ``module:Class``.

    What is named is called with ``options``, the server's ``workflow-scheduler.*`` keys.

    :raises ServerError: SCHEDULER_CONFIGURATION if there is none of that name.
    """
    made = _find(name)(options)
    missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if missing:
        raise unusable(name, f"what it makes lacks {', '.join(missing)}")
    return cast(SchedulerPlugin, made)


def unusable(name: str, reason: str) -> ServerError:
    """Return the error for a scheduler that cannot be used."""
    return error(Code.SCHEDULER_CONFIGURATION, scheduler=name, reason=reason)


def _find(name: str) -> Any:
    try:
        found = find_plugin(name, GROUP)
    except (ImportError, AttributeError) as problem:
        raise unusable(name, f"it cannot be loaded: {problem}") from problem
    if found is None:
        raise unusable(name, f"no package offers it in the entry points {GROUP}")
    return found
