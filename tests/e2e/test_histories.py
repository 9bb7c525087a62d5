"""Rows appended to the first of a chain of tables reach the last: none lost, doubled, reordered.

Clients append, refresh and read while gateways and engines are killed. ``bin/test`` kills two,
``bin/test --full tests/e2e/test_histories.py`` as many as ``TIDEGATE_HISTORY_KILLS`` says.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from math import inf
from threading import Event

import pytest

import tidegate
from tests.support.fixtures.faults import Faults
from tests.support.fixtures.server import Rows, Server, StartServer, last_rows, named_rows
from tests.support.full_run import FULL
from tests.support.histories import Append, History, Read, Refresh, Row, Span
from tests.support.waiting import wait_until
from tidegate_server.core.faults import Point

KILLS = int(os.environ.get("TIDEGATE_HISTORY_KILLS", "60")) if FULL else 2
KEYS = "abc"
POINTS = tuple(Point)[:7]
"""Those that a refresh passes."""
SETTINGS = ("--set=scheduler.lease=2",)
PAUSE = 0.2
CHAIN = (
    "SELECT k, n FROM source WHERE n > 0",
    "SELECT k, array_sort(collect_list(n)) AS ns FROM filtered GROUP BY k",
    "SELECT 1 AS one, array_sort(collect_list(struct(k, ns))) AS lists FROM by_key GROUP BY 1",
)
NAMES = ("filtered", "by_key", "whole")
READS = (
    "SELECT k, n FROM source",
    "SELECT k, n FROM filtered",
    "SELECT k, explode(ns) FROM by_key",
    "SELECT one.k, explode(one.ns) FROM (SELECT explode(lists) AS one FROM whole)",
)


class Clients:
    """Sessions of the server that is up, and what they saw."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = server.port
        self.history = History()
        self.over = Event()
        self.failed: Counter[str] = Counter()

    @contextmanager
    def at_work(self, seed: int) -> Iterator[None]:
        """Append, refresh and read meanwhile."""
        jobs = [self._append, self._append, self._refresh, self._read, self._read]
        with ThreadPoolExecutor(len(jobs)) as pool:
            running = [
                pool.submit(self._until_over, job(number, random.Random(f"{seed} {number}")))
                for number, job in enumerate(jobs)
            ]
            try:
                yield
            finally:
                self.over.set()
        for one in running:
            one.result()

    def follow(self, server: Server) -> None:
        """Go on with another server."""
        self.server, self.port = server, server.port

    def run(self, statement: str) -> tuple[Span, Rows | None]:
        """Run a statement in a session of its own; return no rows if it may or may not have run."""
        began = time.monotonic()
        try:
            with (
                closing(
                    tidegate.connect(host="127.0.0.1", port=self.port, schema="chained")
                ) as connection,
                closing(connection.cursor()) as cursor,
            ):
                rows = last_rows(cursor, statement)
        except tidegate.Error as error:
            self.failed[str(error).partition(":")[0][:60]] += 1
            return Span(began, inf), None
        return Span(began, time.monotonic()), rows

    def refresh(self) -> None:
        """Refresh the whole chain."""
        span, done = self.run("ALTER MATERIALIZED TABLE filtered REFRESH CASCADE")
        if done is not None:
            self.history.refreshes.append(Refresh(span))

    def read(self, level: int) -> None:
        """Read a table."""
        span, rows = self.run(READS[level])
        if rows is not None:
            self.history.reads.append(Read(span, level, tuple(rows)))

    def _until_over(self, work: Callable[[], None]) -> None:
        while not self.over.wait(PAUSE):
            work()

    def _append(self, number: int, source: random.Random) -> Callable[[], None]:
        last = 1_000_000 * number

        def append() -> None:
            nonlocal last
            keys = source.choices(KEYS, k=source.choice((1, 1, 3)))
            rows: tuple[Row, ...] = tuple((key, last + n) for n, key in enumerate(keys, 1))
            last += len(rows)
            span, _ = self.run(f"INSERT INTO source VALUES {', '.join(map(repr, rows))}")
            self.history.appends.append(Append(span, rows))

        return append

    def _refresh(self, _number: int, _source: random.Random) -> Callable[[], None]:
        return self.refresh

    def _read(self, _number: int, source: random.Random) -> Callable[[], None]:
        return lambda: self.read(source.randrange(len(READS)))


