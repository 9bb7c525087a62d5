"""Fits the prices of the cost model to refreshes over random data sets.

`choice.py` judges them: with another seed, none of its data sets is one of those fitted on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from choice import CHANGES, SHAPES, Cell, draw, in_place, refresh_in_turn, warm_up
from facts import run
from servers import DRIVER_MEMORY, machine, tidegate_server

import tidegate
from tidegate_server.core.model.reasons import Reason
from tidegate_server.core.model.runs import Work
from tidegate_server.engine.planning.cost import Price, Way, amounts, observations, predict
from tidegate_server.gateway.runs.orders import past_runs
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store.database import Database

_ROUNDS = 2_000
_TURNS = 2
_DATABASE = "store.db"
_SHAPES = {
    **SHAPES,
    "all columns": "SELECT f.*, x.g FROM fact f JOIN dim x ON f.d = x.d WHERE f.q < 12",
    "one row": "SELECT count(DISTINCT q) AS n, max(amt) AS m FROM fact",
    "ranks": "SELECT k, s, rank() OVER (ORDER BY s DESC) AS r FROM "
    "(SELECT k, sum(amt) AS s FROM fact GROUP BY k)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A refresh: its way, its work, and the seconds it took."""

    way: Way
    work: Work
    seconds: float


def main() -> int:
    """Measure, or read what was measured, and print the prices."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", type=int, default=5, help="queries and changes per data set (5)")
    parser.add_argument("--shapes", nargs="*", choices=_SHAPES, default=list(_SHAPES))
    parser.add_argument("--changes", nargs="*", choices=CHANGES, default=CHANGES)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the largest fact table")
    parser.add_argument("--least-rows", type=int, default=10_000, help="of the smallest one")
    parser.add_argument("--minutes", type=float, default=30, help="begin no data set later (30)")
    parser.add_argument("--driver-memory", default=DRIVER_MEMORY, help="of the engine (2g)")
    parser.add_argument("--write", type=Path, help="also write the observations to this file")
    parser.add_argument("--read", type=Path, nargs="*", help="fit to such files, measure nothing")
    options = parser.parse_args()
    if options.read:
        seen = [o for file in options.read for o in _read(file)]
    else:
        print(machine(), flush=True)
        seen = _measure(options)
    if options.write:
        found = [{**asdict(o), "way": o.way.value} for o in seen]
        options.write.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    for way in Way:
        _print(way, [o for o in seen if o.way is way])
    return 0


def _measure(options: argparse.Namespace) -> list[Observation]:
    with tempfile.TemporaryDirectory(prefix="bench-prices-") as directory:
        with (
            tidegate_server(Path(directory), driver_memory=options.driver_memory) as server,
            tidegate.connect(host="127.0.0.1", port=server.port, user="bench") as connection,
        ):
            warm_up(connection)
            end = time.monotonic() + 60 * options.minutes
            before = len(_observations(Path(directory)))
            chosen = draw(
                options.seed,
                1_000,
                options.cells,
                options.rows,
                shapes=options.shapes,
                changes=options.changes,
                least_rows=options.least_rows,
            )
            for cell in in_place(connection, chosen, end):
                _refresh(connection, cell)
        return _observations(Path(directory))[before:]


def _refresh(connection: tidegate.Connection, cell: Cell) -> None:
    tables = {"FULL": "mt_full", "INCREMENTAL": "mt_incremental"}
    for _ in refresh_in_turn(connection, cell, _SHAPES[cell.shape], tables, _TURNS):
        pass
    for table in tables.values():
        run(connection, f"DROP MATERIALIZED TABLE {table}")


def _observations(directory: Path) -> list[Observation]:
    """Return the refreshes in a server's store, oldest first."""
    database = Database(f"sqlite:///{directory / 'data' / _DATABASE}")
    commits = SqlLedger(database).commits(None, 1_000_000)
    # The first refresh of a table also loads what the others find in memory.
    later = [each for each in reversed(commits) if each.reason_code != Reason.FIRST_REFRESH]
    runs = past_runs(later)
    return [
        Observation(way=way, work=work, seconds=seconds)
        for each in runs
        for way, work, seconds in observations(each)
    ]


def _read(file: Path) -> list[Observation]:
    return [
        Observation(way=Way(each["way"]), work=Work(**each["work"]), seconds=each["seconds"])
        for each in json.loads(file.read_text("utf-8"))
    ]


def _print(way: Way, seen: Sequence[Observation]) -> None:
    print(f"{way.value}: {len(seen)} refreshes")
    if len(seen) < len(Price._fields):
        return
    took = np.array([o.seconds for o in seen])
    work = np.array([amounts(o.work) for o in seen])
    prices = _fit(work, took)
    print("  " + ", ".join(f"{n} {p:.3g}" for n, p in zip(Price._fields, prices, strict=True)))
    listed = np.array([predict(way, o.work, ()) for o in seen])
    for name, predicted in (("now", listed), ("fitted", work @ prices)):
        factor = np.exp(np.abs(np.log(predicted / took)))
        print(
            f"  {name}: wrong by a factor of {np.median(factor):.2f} in the median, "
            f"{np.quantile(factor, 0.9):.2f} for one in ten; "
            f"predicted to measured {np.median(predicted / took):.2f}"
        )


def _fit(work: np.ndarray, took: np.ndarray) -> np.ndarray:
    """Return the prices, none negative, whose relative errors have the least sum.

    By least squares with weights, so that a refresh that a collection interrupted counts little.
    """
    scale = work.max(axis=0)
    scale[scale == 0] = 1
    rows = work / scale / took[:, None]
    prices = np.full(work.shape[1], 1e-3)
    for _ in range(_ROUNDS):
        weights = 1 / np.maximum(np.abs(rows @ prices - 1), 0.05)
        weighted = rows * weights[:, None]
        gram, right = weighted.T @ rows, weighted.sum(axis=0)
        for i in range(len(prices)):
            rest = right[i] - gram[i] @ prices + gram[i, i] * prices[i]
            prices[i] = max(rest / gram[i, i], 0.0) if gram[i, i] else 0.0
    return np.asarray(prices / scale)


if __name__ == "__main__":
    sys.exit(main())
