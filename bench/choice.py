"""Judges the strategies that tables choose on random data, queries and changes."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from facts import Refreshed, refresh, require_equal, run
from servers import DRIVER_MEMORY, machine, tidegate_server

import tidegate

BOUND = 1.2
"""A choice is right if its strategy takes at most this many times as long as the better one."""
_DIMS = 1_000
_NEVER = float("inf")

SHAPES = {
    "filter": "SELECT id, k, amt * 2 AS twice, q FROM fact WHERE q < 7",
    "join": "SELECT f.id, f.amt, x.name FROM fact f JOIN dim x ON f.d = x.d WHERE x.g < 5",
    "sums": "SELECT k, count(*) AS c, sum(amt) AS s FROM fact GROUP BY k",
    "few": "SELECT q, count(*) AS c, sum(amt) AS s, avg(amt) AS a FROM fact GROUP BY q",
    "star": "SELECT f.k, x.g, count(*) AS c, sum(f.amt) AS s, count(DISTINCT f.q) AS n "
    "FROM fact f JOIN dim x ON f.d = x.d GROUP BY f.k, x.g",
    "extremes": "SELECT k, min(amt) AS low, max(amt) AS high, count(DISTINCT q) AS n "
    "FROM fact GROUP BY k",
    "top": "SELECT * FROM (SELECT k, id, amt, row_number() OVER (PARTITION BY k "
    "ORDER BY amt DESC, id) AS place FROM fact) WHERE place <= 3",
    "newest": "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY id DESC) "
    "AS place FROM fact) WHERE place = 1",
    "outer": "SELECT x.g, x.d, count(f.id) AS c, max(f.amt) AS m FROM dim x "
    "LEFT JOIN fact f ON f.d = x.d AND f.q = 3 GROUP BY x.g, x.d",
    "distinct": "SELECT DISTINCT k, q FROM fact",
    "above": "SELECT g, count(*) AS c, max(s) AS m FROM (SELECT k % 97 AS g, k, sum(amt) AS s "
    "FROM fact GROUP BY k % 97, k) GROUP BY g",
    "best": "SELECT k, sum(amt) AS s FROM fact GROUP BY k ORDER BY s DESC, k LIMIT 100",
}
LARGE_SHAPES = {
    "filtered join": "SELECT f.id, f.amt, x.name FROM fact f JOIN dim x ON f.d = x.d "
    "WHERE f.q < 9 AND x.g <> 7",
    "sums over a join": "SELECT f.k, x.g, count(*) AS c, sum(f.amt) AS s FROM fact f "
    "JOIN dim x ON f.d = x.d GROUP BY f.k, x.g",
    "distinct over a join": "SELECT f.k, x.g, count(*) AS c, sum(f.amt) AS s, "
    "count(DISTINCT f.q) AS n FROM fact f JOIN dim x ON f.d = x.d GROUP BY f.k, x.g",
    "top three": "SELECT * FROM (SELECT k, id, amt, row_number() OVER (PARTITION BY k "
    "ORDER BY amt DESC, id) AS place FROM fact) WHERE place <= 3",
}
"""Those of the fixed cells. No price was fitted on them, and no random cell has them."""
QUERIES = {**SHAPES, **LARGE_SHAPES}
CHANGES = ("append", "update keys", "update scattered", "delete keys")
LAYOUTS = ("plain", "clustered", "partitioned", "small files")
_FILES = 200
"""Those of a table with small files."""
_MOST_STRINGS = 20_000_000
"""Rows times columns of strings: tables with many columns have fewer rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The size and layout of the fact table."""

    rows: int
    strings: int
    """The number of columns that no query computes with."""
    rows_per_key: int
    layout: str
    skewed: bool = False
    """Whether some keys have many times as many rows as others."""

    @property
    def keys(self) -> int:
        """The number of different values of ``k``."""
        return max(self.rows // self.rows_per_key, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A query over data that changes in some way."""

    data: Data
    shape: str
    change: str
    share: float
    """That of the rows which change before each refresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The seconds of three refreshes after the same change, each of a table of its own."""

    cell: Cell
    number: int
    full: float
    incremental: float
    """Infinite if the refresh could not be incremental."""
    chosen: float
    action: str
    reason: str

    @property
    def better(self) -> float:
        """The seconds of the faster strategy."""
        return min(self.full, self.incremental)

    @property
    def right(self) -> bool:
        """Whether the chosen strategy was not much slower than the other."""
        taken = self.full if self.action == "FULL" else self.incremental
        return taken <= BOUND * self.better


