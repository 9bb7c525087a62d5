"""Measures how long a CONTINUOUS table takes to show small changes, as a reader sees it."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from facts import make_sources, run
from servers import machine, tidegate_server

import tidegate

QUERIES = {
    "append": ("SELECT id, k, amount * 2 AS twice FROM facts", "count(*)"),
    "join": ("SELECT f.id, d.name FROM facts f JOIN dims d ON f.k = d.k", "count(*)"),
    "groups": (
        "SELECT k, count(*) AS c, sum(amount) AS s, count(DISTINCT v) AS d FROM facts GROUP BY k",
        "sum(c)",
    ),
}
"""The query of each table, and the expression that counts the facts it has seen."""
_ROWS = 10
_POLL_SECONDS = 0.2
_LOST_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Seconds from the end of an INSERT to the first read that shows it."""

    query: str
    p50: float
    p95: float
    longest: float


def main() -> int:
    """Measure and print; return 1 when a table's p95 is beyond its freshness."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="of the table that changes")
    parser.add_argument(
        "--changes", type=int, default=40, help="inserts, the first fifth unmeasured"
    )
    parser.add_argument("--every", type=float, default=3.0, help="seconds from read to insert")
    parser.add_argument("--freshness", type=int, default=5, help="seconds")
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-lag-") as directory,
        tidegate_server(Path(directory)) as server,
        tidegate.connect(host="127.0.0.1", port=server.port, user="bench") as connection,
    ):
        figures = [_measure(connection, query, options) for query in options.queries]
    if options.json:
        report = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return int(any(figure.p95 > options.freshness for figure in figures))


def _measure(connection: tidegate.Connection, query: str, options: argparse.Namespace) -> Figure:
    text, known = QUERIES[query]
    keys = make_sources(connection, options.rows)
    run(
        connection,
        f"CREATE MATERIALIZED TABLE mt FRESHNESS = INTERVAL '{options.freshness}' SECOND "
        f"REFRESH_MODE = CONTINUOUS AS {text}",
    )
    count, lags = options.rows, []
    _until(connection, known, count)
    for _ in range(options.changes):
        time.sleep(options.every)
        low = count
        count += _ROWS
        run(
            connection,
            f"INSERT INTO facts SELECT id, id div 5, id % {keys}, 1, 1 FROM RANGE({low}, {count})",
        )
        lags.append(_until(connection, known, count))
    run(connection, "DROP MATERIALIZED TABLE mt")
    warm = lags[options.changes // 5 :]
    p95 = statistics.quantiles(warm, n=20, method="inclusive")[-1]
    figure = Figure(query=query, p50=statistics.median(warm), p95=p95, longest=max(warm))
    print(
        f"{query:<8} p50 {figure.p50:5.2f} s  p95 {figure.p95:5.2f} s  "
        f"longest {figure.longest:5.2f} s  p95 is {p95 / options.freshness:.2f}x the freshness",
        flush=True,
    )
    return figure


def _until(connection: tidegate.Connection, known: str, count: int) -> float:
    """Return after how many seconds the table shows ``count`` facts."""
    began = time.monotonic()
    while time.monotonic() < began + _LOST_SECONDS:
        if run(connection, f"SELECT {known} FROM mt")[0][0] == count:
            return time.monotonic() - began
        time.sleep(_POLL_SECONDS)
    raise SystemExit(f"{count} facts were not shown within {_LOST_SECONDS} s")


if __name__ == "__main__":
    sys.exit(main())
