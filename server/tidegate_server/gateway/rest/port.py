"""Assembles the HTTP control port."""

from __future__ import annotations

from tidegate_server.gateway.auth.access import Access
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.observability.gauges import Gauges
from tidegate_server.gateway.rest.access import check_exposure
from tidegate_server.gateway.rest.app import build
from tidegate_server.gateway.rest.listener import HttpListener
from tidegate_server.gateway.rest.refreshes import Refreshes
from tidegate_server.gateway.rest.status import GatewayStatus, SchedulerLoad
from tidegate_server.gateway.session.manager import SessionManager


class HttpPort:
    """Listens between :meth:`start` and :meth:`stop`, unless it is disabled."""

    def __init__(
        self,
        services: Services,
        sessions: SessionManager,
        scheduler: SchedulerLoad,
        access: Access,
    ) -> None:
        """Build the application; nothing is opened yet.

        :raises ServerError: INSECURE_ADDRESS or INSECURE_PASSWORDS.
        """
        check_exposure(services.config)
        status = GatewayStatus(services, sessions, scheduler)
        services.metrics.add(Gauges(status.picture))
        self._wanted = services.config.server.rest_port
        self._refreshes = Refreshes(services)
        app = build(services, self._refreshes, status.health, sessions, access)
        self._listener = HttpListener(services.config, app)

    def start(self) -> int | None:
        """Listen and return the actual port; None if the port is disabled.

        :raises OSError: if the address cannot be used.
        """
        return None if self._wanted is None else self._listener.start(self._wanted)

    def stop(self) -> None:
        """Accept no more calls; harmless if it never listened."""
        self._listener.stop()
        self._refreshes.close()
