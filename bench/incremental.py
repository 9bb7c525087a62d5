"""Compares incremental, full and chosen refreshes by the share of changed rows, in one run."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from facts import make_sources, refresh, require_equal, run
from plot import Curve, plot
from servers import Server, machine, tidegate_server

import tidegate

QUERIES = {
    "append": "SELECT id, k, amount * 2 AS twice FROM facts WHERE amount > 10",
    "join": "SELECT f.k, d.name, sum(f.amount) AS s FROM facts f JOIN dims d ON f.k = d.k "
    "GROUP BY f.k, d.name",
    "orders": "SELECT o.customer, count(*) AS c, sum(f.amount) AS s FROM facts f "
    "JOIN orders o ON f.o = o.o GROUP BY o.customer",
    "groups": "SELECT k, count(*) AS c, sum(amount) AS s, count(DISTINCT v) AS d, max(v) AS m "
    "FROM facts GROUP BY k",
    "few": "SELECT v % 20 AS g, count(*) AS c, avg(amount) AS a, sum(amount) / count(*) AS q "
    "FROM facts GROUP BY v % 20",
}
SHARES = (0.00001, 0.0001, 0.001, 0.01, 0.1, 0.5, 1.0)
_WARM_ROWS = 10_000
_WARM_TURNS = {"FULL": 10, "INCREMENTAL": 30}
"""Refreshes of a small table before the large one, to warm up the JIT compiler of a server that
has just started."""
BOUND = 1.2
"""A chosen refresh is right if it takes at most this many times as long as the better one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One cell of the grid: the seconds of each refresh."""

    query: str
    rows: int
    share: float
    incremental: Sequence[float]
    full: Sequence[float]
    chosen: Sequence[float]
    actions: Sequence[str]
    """The strategies that the table chose, one per refresh."""

    @property
    def action(self) -> str:
        """The strategy that the table chose most often."""
        return statistics.mode(self.actions)

    @property
    def ratio(self) -> float:
        """How many times as fast as the full refresh the incremental one was."""
        return statistics.median(self.full) / statistics.median(self.incremental)

    @property
    def overhead(self) -> float:
        """How many times as long as the full refresh the chosen one took."""
        return statistics.median(self.chosen) / statistics.median(self.full)

    @property
    def right(self) -> bool:
        """Whether the chosen strategy was not much slower than the other."""
        times = {
            action: statistics.median([*asked, *self._seconds_of(action)])
            for action, asked in (("INCREMENTAL", self.incremental), ("FULL", self.full))
        }
        return times[self.action] <= BOUND * min(times.values())

    def _seconds_of(self, action: str) -> list[float]:
        """Return the seconds of the refreshes that chose this strategy."""
        return [s for s, chosen in zip(self.chosen, self.actions, strict=True) if chosen == action]


def main() -> int:
    """Measure and print; return 1 when a table differs from its query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--plot", type=Path, help="also draw the curves into this SVG file")
    options = parser.parse_args()
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-incremental-") as directory,
        tidegate_server(Path(directory)) as server,
    ):
        figures = list(_grid(server, options))
    _summarize(figures)
    if options.json:
        report = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    if options.plot:
        options.plot.write_text(plot(_curves(figures), f"{options.rows:,} rows"), "utf-8")
    return 0


def _grid(server: Server, options: argparse.Namespace) -> Iterator[Figure]:
    with tidegate.connect(host="127.0.0.1", port=server.port, user="bench") as connection:
        for query in options.queries:
            make_sources(connection, _WARM_ROWS)
            _make_table(connection, query, **_WARM_TURNS)
            run(connection, f"DROP MATERIALIZED TABLE mt_{query}")
        for query in options.queries:
            make_sources(connection, options.rows)
            _make_table(connection, query, FULL=1, INCREMENTAL=2)
            print(f"{query}: nothing changed in {_nothing(connection, query) * 1000:.0f} ms")
            print(f"{'changed':>10} {'incremental':>12} {'full':>9} {'ratio':>7} {'chosen':>9}")
            for share in options.shares:
                figure = _measure(connection, query, options.rows, share, options.runs)
                incremental, full, chosen = (
                    statistics.median(s) for s in (figure.incremental, figure.full, figure.chosen)
                )
                print(
                    f"{share:>10.3%} {incremental:>10.2f} s {full:>7.2f} s "
                    f"{figure.ratio:>6.2f}x {chosen:>7.2f} s  {figure.action}"
                    f"{'' if figure.right else '  (the slower one)'}",
                    flush=True,
                )
                yield figure