@pytest.mark.faults
@pytest.mark.timeout(0 if FULL else 1800)
def test_a_chain_of_tables_neither_loses_nor_doubles_nor_reorders(
    start_server: StartServer, faults: Faults
) -> None:
    server = start_server(*SETTINGS)
    server.wait_for_engine()
    named_rows(
        server,
        "CREATE SCHEMA chained",
        "USE chained",
        "CREATE TABLE source (k STRING, n INT) USING delta",
        *(
            f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '5' SECOND "
            f"REFRESH_MODE = INCREMENTAL AS {query}"
            for name, query in zip(NAMES, CHAIN, strict=True)
        ),
    )
    seed = random.randrange(1_000_000)
    source, clients = random.Random(seed), Clients(server)
    with clients.at_work(seed):
        for number in range(KILLS):
            progress(clients)
            victim = ("gateway", "engine")[number % 2]
            clients.follow(kill(victim, source, clients.server, faults, start_server))
        progress(clients)
    clients.refresh()
    for level in range(len(READS)):
        clients.read(level)
    history = clients.history
    print(  # noqa: T201
        f"seed {seed}: {KILLS} kills, {len(history.appends)} appends, "
        f"{sum(append.span.ended == inf for append in history.appends)} of them without an answer, "
        f"{len(history.refreshes)} refreshes of the chain, {len(history.reads)} reads; "
        f"statements that failed: {dict(clients.failed)}"
    )
    assert history.anomalies() == [], f"seed {seed}"
    assert {read.level for read in history.reads[-len(READS) :]} == set(range(len(READS)))
    for name in NAMES:
        runs = named_rows(clients.server, f"SHOW REFRESH HISTORY FOR chained.{name}")
        assert "INCREMENTAL" in {run["action"] for run in runs}, name


def progress(clients: Clients) -> None:
    """Wait until clients have appended, refreshed and read again."""
    history = clients.history

    def counts() -> tuple[int, int, int]:
        answered = sum(append.span.ended < inf for append in history.appends)
        return answered, len(history.refreshes), len(history.reads)

    before = counts()
    wait_until(
        lambda: all(now > then for now, then in zip(counts(), before, strict=True)),
        f"no progress since {before}: {clients.failed}",
    )


def kill(
    victim: str, source: random.Random, server: Server, faults: Faults, start: StartServer
) -> Server:
    """Kill the gateway or the engine, half of the time in a refresh; return the running server."""
    engine = server.engine_pid
    point = source.choice(POINTS) if source.random() < 0.5 else None
    if point:
        faults.arm(point)
        faults.wait_held(point)
    else:
        time.sleep(source.random())
    with server.killed() if victim == "gateway" else nullcontext():
        if victim == "engine":
            os.kill(engine, signal.SIGKILL)
        if point:
            faults.release(point)
    if victim == "gateway":
        server = start(*SETTINGS)
    server.wait_for_engine(other_than=engine)
    return server


AT = [Span(float(n), n + 0.5) for n in range(10)]
FIRST, SECOND = Append(AT[0], (("a", 1),)), Append(AT[1], (("a", 2), ("b", 3)))
UNANSWERED = Append(Span(1.2, inf), (("b", 9),))
BOTH: tuple[Row, ...] = (*FIRST.rows, *SECOND.rows)


@pytest.mark.parametrize(
    ("reads", "anomaly"),
    [
        ([Read(AT[2], 0, BOTH), Read(AT[2], 1, ()), Read(AT[3], 1, FIRST.rows)], None),
        ([Read(AT[2], 0, (*BOTH, *UNANSWERED.rows)), Read(AT[5], 1, BOTH)], None),
        ([Read(AT[2], 0, FIRST.rows)], "lost"),
        ([Read(AT[5], 3, FIRST.rows)], "lost"),
        ([Read(AT[2], 1, SECOND.rows)], "later rows are"),
        ([Read(AT[2], 1, (("a", 1), ("a", 2)))], "only a part"),
        ([Read(AT[2], 1, (*FIRST.rows, *FIRST.rows))], "2 times"),
        ([Read(AT[2], 1, (("c", 1),))], "never appended"),
        ([Read(AT[2], 1, FIRST.rows), Read(AT[3], 1, ())], "vanished"),
        ([Read(AT[2], 2, FIRST.rows), Read(AT[3], 1, ())], "vanished"),
    ],
)
def test_histories_are_judged(reads: list[Read], anomaly: str | None) -> None:
    history = History([FIRST, SECOND, UNANSWERED], [Refresh(AT[4])], reads)
    found = history.anomalies()
    assert (anomaly is None and not found) or (anomaly and anomaly in " ".join(found)), found
