"""The composition root of the gateway: builds its parts, starts them, and stops them."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tidegate_server.core.config import IN_MEMORY, Config
from tidegate_server.core.data_directory import AUDIT_DIRECTORY, claim
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Done, EngineInfo
from tidegate_server.core.messages.requests import (
    RegisterSystemTables,
    ReleaseOwners,
    Request,
    SourceVersions,
    SystemTable,
)
from tidegate_server.core.model.clock import Clock, SystemClock, new_id
from tidegate_server.core.model.names import SYSTEM_SCHEMA
from tidegate_server.core.model.runs import RefreshRun
from tidegate_server.core.model.versions import Source
from tidegate_server.gateway.audit.log import build_audit_log
from tidegate_server.gateway.auth.access import build_access
from tidegate_server.gateway.auth.token_store import SqlTokenStore
from tidegate_server.gateway.auth.tokens import DelegationTokens
from tidegate_server.gateway.authorization.admission import admit_job, admit_run
from tidegate_server.gateway.authorization.catalogs import may_use_catalog
from tidegate_server.gateway.authorization.features import distinguishes_users
from tidegate_server.gateway.authorization.object_changes import reconcile
from tidegate_server.gateway.authorization.setting_checks import engine_settings
from tidegate_server.gateway.catalog.sql import SqlCatalog
from tidegate_server.gateway.command.dispatch import prepare
from tidegate_server.gateway.configuration_checks import check_configuration
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.flight.port import FlightPort
from tidegate_server.gateway.information_schema.tables import SystemTables
from tidegate_server.gateway.link.engines import Engines
from tidegate_server.gateway.link.lock import DataDirectoryLock
from tidegate_server.gateway.link.memory import CHECK_SECONDS as MEMORY_SECONDS
from tidegate_server.gateway.link.process import ENGINE_COMMAND
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.observability.runs import observe_refreshes
from tidegate_server.gateway.protocol.listener import Listener
from tidegate_server.gateway.protocol.rejections import watch_rejections
from tidegate_server.gateway.protocol.server import ThriftServer
from tidegate_server.gateway.recovery.catalog import rebuild
from tidegate_server.gateway.recovery.definitions import realign_storage, realign_workflows
from tidegate_server.gateway.recovery.metastore import metastore_is_lost, put_views, reregister
from tidegate_server.gateway.recovery.runs import Recovery
from tidegate_server.gateway.repeat import Repeat
from tidegate_server.gateway.rest.port import HttpPort
from tidegate_server.gateway.runs.alerts import Alerts, couriers
from tidegate_server.gateway.runs.jobs import CHECK_SECONDS as JOB_SECONDS
from tidegate_server.gateway.runs.jobs import JobKeeper
from tidegate_server.gateway.runs.maintenance import Maintenance
from tidegate_server.gateway.runs.runner import Refresher
from tidegate_server.gateway.runs.waves import Waves
from tidegate_server.gateway.scheduler.continuous import ContinuousWatcher
from tidegate_server.gateway.scheduler.embedded import EmbeddedScheduler
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.scheduler.plugged import choose_scheduler
from tidegate_server.gateway.scheduler.workflows import schedule_timezone
from tidegate_server.gateway.session.manager import SessionManager
from tidegate_server.gateway.session.metadata_cache_file import MetadataCacheFile
from tidegate_server.gateway.store.breaches import Breaches
from tidegate_server.gateway.store.catalog_store import (
    CatalogFiles,
    SplitExternalObjects,
    catalogs_in_memory,
    store_folder,
    store_kind,
)
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.external import ExternalObjects, SqlExternalObjects
from tidegate_server.gateway.store.jobs import SqlJobs
from tidegate_server.gateway.store.maintenance import MaintenanceRuns
from tidegate_server.gateway.store.privileges import SqlPrivileges
from tidegate_server.gateway.store.watch import CHECK_SECONDS, StoreWatch

logger = logging.getLogger(__name__)

_REFRESH_PATIENCE = 5.0
"""Seconds that running refreshes get to finish when the gateway stops."""
_RECOVERY_INTERVAL = 60.0
"""Seconds between searches for runs of dead servers, on a shared store."""


class Gateway:
    """A gateway and its engine; a context manager that listens while it is entered.

    The parts start in the order lock, store, listener, engine, and stop in reverse.
    Statements that need no Spark are answered as soon as the gateway listens.
    """

    def __init__(
        self,
        config: Config,
        *,
        java_home: Path,
        announce: Callable[[str], None] = logger.info,
        clock: Clock | None = None,
        engine_command: Sequence[str] = ENGINE_COMMAND,
        recover_catalog: bool = False,
    ) -> None:
        """Build the parts without opening or starting any.

        ``announce`` gets a sentence about each change of the engine. ``recover_catalog`` restores
        definitions that are found in the warehouse but not in the store.

        :raises ServerError: ALERTS_CONFIGURATION, CLUSTER_CONFIGURATION, CLUSTER_STORAGE,
            INSECURE_ADDRESS, INSECURE_PASSWORDS, LOGIN_CONFIGURATION, LOG_STORE_UNSAFE,
            METASTORE_NOT_SHARED, MT_EXECUTION_MODE, MT_OPTION_UNKNOWN, MT_OPTION_VALUE,
            SCHEDULER_CONFIGURATION, SECRET_EXPOSED or TLS_CONFIGURATION.
        """
        self.data = config.data.resolve()
        check_configuration(config, self.data)
        self.host, self.port = config.server.host, config.server.port
        self.http_port: int | None = None
        """The port of the REST interface while it listens."""
        self.flight_port: int | None = None
        """The port of Flight SQL while it listens."""
        self.config = config
        self._clock = clock or SystemClock()
        self._stack = ExitStack()
        self._scheduling = False
        self._recover_catalog = recover_catalog
        self._announce = announce
        self._lock = DataDirectoryLock(self.data)
        self._database = Database(config.store_url)
        catalog = SqlCatalog(self._database)
        self._engines = Engines(
            config,
            engine_settings(config),
            java_home=java_home,
            command=engine_command,
            announce=announce,
            prepare=self._preparations,
            table_by_id=catalog.by_id,
        )
        self._supervisor, self._engine = self._engines.own, self._engines.engine
        ledger = SqlLedger(self._database)
        server_id = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        metrics = Metrics()
        self._audit = build_audit_log(
            config.audit,
            self.data / AUDIT_DIRECTORY,
            default=distinguishes_users(config),
            server_id=server_id,
            clock=self._clock,
            lost=metrics.audit_failed,
        )
        self._couriers = couriers(config.alerts, metrics.alert_ended)
        self._alerts = Alerts(
            config=config,
            catalog=catalog,
            ledger=ledger,
            breaches=Breaches(self._database),
            clock=self._clock,
            new_id=new_id,
            server_id=server_id,
            tell=[courier.enqueue for courier in self._couriers],
        )
        maintenance_runs = MaintenanceRuns(self._database)
        self._maintenance = Maintenance(
            catalog=catalog,
            ledger=ledger,
            runs=maintenance_runs,
            engine=self._engine,
            clock=self._clock,
            new_id=new_id,
            server_id=server_id,
            lease_seconds=config.scheduler.lease,
            options=config.options,
            refresh=lambda request: self._services.run_refresh(request),
            ended=metrics.maintenance_ended,
        )
        self._system_tables = SystemTables(
            catalog,
            ledger,
            self._clock,
            self.data / "system",
            self.data / AUDIT_DIRECTORY,
            lambda table: schedule_timezone(table, config.timezone, config.options),
            maintenance_runs.runs,
            self._audit.newest_rows,
        )
        self._refresher = Refresher(
            catalog=catalog,
            ledger=ledger,
            engine=self._engine,
            clock=self._clock,
            new_id=new_id,
            server_id=server_id,
            lease_seconds=config.scheduler.lease,
            engines=config.engines,
            admit=lambda request, record: admit_run(request, self._services, record),
            audit=self._audit,
        )
        run_refresh = observe_refreshes(self._refresher.run, metrics, new_id, self._refresh_ended)
        waves = Waves(
            catalog=catalog,
            engine=self._engine,
            queue=self._refresher,
            run_refresh=run_refresh,
            new_id=new_id,
            max_concurrent=config.scheduler.max_concurrent,
        )
        embedded = EmbeddedScheduler(
            database=self._database,
            ledger=ledger,
            tables=catalog,
            run_refresh=waves.refresh,
            skip_refresh=lambda request, code, text: observe_refreshes(
                lambda skipped: self._refresher.skip(skipped, code, text), metrics, new_id
            )(request),
            watcher=ContinuousWatcher(
                tables=catalog, ledger=ledger, source_versions=self._source_versions
            ),
            config=config.scheduler,
            clock=self._clock,
            options=config.options,
            server_id=server_id,
            arms=config.fires_itself,
            suspended=self._alerts.report_suspended,
        )
        self._scheduler = choose_scheduler(
            config, embedded, catalog, lambda: (self.host, self.http_port)
        )
        self._recovery = Recovery(
            catalog=catalog,
            ledger=ledger,
            engine=self._engine,
            refresher=self._refresher,
            scheduler=self._scheduler,
            server_id=server_id,
            shared=self._database.shared,
        )
        self._jobs = JobKeeper(
            store=SqlJobs(self._database),
            ledger=ledger,
            engine_of=lambda owner: self._services.engine_of(owner),
            admit=lambda job: admit_job(job, self._services),
            clock=self._clock,
            server_id=server_id,
            lease_seconds=config.scheduler.lease,
            kept_days=config.scheduler.history_days,
            shared=self._database.shared,
            starts_engines=self._engines.users is not None,
        )
        services = Services(
            config=config,
            catalog=catalog,
            ledger=ledger,
            scheduler=self._scheduler,
            engine=self._engine,
            run_refresh=run_refresh,
            waves=waves,
            cancel_refresh=self._refresher.cancel,
            publish_system_tables=self._publish_system_tables,
            clock=self._clock,
            new_id=new_id,
            server_id=server_id,
            metrics=metrics,
            audit=self._audit,
            privileges=SqlPrivileges(self._database),
            external=_external_objects(config, self._database),
            store=self._database,
            memory=self._engines.memory,
            user_engines=self._engines.users,
            target_engines=self._engines.targets,
            may_use=lambda catalog, user: may_use_catalog(catalog, user, services),
            jobs=self._jobs,
        )
        self._services = services
        kept = MetadataCacheFile(self.data / "metastore.msgpack")
        sessions = SessionManager(services, prepare, kept)
        self._snapshot = sessions.snapshot
        tokens = DelegationTokens(SqlTokenStore(self._database), self._clock, new_id, config.login)
        access = build_access(config, self._clock, tokens)
        thrift, http, flight = (
            watch_rejections(access, metrics, self._audit, port)
            for port in ("thrift", "http", "flight")
        )
        self._listener = Listener(ThriftServer(config, sessions, thrift))
        self._http = HttpPort(services, sessions, embedded, http)
        self._flight = FlightPort(config, sessions, flight, metrics)
        self._supervisor.on_ready(self._engine_ready)
        self._engines.before_work(services.ensure_catalogs_of)

    def __enter__(self) -> Gateway:
        """Listen, and start the engine in the background.

        :raises DataDirectoryTakenError: if another gateway uses the data directory.
        :raises ServerError: AUDIT_UNAVAILABLE, DATA_DIRECTORY, or why the store cannot be opened.
        :raises OSError: if the data directory or the address cannot be used.
        """
        claim(self.data)
        with ExitStack() as stack:
            stack.enter_context(self._lock)
            stack.callback(self._audit.close)
            self._audit.open()
            stack.callback(self._database.close)
            self._database.open()
            if not self._database.shared:
                # Before the first statement arrives, which might be changing a workflow itself.
                self._realign_workflows()
            self._snapshot.load()
            stack.callback(self._engines.close)
            # These threads stop after the engine, because one may be waiting for its answer.
            watch = StoreWatch(self._database, self._announce)
            stack.enter_context(Repeat(watch.check, CHECK_SECONDS, "store-watch"))
            memory = Repeat(self._engines.check, MEMORY_SECONDS, "engine-memory")
            stack.enter_context(memory)
            stack.enter_context(Repeat(self._jobs.check, JOB_SECONDS, "jobs"))
            for courier in self._couriers:
                courier.start()
                stack.callback(courier.close)
            refreshes_ended = threading.Event()
            stack.callback(refreshes_ended.wait, _REFRESH_PATIENCE)
            stack.callback(self._engines.stop)
            stack.callback(self._close_scheduler, refreshes_ended)
            self._maintenance.open()
            stack.callback(self._maintenance.close)
            self.host, self.port = self._listener.start()
            stack.callback(self._listener.stop)
            stack.callback(self._http.stop)
            self.http_port = self._http.start()
            stack.callback(self._flight.stop)
            self.flight_port = self._flight.start()
            if self._database.shared:
                stack.enter_context(Repeat(self._recover, _RECOVERY_INTERVAL, "recovery"))
            if self._alerts.watches_lag:
                lag_check = Repeat(
                    self._alerts.check_lag, self.config.alerts.lag_interval, "lag-alerts"
                )
                stack.enter_context(lag_check)
            self._engines.start()
            stack.callback(self._engines.start_no_other)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, problem, trace)

    @property
    def address(self) -> str:
        """Host and port as written in a URL, or the path of the socket."""
        if self.config.server.socket:
            return self.config.server.socket
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def engine_heap(self) -> str:
        """The size of the heap of the gateway's own engine, in Spark's notation."""
        return self._engines.heap

    @property
    def engine_generation(self) -> int:
        """The number of the current engine of this gateway, from 1."""
        return self._supervisor.generation

    @property
    def engine_info(self) -> EngineInfo | None:
        """The gateway's own engine; None while none is up."""
        return self._supervisor.info

    @property
    def other_engines(self) -> Mapping[str, EngineInfo]:
        """The engines beside the gateway's own that are up, by user or by engine target."""
        return {key: info for pool in self._engines.pools for key, info in pool.up().items()}

    def on_other_engines(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after one of them has come up or was ended."""
        self._engines.on_change(callback)

    def on_engine_ready(self, callback: Callable[[EngineInfo], None]) -> None:
        """Call ``callback`` whenever an engine is ready, after the gateway's own callback."""
        self._supervisor.on_ready(callback)

    def hurry(self) -> None:
        """Make a stop in progress finish without waiting."""
        self._engines.hurry()

    def _refresh_ended(self, run: RefreshRun) -> None:
        self._alerts.refresh_ended(run)
        self._maintenance.refresh_ended(run)

    def _publish_system_tables(self, text: str, administers: bool) -> None:
        """Update the system tables once the engine knows them.

        :raises ServerError: ENGINE_UNAVAILABLE if none comes up.
        """
        self._supervisor.wait_prepared()
        self._system_tables.publish(text, administers=administers)
        if self._engines.exchange:
            self._engine.call(self._system_tables_of_engines())

    def _preparations(self) -> Iterator[Request[Done]]:
        """Yield the requests that complete the metastore of a new engine.

        They record what earlier versions did not, and make the system tables readable.
        """
        yield ReleaseOwners()
        self._system_tables.ensure()
        yield self._system_tables_of_engines()

    def _system_tables_of_engines(self) -> RegisterSystemTables:
        """Return the system tables where engines read them.

        The executors of a cluster do not see this machine's directories, but copies of them.
        """
        exchange = self._engines.exchange
        shared = f"{exchange}/{claim(self.data).id}/system" if exchange else ""
        comments = self._system_tables.comments()
        return RegisterSystemTables(
            schema=SYSTEM_SCHEMA,
            tables=tuple(
                SystemTable(
                    name=name,
                    location=f"{shared}/{name}" if shared else location,
                    comment=comments[name],
                    source=location if shared else "",
                )
                for name, location in self._system_tables.locations().items()
            ),
        )

    def _engine_ready(self, info: EngineInfo) -> None:
        logger.info("Engine %d is up: Spark %s", info.pid, info.spark_version)
        self._snapshot.invalidate()  # it may have been taken before the system tables existed
        self._services.ensure_catalogs("")  # tables to recover may be in catalogs
        if self._recover_catalog:
            self._rebuild()
        else:
            self._warn_of_lost_metastore()
        self._recover()
        if not self._database.shared:
            self._realign()
            self._reconcile_grants()
        if not self._scheduling and self.config.scheduler_type != "none":
            self._scheduling = True
            self._scheduler.open()

    def _warn_of_lost_metastore(self) -> None:
        try:
            lost = metastore_is_lost(self._services.catalog, self._engine)
        except ServerError as error:
            logger.warning(
                "the check of the metastore is postponed to the next engine start: %s", error
            )
            return
        if lost:
            self._announce(
                "The metastore is empty, although there are materialized tables: start once with "
                "--recover-catalog, which registers the tables of the warehouse."
            )

    def _rebuild(self) -> None:
        services = self._services
        try:
            entries = reregister(services.catalog, self._engine)
            added = rebuild(
                services.catalog,
                services.ledger,
                services.scheduler,
                self._engine,
                self.config.timezone,
                self.config.options,
            )
        except ServerError as error:
            logger.warning(
                "rebuilding the catalog is postponed to the next engine start: %s", error
            )
            return
        if entries.materialized:
            put_views(services.catalog, self._engine)
        self._recover_catalog = False
        self._snapshot.invalidate()
        if entries.materialized or entries.plain:
            self._announce(
                f"Registered {entries.materialized} materialized and {entries.plain} other Delta "
                "tables of the warehouse in the metastore."
            )
        self._announce(f"Restored {added} materialized tables; they are suspended.")

    def _recover(self) -> None:
        self._recovery.recover(self._clock.now())

    def _realign_workflows(self) -> None:
        zone, options = self.config.timezone, self.config.options
        realign_workflows(self._services.catalog, self._scheduler, zone, options)

    def _realign(self) -> None:
        """Complete or undo changes of definitions that a dead gateway left unfinished."""
        services = self._services
        try:
            changed = realign_storage(
                services.catalog,
                services.ledger,
                self._engine,
                self._clock.now(),
                services.server_id,
            )
            if changed:
                self._realign_workflows()
        except ServerError as error:
            logger.warning(
                "recovery of interrupted changes is postponed to the next engine start: %s", error
            )

    def _reconcile_grants(self) -> None:
        """Remove the grants on objects whose drop was not recorded."""
        try:
            if not metastore_is_lost(self._services.catalog, self._engine):
                reconcile(self._services)
        except ServerError as error:
            logger.warning("the check of grants is postponed to the next engine start: %s", error)

    def _source_versions(self, sources: tuple[Source, ...]) -> Mapping[str, int]:
        answer = self._engine.call(SourceVersions(sources=sources), wait=0)
        return answer.versions

    def _close_scheduler(self, ended: threading.Event) -> None:
        """Stop firing; refreshes that take too long end with the engine."""

        def close() -> None:
            self._scheduler.close()
            ended.set()

        threading.Thread(target=close, name="scheduler-close", daemon=True).start()
        ended.wait(_REFRESH_PATIENCE)
        self._refresher.close()


def _external_objects(config: Config, database: Database) -> ExternalObjects:
    """Return the store of external objects, with catalogs where the configuration says."""
    stored = SqlExternalObjects(database)
    kind = store_kind(config)
    if kind == "file":
        files = CatalogFiles(store_folder(config), stored, new_id)
        return SplitExternalObjects(stored, files)
    return catalogs_in_memory(stored) if kind == IN_MEMORY else stored
