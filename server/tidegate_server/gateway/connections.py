"""Keeps the connections of engines as the store has them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from tidegate_server.core.messages.requests import ConnectionOptions, PutConnections
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.gateway.link.client import Engine

log = logging.getLogger(__name__)


class SentConnections:
    """What each engine was told last; a new engine, or another gateway's change, is noticed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[str, tuple[int, tuple[ExternalObject, ...]]] = {}
        """Generation and connections by the user of an engine, empty for the gateway's own."""

    def ensure(
        self,
        found: tuple[ExternalObject, ...],
        engine: Engine,
        secrets: Mapping[str, str],
        user: str = "",
    ) -> None:
        """Tell an engine its connections unless it knows them.

        :param user: whose engine it is; empty for the gateway's own.
        :raises ServerError: ENGINE_UNAVAILABLE.
        """
        if self._is_known(found, engine, user):
            return
        with self._lock:
            if self._is_known(found, engine, user):
                return
            options = (with_secrets(each, secrets) for each in found)
            generation = engine.generation
            engine.call(PutConnections(connections=tuple(o for o in options if o is not None)))
            self._sent[user] = (generation, found)

    def _is_known(self, found: tuple[ExternalObject, ...], engine: Engine, user: str) -> bool:
        generation, sent = self._sent.get(user, (None, ()))
        return found == sent and (not found or (engine.ready and generation == engine.generation))


def with_secrets(
    connection: ExternalObject, secrets: Mapping[str, str]
) -> ConnectionOptions | None:
    """Return a connection as the engine uses it; None, with a warning, if it lacks a secret."""
    missing = [name for name in connection.secrets.values() if name not in secrets]
    if missing:
        log.warning("The connection %s needs the secret %s", connection.name, missing[0])
        return None
    given = {key: secrets[name] for key, name in connection.secrets.items()}
    options = {**connection.options, **given}
    return ConnectionOptions(name=connection.name, options=options, secret=tuple(given))
