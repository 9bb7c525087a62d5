"""The engines of a gateway: its own, those of users, and those that tables choose."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from tidegate_server.core.config import Config
from tidegate_server.core.data_directory import claim
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import Done
from tidegate_server.core.messages.requests import EngineOptions, Request
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.gateway.link.accounts import launch_as
from tidegate_server.gateway.link.client import Engine
from tidegate_server.gateway.link.cluster import exchange_directory, section_settings
from tidegate_server.gateway.link.engine_pool import EnginePool, folder_name
from tidegate_server.gateway.link.flight import FlightEngine
from tidegate_server.gateway.link.heap import heap_size, machine_memory
from tidegate_server.gateway.link.memory import MemoryWatch
from tidegate_server.gateway.link.process import LocalStarter, Starter
from tidegate_server.gateway.link.registration import Registrar
from tidegate_server.gateway.link.routing import Home, RoutedEngine
from tidegate_server.gateway.link.submission import RECORD, ClusterStarter, Record, read_record
from tidegate_server.gateway.link.supervisor import Supervisor
from tidegate_server.gateway.link.targets import ENGINE_KEY, LOAD_ENGINE_KEY, read_target

ENGINES = "engines"
"""The directory of the working directories of engines beside the gateway's own."""
_CERTIFICATE = "registration.pem"
"""The file with the key and the certificate that engines in clusters trust."""
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
        table_by_id: Callable[[str], MaterializedTable | None],
    ) -> None:
        """Take what they need; none is started yet.

        ``settings`` are the Spark settings of every engine; ``prepare`` returns the requests that
        complete the metastore; ``table_by_id`` returns a table. The rest is that of
        :class:`Supervisor`.
        """
        self._config = config
        self._data = config.data.resolve()
        self._announce = announce
        self._changed: Callable[[], None] = lambda: None
        self._before: Callable[[Home], None] = lambda home: None
        engine = config.engine
        self._options = _options(config, settings, java_home)
        own = replace(self._options, settings={**settings, **engine.own_settings})
        self._start_locally = partial(LocalStarter, command, hidden=config.secret_variables)
        self.own = Supervisor(
            own,
            logs=self._data / "logs",
            start_timeout=engine.start_timeout,
            announce=announce,
            prepare=prepare,
            starter=self._start_locally(),
        )
        self._flight = FlightEngine(self.own)
        self.memory = MemoryWatch(
            self._flight,
            replace=lambda reason: self.own.replace(reason, lambda: self._flight.in_flight == 0),
            announce=announce,
        )
        self.engine: Engine = self._flight
        """Where the gateway sends its requests."""
        self.users: EnginePool | None = None
        if engine.share == "user":
            self.users = EnginePool(
                self._make,
                prepare=self.own.wait_prepared,
                max_engines=engine.max_engines,
                idle_timeout=engine.idle_timeout,
                limit="engine.max_engines",
                announce=announce,
                changed=lambda: self._changed(),
            )
        self._registrar: Registrar | None = None
        if any(section.deploy_mode == "cluster" for section in config.engines.values()):
            place = config.registration
            self._registrar = Registrar(
                place.host,
                place.port,
                place.address or socket.getfqdn(),
                self._data / ENGINES / _CERTIFICATE,
            )
        self.targets: Mapping[str, EnginePool] = {
            name: EnginePool(
                partial(self._make_target, name),
                prepare=self.own.wait_prepared,
                max_engines=section.max_engines if section.application else 1,
                idle_timeout=section.idle_timeout,
                limit=f"engines.{name}.max_engines",
                announce=announce,
                changed=lambda: self._changed(),
            )
            for name, section in config.engines.items()
        }
        """The engines of each section, by the section's name."""
        if self.pools:
            self.engine = RoutedEngine(
                self._flight,
                self.pools,
                lambda table_id, target: self._home(table_by_id(table_id), target),
                before_work=lambda home: self._before(home),
            )

    @property
    def heap(self) -> str:
        """The size of the heap of the gateway's own engine, in Spark's notation."""
        return self._options.driver_memory

    @property
    def exchange(self) -> str:
        """The directory through which the gateway's own engine and its executors exchange files.

        Empty if they share the data directory.
        """
        return self._options.exchange

    @property
    def pools(self) -> tuple[EnginePool, ...]:
        """All engines beside the gateway's own."""
        return (*([] if self.users is None else [self.users]), *self.targets.values())

    def _home(self, table: MaterializedTable | None, chosen: str) -> Home | None:
        """Return the engine that writes a table; None for the gateway's own.

        :param chosen: the target for this work; empty for that of the table.

        :raises ServerError: ENGINE_UNAVAILABLE if the configuration no longer has it.
        """
        if table is None:
            return None
        if self.users is not None:
            return Home(self.users.of(table.executor), user=table.executor)
        target = read_target(chosen or table.execution_target)
        loads = target != read_target(table.execution_target)
        if not target.engine:
            return None
        pool = self.targets.get(target.engine)
        if pool is None:
            reason = (
                f"{table.name} needs [engines.{target.engine}], which is not configured; "
                "ALTER MATERIALIZED TABLE ... SET "
                f"('{LOAD_ENGINE_KEY if loads else ENGINE_KEY}' = ...) chooses another"
            )
            raise error(Code.ENGINE_UNAVAILABLE, reason=reason)
        return Home(pool.of(target.key))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after an engine beside the gateway's own has come up or was ended."""
        self._changed = callback

    def before_work(self, callback: Callable[[Home], None]) -> None:
        """Call ``callback`` before work on a table in an engine beside the gateway's own."""
        self._before = callback

    def start(self) -> None:
        """Start the gateway's own engine in the background, and find those in clusters again.

        :raises ServerError: REGISTRATION if engines in clusters cannot be listened for.
        """
        records = list(self._records())
        if self._registrar is not None:
            try:
                self._registrar.start(record.known for record in records)
            except (OSError, ValueError) as problem:
                raise error(Code.REGISTRATION, reason=str(problem)) from problem
        self.own.start(claim(self._data).id)
        for record in records:
            self.targets[record.key.partition("/")[0]].wake(record.key)

    def check(self) -> None:
        """Inspect the memory of the engines, and end those that are not used."""
        self.memory.check()
        for pool in self.pools:
            pool.check()

    def start_no_other(self) -> None:
        """Start no engine any more, also instead of one that ends."""
        for pool in self.pools:
            pool.start_no_other()
        self.own.start_no_other()

    def stop(self) -> None:
        """End all engines."""
        for pool in self.pools:
            pool.stop()
        self.own.stop()
        if self._registrar is not None:
            self._registrar.stop()

    def close(self) -> None:
        """Close the connections to engines that have ended."""
        for pool in self.pools:
            pool.close()
        self._flight.close()

    def hurry(self) -> None:
        """Kill all engines, during a :meth:`stop` that takes too long."""
        for pool in self.pools:
            pool.hurry()
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
            driver_memory=heap_size(engine.driver_memory, machine_memory(), of_user=True),
            installation=claim(self._data).id,
            work=str(self._data / ENGINES / name),
            cache=os.environ.get("TIDEGATE_CACHE", ""),
            group_reads=engine.group_reads and launch is None,
            group_writes=launch is not None and launch.group_writes,
            settings={**self._options.settings, **personal},
        )
        return self._supervisor(options, user, name, self._start_locally(launch=launch))

    def _make_target(self, name: str, key: str) -> Supervisor:
        """Return the supervisor of the engine of a section, or of one of its applications."""
        engine, section = self._config.engine, self._config.engines[name]
        folder = self._target_folder(key)
        in_cluster = section.deploy_mode == "cluster"
        settings = section_settings(self._options.settings, section.settings, in_cluster=in_cluster)
        options = replace(
            self._options,
            installation=claim(self._data).id,
            in_cluster=in_cluster,
            master=section.master,
            driver_memory=heap_size(
                section.driver_memory or engine.driver_memory, machine_memory()
            ),
            jars=(*engine.jars, *section.jars),
            work=str(folder),
            exchange=exchange_directory(section.master, settings, engine),
            cluster=key.partition("/")[2] or section.cluster_id or name,
            settings=settings,
        )
        return self._supervisor(options, key, folder.name, self._starter(name, key))

    def _starter(self, name: str, key: str) -> Starter:
        if self._registrar is None or self._config.engines[name].deploy_mode == "client":
            return self._start_locally()
        return ClusterStarter(
            self._registrar,
            key,
            self._target_folder(key) / RECORD,
            lease=self._config.registration.lease,
            hidden=self._config.secret_variables,
        )

    def _target_folder(self, key: str) -> Path:
        return self._data / ENGINES / f"@{folder_name(key.replace('/', '.'))}"

    def _records(self) -> Iterator[Record]:
        """Yield the engines in clusters that an earlier gateway has left; forget all others."""
        sections = self._config.engines.items()
        in_clusters = {name for name, section in sections if section.deploy_mode == "cluster"}
        for file in sorted((self._data / ENGINES).glob(f"@*/{RECORD}")):
            record = read_record(file)
            if record is not None and record.key.partition("/")[0] in in_clusters:
                yield record
            else:
                file.unlink()

    def _supervisor(
        self, options: EngineOptions, owner: str, name: str, starter: Starter
    ) -> Supervisor:
        """Return the supervisor of an engine beside the gateway's own, whose log has a name."""
        return Supervisor(
            replace(options, name=owner),
            logs=self._data / "logs",
            start_timeout=self._config.engine.start_timeout,
            announce=self._announce,
            starter=starter,
            owner=owner,
            log_name=f"engine-out-{name}.log",
        )


def _options(config: Config, settings: Mapping[str, str], java_home: Path) -> EngineOptions:
    engine = config.engine
    return EngineOptions(
        socket="",
        data=str(config.data.resolve()),
        master=engine.master,
        driver_memory=heap_size(engine.driver_memory, machine_memory()),
        java_home=str(java_home),
        direct_bytes=engine.direct_bytes,
        spool_quota=engine.spool_quota,
        spool_quota_per_user=engine.spool_quota_per_user,
        kafka=engine.kafka,
        iceberg=engine.iceberg,
        group_reads=engine.group_reads,
        jars=engine.jars,
        executor_timeout=engine.executor_timeout,
        max_statement_bytes=engine.max_statement_bytes,
        max_statement_tokens=engine.max_statement_tokens,
        warm_up=engine.warm_up,
        exchange=exchange_directory(engine.master, settings, engine),
        alone=engine.share == "gateway" and not config.engines,
        settings=settings,
    )
