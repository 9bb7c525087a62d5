"""Values that are determined at each scrape, as a Prometheus collector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LONGEST_LIST = 500
"""Number of tables that get their own series; those that lag most come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLag:
    """How long ago a materialized table's last successful refresh read its sources."""

    table: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """Memory use of the engine's JVM in bytes, and the time it spends collecting garbage."""

    heap_used: int
    heap_limit: int
    direct_used: int
    direct_limit: int
    collecting_seconds: float
    """Time of all garbage collections of this engine."""
    collecting_ratio: float
    """Share of the last minute spent in garbage collections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A gateway at one moment; what is read from the store is None while that fails."""

    sessions: int
    operations: int
    engine_up: bool
    engine_restarts: int
    running_refreshes: int
    due_workflows: int | None = None
    lags: tuple[TableLag, ...] | None = None
    tables: int | None = None
    jobs: Mapping[str, int] | None = None
    """How many jobs have each status."""
    load: EngineLoad | None = None
    user_engines: Mapping[str, EngineLoad | None] | None = None
    """The engines of users that are up, with their load; None if users have none of their own."""
    user_engine_restarts: int = 0
    target_engines: Mapping[str, EngineLoad | None] | None = None
    """The same of the engines that tables choose; None if the configuration has none."""
    target_engine_restarts: int = 0
    store_trouble: str | None = None
    """Code of the error with which the store currently fails."""
    store_failures: Mapping[str, int] = field(default_factory=dict)
    """Failed transactions by error code."""


class Gauges(Collector):
    """Turns a picture of the gateway into metrics at each scrape."""

    def __init__(self, take_picture: Callable[[], Picture]) -> None:
        """``take_picture`` is called from any thread and must not raise."""
        self._take_picture = take_picture

    def describe(self) -> Iterable[Metric]:
        # Without this, the registry would call collect() at registration.
        return ()

    def collect(self) -> Iterator[Metric]:
        picture = self._take_picture()
        yield _gauge("sessions", "Open sessions.", picture.sessions)
        yield _gauge("operations_open", "Operations that have not ended.", picture.operations)
        yield _gauge("engine_up", "Whether the Spark engine answers.", int(picture.engine_up))
        yield CounterMetricFamily(
            "tidegate_engine_restarts",
            "Engines that ended and were replaced.",
            value=picture.engine_restarts,
        )
        yield _gauge("refreshes_running", "Refresh runs at work.", picture.running_refreshes)
        answers = picture.tables is not None and picture.store_trouble is None
        yield _gauge("store_up", "Whether the store can be read and written.", int(answers))
        failures = CounterMetricFamily(
            "tidegate_store_failures",
            "Transactions of the store that failed, by the code of the error.",
            labels=("code",),
        )
        for code, count in sorted(picture.store_failures.items()):
            failures.add_metric((code,), count)
        yield failures
        yield from _store_metrics(picture)
        if picture.load is not None:
            yield from _engine_metrics(picture.load)
        if picture.user_engines is not None:
            yield from _pool_metrics("user", picture.user_engines, picture.user_engine_restarts)
        if picture.target_engines is not None:
            restarts = picture.target_engine_restarts
            yield from _pool_metrics("target", picture.target_engines, restarts)


def _store_metrics(picture: Picture) -> Iterator[Metric]:
    if picture.due_workflows is not None:
        meaning = "Workflows that are due and wait for a free place."
        yield _gauge("scheduler_due_workflows", meaning, picture.due_workflows)
    if picture.tables is not None:
        yield _gauge("materialized_tables", "Materialized tables.", picture.tables)
    if picture.jobs is not None:
        jobs = GaugeMetricFamily("tidegate_jobs", "Jobs by status.", labels=("status",))
        for status, count in sorted(picture.jobs.items()):
            jobs.add_metric((status,), count)
        yield jobs
    if picture.lags is not None:
        lag = GaugeMetricFamily(
            "tidegate_materialized_table_lag_seconds",
            "Upper bound of a table's lag: time since its last good refresh read the sources.",
            labels=("table",),
        )
        for entry in sorted(picture.lags, key=lambda e: -e.seconds)[:LONGEST_LIST]:
            lag.add_metric((entry.table,), entry.seconds)
        yield lag


def _engine_metrics(load: EngineLoad) -> Iterator[Metric]:
    yield _gauge("engine_heap_bytes", "Heap of the engine's JVM in use.", load.heap_used)
    yield _gauge("engine_heap_limit_bytes", "What its heap may take.", load.heap_limit)
    meaning = "Memory of the engine's JVM outside its heap, such as buffers."
    yield _gauge("engine_direct_bytes", meaning, load.direct_used)
    yield _gauge("engine_direct_limit_bytes", "What that may take.", load.direct_limit)
    yield CounterMetricFamily(
        "tidegate_engine_collecting_seconds",
        "Time that the running engine spent in garbage collections.",
        value=load.collecting_seconds,
    )
    meaning = "Share of the last minute that the engine spent in garbage collections."
    yield _gauge("engine_collecting_ratio", meaning, load.collecting_ratio)


def _pool_metrics(
    kind: str, engines: Mapping[str, EngineLoad | None], restarts: int
) -> Iterator[Metric]:
    """Yield the metrics of the engines of users, or of those that tables choose (``target``)."""
    whose = {"user": "a user", "target": "tables"}[kind]
    label = {"user": "user", "target": "engine"}[kind]

    def family(name: str, meaning: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"tidegate_{kind}_engine_{name}", meaning, labels=(label,))

    up = family("up", f"Whether the engine of {whose} answers.")
    heap = family("heap_bytes", f"Heap of the JVM of the engine of {whose} in use.")
    collecting = family(
        "collecting_ratio",
        f"Share of the last minute that the engine of {whose} spent in garbage collections.",
    )
    for key, load in engines.items():
        up.add_metric((key,), 1)
        if load is not None:
            heap.add_metric((key,), load.heap_used)
            collecting.add_metric((key,), load.collecting_ratio)
    yield from (up, heap, collecting)
    yield CounterMetricFamily(
        f"tidegate_{kind}_engine_restarts",
        f"Engines of {whose} that ended and were replaced.",
        value=restarts,
    )


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"tidegate_{name}", meaning, value=value)