def _make_table(connection: tidegate.Connection, query: str, **turns: int) -> None:
    """Create a table without a schedule, and refresh it several times in each mode."""
    run(
        connection,
        f"CREATE MATERIALIZED TABLE mt_{query} FRESHNESS = INTERVAL '1' DAY AS {QUERIES[query]}",
    )
    run(connection, f"ALTER MATERIALIZED TABLE mt_{query} SUSPEND")
    for kind, count in turns.items():
        for _ in range(count):
            _change(connection, query, 10, 0)
            refresh(connection, f"mt_{query}", kind)


def _nothing(connection: tidegate.Connection, query: str) -> float:
    """Return the seconds that the engine takes to find that there is nothing to do."""
    return statistics.median(refresh(connection, f"mt_{query}", "").seconds for _ in range(9))


def _measure(
    connection: tidegate.Connection, query: str, rows: int, share: float, runs: int
) -> Figure:
    changed = max(int(rows * share), 1)
    seconds: dict[str, list[float]] = {"INCREMENTAL": [], "FULL": [], "": []}
    actions = []
    for turn in range(runs):
        for kind, taken in seconds.items():
            _change(connection, query, changed, (turn * changed) % max(rows - changed, 1))
            done = refresh(connection, f"mt_{query}", kind)
            if kind not in ("", done.action):
                raise SystemExit(f"REFRESH {kind} of mt_{query} was {done.action}")
            taken.append(done.seconds)
            if kind != "FULL":
                require_equal(connection, f"mt_{query}", QUERIES[query])
            if kind == "":
                actions.append(done.action)
    return Figure(
        query=query,
        rows=rows,
        share=share,
        incremental=seconds["INCREMENTAL"],
        full=seconds["FULL"],
        chosen=seconds[""],
        actions=actions,
    )


def _change(connection: tidegate.Connection, query: str, changed: int, low: int) -> None:
    """Append, or update neighbouring rows, as a feed of recent facts would."""
    if query == "append":
        columns = "-1 - id, id div 5, id, id % 1000, 1"
        statement = f"INSERT INTO facts SELECT {columns} FROM RANGE({changed})"
    else:
        where = f"id >= {low} AND id < {low + changed}"
        statement = f"UPDATE facts SET amount = amount + 1 WHERE {where}"
    run(connection, statement)


# ---- summary -------------------------------------------------------------------------------------


def _summarize(figures: Sequence[Figure]) -> None:
    right = sum(figure.right for figure in figures)
    worst = max(figures, key=lambda figure: figure.overhead)
    where = f"{worst.query} at {worst.share:.3%}"
    print(f"chosen right in {right} of {len(figures)} cells")
    print(f"at worst {worst.overhead:.2f} times the full refresh: {where}")
    for query in dict.fromkeys(figure.query for figure in figures):
        slower = [f.share for f in figures if f.query == query and f.ratio < 1]
        even = f"from {min(slower):.3%} on" if slower else "nowhere"
        print(f"{query}: a full refresh is faster {even}")


def _curves(figures: Sequence[Figure]) -> list[Curve]:
    curves = []
    for query in dict.fromkeys(figure.query for figure in figures):
        of_query = [figure for figure in figures if figure.query == query]
        shares = [figure.share for figure in of_query]
        for name in ("incremental", "full", "chosen"):
            times = [statistics.median(getattr(figure, name)) for figure in of_query]
            curves.append(Curve(panel=query, name=name, points=[*zip(shares, times, strict=True)]))
    return curves


if __name__ == "__main__":
    sys.exit(main())
