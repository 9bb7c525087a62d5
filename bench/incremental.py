"""Compares incremental with full refreshes over sizes and shares of changed rows, in one run."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from servers import Server, machine, tidegate_server

import tidegate

QUERIES = {
    "append": "SELECT id, k, amount * 2 AS twice FROM facts WHERE amount > 10",
    "groups": "SELECT k, count(*) AS c, sum(amount) AS s, count(DISTINCT v) AS d, max(v) AS m "
    "FROM facts GROUP BY k",
    "join": "SELECT f.k, d.name, sum(f.amount) AS s FROM facts f JOIN dims d ON f.k = d.k "
    "GROUP BY f.k, d.name",
}
FEED = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One cell of the grid; seconds are medians."""

    query: str
    rows: int
    share: float
    incremental: float
    full: float
    strategy: str

    @property
    def ratio(self) -> float:
        """How many times faster the incremental refresh was."""
        return self.full / self.incremental


def main() -> int:
    """Measure and print; return 1 when a table differs from its query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0001, 0.01])
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-incremental-") as directory,
        tidegate_server(Path(directory)) as server,
    ):
        figures = list(_grid(server, options))
    if options.json:
        report = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return 0


def _grid(server: Server, options: argparse.Namespace) -> Iterator[Figure]:
    print(f"{'query':<8} {'rows':>12} {'changed':>9} {'incremental':>12} {'full':>8} {'ratio':>7}")
    with tidegate.connect(host="127.0.0.1", port=server.port, user="bench") as connection:
        for rows in options.rows:
            _make_sources(connection, rows)
            for query in options.queries:
                for share in options.shares:
                    figure = _measure(connection, query, rows, share, options.runs)
                    print(
                        f"{query:<8} {rows:>12,} {share:>9.4%} {figure.incremental:>10.2f} s "
                        f"{figure.full:>6.2f} s {figure.ratio:>6.2f}x  {figure.strategy}",
                        flush=True,
                    )
                    yield figure


def _make_sources(connection: tidegate.Connection, rows: int) -> None:
    keys = max(rows // 200, 10)
    for statement in (
        "DROP TABLE IF EXISTS facts",
        "DROP TABLE IF EXISTS dims",
        f"CREATE TABLE facts (id BIGINT, k BIGINT, amount DECIMAL(12,2), v INT) {FEED}",
        "CREATE TABLE dims (k BIGINT, name STRING) USING delta",
        f"INSERT INTO facts SELECT id, id % {keys}, id % 1000, id % 17 FROM RANGE({rows})",
        f"INSERT INTO dims SELECT id, concat('n', id) FROM RANGE({keys})",
    ):
        _run(connection, statement)


def _measure(
    connection: tidegate.Connection, query: str, rows: int, share: float, runs: int
) -> Figure:
    table = f"mt_{query}"
    _run(connection, f"DROP MATERIALIZED TABLE IF EXISTS {table}")
    _run(
        connection,
        f"CREATE MATERIALIZED TABLE {table} FRESHNESS = INTERVAL '1' DAY AS {QUERIES[query]}",
    )
    _run(connection, f"ALTER MATERIALIZED TABLE {table} SUSPEND")
    _run(connection, f"ALTER MATERIALIZED TABLE {table} REFRESH")
    changed = max(int(rows * share), 1)
    incremental, full, strategies = [], [], []
    for run in range(runs):
        _change(connection, query, rows, changed, run)
        seconds, strategy = _refresh(connection, table, "INCREMENTAL")
        incremental.append(seconds)
        strategies.append(strategy)
        _check(connection, table, QUERIES[query])
        _change(connection, query, rows, changed, run)
        full.append(_refresh(connection, table, "FULL")[0])
    return Figure(
        query=query,
        rows=rows,
        share=share,
        incremental=statistics.median(incremental),
        full=statistics.median(full),
        strategy=strategies[-1],
    )


def _change(connection: tidegate.Connection, query: str, rows: int, changed: int, run: int) -> None:
    """Append, or update neighbouring rows, as a feed of recent facts would."""
    if query == "append":
        _run(
            connection,
            f"INSERT INTO facts SELECT {rows} + id, id, id % 1000, 1 FROM RANGE({changed})",
        )
        return
    low = (run * changed) % rows
    where = f"id >= {low} AND id < {low + changed}"
    _run(connection, f"UPDATE facts SET amount = amount + 1 WHERE {where}")


def _refresh(connection: tidegate.Connection, table: str, kind: str) -> tuple[float, str]:
    start = time.perf_counter()
    rows = _run(connection, f"ALTER MATERIALIZED TABLE {table} REFRESH {kind}")
    seconds = time.perf_counter() - start
    return seconds, str(json.loads(str(rows[0][1]))["action"])


def _check(connection: tidegate.Connection, table: str, query: str) -> None:
    found = _run(
        connection,
        f"SELECT count(*) FROM ((SELECT * FROM {table} EXCEPT ALL ({query})) UNION ALL "
        f"(({query}) EXCEPT ALL SELECT * FROM {table}))",
    )
    if found[0][0]:
        raise SystemExit(f"{table} differs from its query in {found[0][0]} rows")


def _run(connection: tidegate.Connection, statement: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]


if __name__ == "__main__":
    sys.exit(main())
