"""The engines of a gateway: its own and, with ``engine.share = user``, one for each user."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import Done
from tidegate_server.core.messages.requests import EngineOptions, Request
from tidegate_server.gateway.link.accounts import launch_as
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.flight import FlightEngine
from tidegate_server.gateway.link.memory import MemoryWatch
from tidegate_server.gateway.link.routing import RoutedEngine
from tidegate_server.gateway.link.supervisor import Supervisor
from tidegate_server.gateway.link.user_engines import UserEngines, folder_name

ENGINES = "engines"
"""The directory of the working directories of users' engines."""
_METASTORE_SERVICE = ("spark.hadoop.hive.metastore.uris", "spark.hive.metastore.uris")
_METASTORE_DATABASE = (
    "spark.hadoop.javax.jdo.option.ConnectionURL",
    "spark.hive.javax.jdo.option.ConnectionURL",
)
_DERBY_FILES = "jdbc:derby:"
_DERBY_SERVER = "jdbc:derby://"


def check_metastore(settings: Mapping[str, str]) -> None:
    """Require a metastore that several engines can open at the same time.

    :param settings: ``engine.settings``.
    :raises ServerError: METASTORE_NOT_SHARED.
    """
    if any(settings.get(key, "").strip() for key in _METASTORE_SERVICE):
        return
    urls = [settings[key].strip() for key in _METASTORE_DATABASE if key in settings]
    embedded = [url for url in urls if is_embedded(url)]
    if embedded or not urls:
        raise error(Code.METASTORE_NOT_SHARED)


def is_embedded(url: str) -> bool:
    """Return whether a JDBC URL names a Derby database inside the process that opens it."""
    return url.startswith(_DERBY_FILES) and not url.startswith(_DERBY_SERVER)


class Engines:
    """Builds, starts and stops the engines of a gateway."""

    def __init__(
        self,
        config: Config,
        settings: Mapping[str, str],
        *,
        java_home: Path,
        command: Sequence[str],
        announce: Callable[[str], None],
        prepare: Callable[[], Iterable[Request[Done]]],
        executor_of: Callable[[str], str | None],
    ) -> None:
        """Take what they need; none is started yet.

        ``settings`` are the Spark settings of every engine; ``prepare`` returns the requests that
        complete the metastore; ``executor_of`` returns the executor of a table by its id. The rest
        is that of :class:`Supervisor`.
        """
        self._config = config
        self._data = config.data.resolve()
        self._command = tuple(command)
        self._announce = announce
        self._hidden: Collection[str] = config.secret_variables
        self._changed: Callable[[], None] = lambda: None
        self._before: Callable[[str], None] = lambda user: None
        engine = config.engine
        self._options = _options(config, settings, java_home)
        own = replace(self._options, settings={**settings, **engine.own_settings})
        self.own = Supervisor(
            own,
            logs=self._data / "logs",
            start_timeout=engine.start_timeout,
            announce=announce,
            prepare=prepare,
            command=command,
            hidden=self._hidden,
        )
        self._flight = FlightEngine(self.own)
        self.memory = MemoryWatch(
            self._flight,
            replace=lambda reason: self.own.replace(reason, lambda: self._flight.in_flight == 0),
            announce=announce,
        )
        self.engine: Engine = self._flight
        """Where the gateway sends its requests."""
        self.users: UserEngines | None = None
        if engine.share == "user":
            self.users = UserEngines(
                self._make,
                prepare=self.own.wait_prepared,
                max_engines=engine.max_engines,
                idle_timeout=engine.idle_timeout,
                announce=announce,
                changed=lambda: self._changed(),
            )
            self.engine = RoutedEngine(
                self._flight, self.users, executor_of, before_work=lambda user: self._before(user)
            )

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after an engine of a user has come up or was ended."""
        self._changed = callback

    def before_work(self, callback: Callable[[str], None]) -> None:
        """Call ``callback`` with the user before work on a table in the engine of a user."""
        self._before = callback

    def start(self) -> None:
        """Start the gateway's own engine in the background."""
        self.own.start()

    def check(self) -> None:
        """Inspect the memory of the engines, and end those that are not used."""
        self.memory.check()
        if self.users is not None:
            self.users.check()

    def stop(self) -> None:
        """End all engines."""
        if self.users is not None:
            self.users.stop()
        self.own.stop()

    def close(self) -> None:
        """Close the connections to engines that have ended."""
        if self.users is not None:
            self.users.close()
        self._flight.close()

    def hurry(self) -> None:
        """Kill all engines, during a :meth:`stop` that takes too long."""
        if self.users is not None:
            self.users.hurry()
        self.own.hurry()

    def _make(self, user: str) -> Supervisor:
        engine = self._config.engine
        launch = None
        if engine.launcher:
            launch = launch_as(user, engine.account, engine.launcher, self._data)
        personal = engine.users[user].settings if user in engine.users else {}
        name = folder_name(user)
        options = replace(
            self._options,
            work=str(self._data / ENGINES / name),
            cache=os.environ.get("TIDEGATE_CACHE", ""),
            group_reads=engine.group_reads and launch is None,
            group_writes=launch is not None and launch.group_writes,
            settings={**self._options.settings, **personal},
        )
        return Supervisor(
            options,
            logs=self._data / "logs",
            start_timeout=engine.start_timeout,
            announce=self._announce,
            command=self._command,
            hidden=self._hidden,
            user=user,
            log_name=f"engine-out-{name}.log",
            launch=launch,
        )


def _options(config: Config, settings: Mapping[str, str], java_home: Path) -> EngineOptions:
    engine = config.engine
    return EngineOptions(
        socket="",
        data=str(config.data.resolve()),
        master=engine.master,
        driver_memory=engine.driver_memory,
        java_home=str(java_home),
        direct_bytes=engine.direct_bytes,
        spool_quota=engine.spool_quota,
        spool_quota_per_user=engine.spool_quota_per_user,
        kafka=engine.kafka,
        iceberg=engine.iceberg,
        group_reads=engine.group_reads,
        jars=engine.jars,
        warm_up=engine.warm_up,
        alone=engine.share == "gateway",
        settings=settings,
    )