def draw(
    seed: int,
    datasets: int,
    cells: int,
    most_rows: int,
    *,
    shapes: Sequence[str] = tuple(SHAPES),
    changes: Sequence[str] = CHANGES,
    least_rows: int = 10_000,
) -> Iterator[tuple[Data, list[Cell]]]:
    """Yield random data, each with as many cells."""
    source = random.Random(seed)
    for _ in range(datasets):
        strings = source.choice((0, 5, 20, 190))
        rows = round(least_rows * (most_rows / least_rows) ** source.random())
        data = Data(
            rows=min(rows, _MOST_STRINGS // max(strings, 1)),
            strings=strings,
            rows_per_key=source.choice((10, 100, 1_000)),
            skewed=source.random() < 0.3,
            layout=source.choice(LAYOUTS),
        )
        yield (
            data,
            [
                Cell(
                    data=data,
                    shape=source.choice(shapes),
                    change=source.choice(changes),
                    share=10 ** source.uniform(-5, -0.5),
                )
                for _ in range(cells)
            ],
        )


def fixed(rows: int) -> Iterator[tuple[Data, list[Cell]]]:
    """Yield the fixed cells: appended rows, and updates of every thousandth key."""
    data = Data(rows=rows, strings=0, rows_per_key=200, layout="plain")
    appended = [(share, "append", "filtered join") for share in (0.00001, 0.001, 0.02)]
    updated = [(0.001, "update keys", shape) for shape in list(LARGE_SHAPES)[1:]]
    yield (
        data,
        [
            Cell(data=data, shape=shape, change=change, share=share)
            for share, change, shape in (*appended, *updated)
        ],
    )


def main() -> int:
    """Measure and print; return 1 when a table differs from its query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--cells", type=int, default=5, help="queries and changes per data set (5)")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the largest fact table")
    parser.add_argument("--minutes", type=float, default=60, help="begin no data set later (60)")
    parser.add_argument("--fixed", action="store_true", help="measure the fixed cells instead")
    parser.add_argument("--turns", type=int, default=4, help="changes and refreshes per cell (4)")
    parser.add_argument(
        "--cold",
        action="store_true",
        help="start a server for each data set, without warming it up",
    )
    parser.add_argument("--master", default="local[*]", help="of the engine (local[*])")
    parser.add_argument("--driver-memory", default=DRIVER_MEMORY, help="of the engine (2g)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    print(f"{machine()}, {options.master}, {options.driver_memory}", flush=True)
    turns: list[Turn] = []
    for found in _judge(options):
        _print(found)
        turns += found
    _summarize(turns)
    if options.json:
        report = {"machine": machine(), "turns": [asdict(turn) for turn in turns]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return 0


def _judge(options: argparse.Namespace) -> Iterator[Sequence[Turn]]:
    """Yield the turns of each cell."""
    if options.fixed:
        chosen = fixed(options.rows)
    else:
        chosen = draw(options.seed, options.datasets, options.cells, options.rows)
    end = time.monotonic() + 60 * options.minutes
    for part in ([each] for each in chosen) if options.cold else [chosen]:
        if time.monotonic() > end:
            return
        with (
            tempfile.TemporaryDirectory(prefix="bench-choice-") as directory,
            tidegate_server(
                Path(directory), master=options.master, driver_memory=options.driver_memory
            ) as server,
            tidegate.connect(host="127.0.0.1", port=server.port, user="bench") as connection,
        ):
            if not options.cold:
                warm_up(connection)
            for cell in in_place(connection, part, end):
                yield list(_measure(connection, cell, options.turns))


def in_place(
    connection: tidegate.Connection, chosen: Iterable[tuple[Data, Sequence[Cell]]], end: float
) -> Iterator[Cell]:
    """Yield cells over their data sets, which are created for it; begin none after ``end``."""
    for data, cells in chosen:
        if time.monotonic() > end:
            return
        keys = f"{data.keys:,}{' skewed' if data.skewed else ''} keys"
        print(f"{data.rows:,} rows, {data.strings} strings, {keys}, {data.layout}", flush=True)
        make_sources(connection, data)
        for cell in cells:
            run(connection, "RESTORE TABLE fact TO VERSION AS OF 1")
            yield cell


def warm_up(connection: tidegate.Connection) -> None:
    """Refresh small tables first: a JVM that has just started takes several times as long."""
    data = Data(rows=10_000, strings=1, rows_per_key=100, layout="plain")
    make_sources(connection, data)
    for shape in SHAPES:
        cell = Cell(data=data, shape=shape, change="update keys", share=0.01)
        list(_measure(connection, cell, 1))


def make_sources(connection: tidegate.Connection, data: Data) -> None:
    """Create the fact table and its dimension in place of earlier ones."""
    strings = "".join(f", s{n} STRING" for n in range(data.strings))
    values = "".join(f", substr(sha1(concat(id, '-', {n})), 1, 12)" for n in range(data.strings))
    layout = "PARTITIONED BY (p)" if data.layout == "partitioned" else ""
    order = "ORDER BY 2" if data.layout == "clustered" else ""
    files = f"/*+ REPARTITION({_FILES}) */" if data.layout == "small files" else ""
    key = f"id % {data.keys}"
    if data.skewed:
        key = f"CAST(pow({key} / {data.keys}, 4) * {data.keys} AS BIGINT)"
    for statement in (
        "DROP TABLE IF EXISTS fact",
        "DROP TABLE IF EXISTS dim",
        (
            f"CREATE TABLE fact (id BIGINT, k BIGINT, d BIGINT, amt DECIMAL(12,2), q INT{strings}, "
            f"p INT) USING delta {layout}"
        ),
        "CREATE TABLE dim (d BIGINT, g INT, name STRING) USING delta",
        (
            f"INSERT INTO fact SELECT {files} id, {key}, id % {_DIMS}, id % 10007, id % 13"
            f"{values}, CAST(id % 16 AS INT) FROM RANGE({data.rows}) {order}"
        ),
        f"INSERT INTO dim SELECT id, id % 50, concat('n', id) FROM RANGE({_DIMS})",
    ):
        run(connection, statement)


def _measure(connection: tidegate.Connection, cell: Cell, turns: int) -> Iterator[Turn]:
    tables = {"FULL": "mt_full", "INCREMENTAL": "mt_incremental", "": "mt_chosen"}
    refreshed = refresh_in_turn(connection, cell, QUERIES[cell.shape], tables, turns)
    for number, taken in enumerate(refreshed):
        forced, chosen = taken["INCREMENTAL"], taken[""]
        yield Turn(
            cell=cell,
            number=number,
            full=taken["FULL"].seconds,
            incremental=forced.seconds if forced.action == "INCREMENTAL" else _NEVER,
            chosen=chosen.seconds,
            action=chosen.action,
            reason=chosen.reason,
        )
    for table in tables.values():
        require_equal(connection, table, QUERIES[cell.shape])
        run(connection, f"DROP MATERIALIZED TABLE {table}")


def refresh_in_turn(
    connection: tidegate.Connection, cell: Cell, query: str, tables: Mapping[str, str], turns: int
) -> Iterator[Mapping[str, Refreshed]]:
    """Create tables by the kinds of their refreshes; yield the refreshes after each change."""
    for table in tables.values():
        make_table(connection, table, query)
    for number in range(turns):
        change_rows(connection, cell, number)
        # Later refreshes after a change find more of it in caches.
        kinds = list(tables)
        if number % 2:
            kinds.reverse()
        yield {kind: refresh(connection, tables[kind], kind) for kind in kinds}


def make_table(connection: tidegate.Connection, table: str, query: str) -> None:
    """Create a materialized table that is refreshed only on demand, and refresh it once."""
    for statement in (
        f"CREATE MATERIALIZED TABLE {table} FRESHNESS = INTERVAL '1' DAY AS {query}",
        f"ALTER MATERIALIZED TABLE {table} SUSPEND",
        f"ALTER MATERIALIZED TABLE {table} REFRESH",
    ):
        run(connection, statement)


def change_rows(connection: tidegate.Connection, cell: Cell, number: int) -> None:
    """Change about the share of the rows, each time others."""
    run(connection, _change(cell, number))
    # Else the first refresh would read Delta's log for all of them.
    run(connection, "SELECT count(*) FROM fact WHERE id = 0")


def _change(cell: Cell, number: int) -> str:
    data = cell.data
    rows, keys = max(round(data.rows * cell.share), 1), max(round(data.keys * cell.share), 1)
    low = number * keys % data.keys
    match cell.change:
        case "append":
            strings = "".join(f", s{n}" for n in range(data.strings))
            columns = f"-id - {number} * {data.rows}, k, d, amt, q{strings}, p"
            return f"INSERT INTO fact SELECT {columns} FROM fact WHERE id >= 0 AND id < {rows}"
        case "update keys":
            return f"UPDATE fact SET amt = amt + 1 WHERE k >= {low} AND k < {low + keys}"
        case "update scattered":
            every = max(data.rows // rows, 1)
            return f"UPDATE fact SET amt = amt + 1 WHERE id % {every} = {number % every}"
        case _:
            return f"DELETE FROM fact WHERE k >= {low} AND k < {low + keys}"


def _print(turns: Sequence[Turn]) -> None:
    cell = turns[0].cell
    print(f"  {cell.shape}, {cell.change}, {cell.share:.4%}")
    for turn in turns:
        print(
            f"    full {turn.full:6.2f}  incremental {turn.incremental:6.2f}  "
            f"chosen {turn.chosen:6.2f} {turn.action} ({turn.reason})"
            f"{'' if turn.right else '  (the slower one)'}",
            flush=True,
        )
    full, forced, chosen = (
        statistics.median(seconds)
        for seconds in zip(*((t.full, t.incremental, t.chosen) for t in turns), strict=True)
    )
    print(
        f"    medians: incremental {full / forced:.1f} times as fast as full, "
        f"chosen {chosen / min(full, forced):.2f} times the better one"
    )


def _summarize(turns: Sequence[Turn]) -> None:
    cells = [[*group] for _, group in groupby(turns, key=lambda turn: turn.cell)]
    better = sum(map(_better, cells))
    regret = sum(max(_chosen(cell) - _better(cell), 0) for cell in cells) / better
    ratios = sorted(_chosen(cell) / sum(turn.full for turn in cell) for cell in cells)
    first = [turn for turn in turns if turn.number == 0]
    print(f"{len(turns)} refreshes of {len(first)} tables")
    print(f"right: {_share(turns)}; of the first refreshes {_share(first)}")
    print(f"chosen refreshes took {regret:.1%} longer than the better strategy in total")
    print(
        f"of a table, compared with full ones: median {statistics.median(ratios):.2f}, "
        f"95th percentile {ratios[int(0.95 * (len(ratios) - 1))]:.2f}"
    )


def _better(cell: Sequence[Turn]) -> float:
    """Return the seconds of the refreshes of the table whose refreshes took less time."""
    return min(sum(turn.full for turn in cell), sum(turn.incremental for turn in cell))


def _chosen(cell: Sequence[Turn]) -> float:
    return sum(turn.chosen for turn in cell)


def _share(turns: Sequence[Turn]) -> str:
    right = sum(turn.right for turn in turns)
    return f"{right} of {len(turns)} ({right / len(turns):.0%})"


if __name__ == "__main__":
    sys.exit(main())
