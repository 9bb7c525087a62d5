"""The interface of scheduler plug-ins, and how they are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.plugins import find_plugin

GROUP: Final = "tidegate.schedulers"
"""The entry-point group in which packages offer schedulers."""
_METHODS = ("create", "modify", "delete")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicRefresh:
    """Everything that an external scheduler needs to keep one FULL table fresh.

    At each fire it posts ``{"isPeriodic": true, "scheduleTime": "yyyy-MM-dd HH:mm:ss"}`` to
    ``endpoint``; ``scheduleTime`` is in ``timezone``, unless it ends with an offset such as
    ``+01:00``.
    """

    table_id: str
    table: str
    """The qualified name, for display; unlike the id it changes when the table is renamed."""
    cron: str
    """A Quartz expression of seven fields, or ``@every n UNIT``."""
    timezone: str
    """The zone of the expression and of the partitions' date-formatters."""
    active: bool
    """False while the table is SUSPENDED."""
    expanded_query: str
    settings: Mapping[str, str]
    """The session settings stored with the table; its refreshes apply them in any case."""
    dynamic_options: Mapping[str, str]
    """The options of the last RESUME WITH."""
    endpoint: str
    """URL of the REST call that refreshes the table."""


class SchedulerPlugin(Protocol):
    """A workflow scheduler outside the gateway; any exception fails the statement.

    Its workflows have to survive restarts of the gateway, which does not create them again.
    """

    def create(self, refresh: PeriodicRefresh) -> None:
        """Start a workflow; one with the same table id is replaced."""
        ...

    def modify(self, refresh: PeriodicRefresh) -> None:
        """Replace a workflow; ``active`` false pauses it."""
        ...

    def delete(self, table_id: str) -> None:
        """Delete a workflow; a missing one is ignored."""
        ...


def load_plugin(name: str, options: Mapping[str, str]) -> SchedulerPlugin:
    """Create a scheduler from the name of an entry point, or from ``module:Class``.

    The named object is called with ``options``, the server's ``workflow-scheduler.*`` keys.

    :raises ServerError: SCHEDULER_CONFIGURATION if it does not exist or cannot be used.
    """
    made = _find(name)(options)
    missing = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if missing:
        raise configuration_error(name, f"the scheduler lacks {', '.join(missing)}")
    return cast(SchedulerPlugin, made)


def configuration_error(name: str, reason: str) -> ServerError:
    """Return the error for an unusable scheduler."""
    return error(Code.SCHEDULER_CONFIGURATION, scheduler=name, reason=reason)


def _find(name: str) -> Any:
    try:
        found = find_plugin(name, GROUP)
    except (ImportError, AttributeError) as error:
        raise configuration_error(name, f"it cannot be loaded: {error}") from error
    if found is None:
        raise configuration_error(name, f"no package offers it in the entry-point group {GROUP}")
    return found
