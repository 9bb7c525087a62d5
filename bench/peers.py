"""Compares Tidegate with Spark's own Thrift server: same machine, Spark, queries, clients."""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import impala.dbapi
import jdbc
from servers import Server, machine, spark_thrift_server, tidegate_server

import tidegate

T = TypeVar("T")

FETCH_ROWS = 200_000
_COLD = 2
"""How many fetches a JDBC client's own JVM needs before it is warm."""
WIDE = (
    "SELECT id, CAST(id % 1000 AS INT) AS i, id / 7.0D AS d, id % 3 = 0 AS b, "
    "CONCAT('row number ', id) AS s, CAST(id % 100000 AS DECIMAL(12,2)) AS dec, "
    "DATE_ADD(DATE '2020-01-01', CAST(id % 1000 AS INT)) AS day, "
    "TIMESTAMP_SECONDS(1600000000 + id) AS ts FROM RANGE({rows})"
)

Connect = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The median of several runs of one thing, with the spread."""

    server: str
    client: str
    what: str
    unit: str
    median: float
    low: float
    high: float
    runs: int


def main() -> int:
    """Measure and print; return the exit code."""
    options = _parser().parse_args()
    print(machine(), flush=True)
    measurements: list[Measurement] = []
    peers: list[tuple[str, Callable[[Path], contextlib.AbstractContextManager[Server]]]] = [
        ("spark", spark_thrift_server),
        ("tidegate", tidegate_server),
    ]
    for name, start in peers:
        if options.only and options.only != name:
            continue
        with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as directory:
            print(f"starting {name} ...", flush=True)
            with start(Path(directory)) as server:
                print(f"  first answer after {server.started_in:.1f} s", flush=True)
                measurements.extend(measure(server, options.runs, options.jdbc))
    print(table(measurements))
    if options.json:
        report = {"machine": machine(), "results": [asdict(m) for m in measurements]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="repetitions of a fetch (5)")
    parser.add_argument("--only", choices=("spark", "tidegate"), help="measure one server")
    parser.add_argument(
        "--jdbc",
        nargs="*",
        default=[jdbc.SHIPPED],
        metavar="VERSION",
        help=f"versions of Hive's JDBC driver to measure as well ({jdbc.SHIPPED})",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser


def measure(server: Server, runs: int, versions: Sequence[str]) -> list[Measurement]:
    """Take every measurement of one server, through each client."""
    clients: dict[str, Connect] = {
        "impyla": lambda: impala.dbapi.connect(
            host="127.0.0.1", port=server.port, auth_mechanism="PLAIN", user="bench"
        ),
        "tidegate": lambda: tidegate.connect(host="127.0.0.1", port=server.port, user="bench"),
    }
    found: list[Measurement] = [
        summarise(server.name, "-", "start to first answer", "s", [server.started_in])
    ]
    _warm_up(clients)
    for client, connect in clients.items():
        found.extend(_measure_client(server.name, client, connect, runs))
    for version in versions:
        found.extend(_measure_jdbc(server, version, runs))
    return found


def _warm_up(clients: dict[str, Connect]) -> None:
    """Warm up the JVM for the measured statements, so that later clients have no advantage."""
    for connect in clients.values():
        connection, cursor = _open(connect)
        for _ in range(30):
            _rows(cursor, "SELECT 1")
        for _ in range(2):
            _rows(cursor, WIDE.format(rows=FETCH_ROWS))
        _close((connection, cursor))


def _measure_client(server: str, client: str, connect: Connect, runs: int) -> Iterator[Measurement]:
    connecting = [time_call(lambda: _close(_open(connect)))[0] * 1000 for _ in range(runs * 4)]
    yield summarise(server, client, "connect", "ms", connecting[runs:])
    connection, cursor = _open(connect)
    try:
        small = [time_call(lambda: _rows(cursor, "SELECT 1"))[0] * 1000 for _ in range(runs * 10)]
        yield summarise(server, client, "SELECT 1", "ms", small[runs * 2 :])
        rates = []
        for _ in range(runs + 1):
            seconds, rows = time_call(lambda: _rows(cursor, WIDE.format(rows=FETCH_ROWS)))
            if rows != FETCH_ROWS:
                raise SystemExit(f"{server} answered {rows} rows to {client}, not {FETCH_ROWS}")
            rates.append(FETCH_ROWS / seconds)
        yield summarise(server, client, f"fetch {FETCH_ROWS:,} x 8", "rows/s", rates[1:])
    finally:
        _close((connection, cursor))


def _measure_jdbc(server: Server, version: str, runs: int) -> Iterator[Measurement]:
    client, query = f"JDBC {version}", WIDE.format(rows=FETCH_ROWS)
    took = jdbc.seconds(server.port, version, query, FETCH_ROWS, runs + _COLD)
    small = [second * 1000 for second in took["small"]]
    yield summarise(server.name, client, "SELECT 1", "ms", small[len(small) // 2 :])
    rates = [FETCH_ROWS / second for second in took["large"][_COLD:]]
    yield summarise(server.name, client, f"fetch {FETCH_ROWS:,} x 8", "rows/s", rates)


def _open(connect: Connect) -> tuple[Any, Any]:
    """Open a session; impyla opens one per cursor, so the cursor belongs to it."""
    connection = connect()
    return connection, connection.cursor()


def _close(opened: tuple[Any, Any]) -> None:
    connection, cursor = opened
    cursor.close()
    connection.close()


def _rows(cursor: Any, sql: str) -> int:
    cursor.execute(sql)
    return len(cursor.fetchall())


def time_call(work: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that ``work`` took and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def summarise(server: str, client: str, what: str, unit: str, values: list[float]) -> Measurement:
    """Reduce runs to their median and spread."""
    return Measurement(
        server=server,
        client=client,
        what=what,
        unit=unit,
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        runs=len(values),
    )


def table(measurements: list[Measurement]) -> str:
    """Return the measurements side by side; a ratio above 1 means that Tidegate is better."""
    lines = [f"{'what':<24}{'client':<12}{'unit':<8}{'Spark TS':>12}{'Tidegate':>12}{'ratio':>8}"]
    lines.append("-" * len(lines[0]))
    keys = dict.fromkeys((m.what, m.client, m.unit) for m in measurements)
    for what, client, unit in keys:
        by_server = {
            m.server: m.median for m in measurements if (m.what, m.client) == (what, client)
        }
        spark, ours = by_server.get("spark"), by_server.get("tidegate")
        ratio = ""
        if spark and ours:
            ratio = f"{ours / spark if unit == 'rows/s' else spark / ours:.2f}x"
        lines.append(
            f"{what:<24}{client:<12}{unit:<8}{_figure(spark):>12}{_figure(ours):>12}{ratio:>8}"
        )
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"


if __name__ == "__main__":
    sys.exit(main())
