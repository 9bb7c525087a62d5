"""Measures what checking privileges costs a statement and a refresh."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from servers import machine, tidegate_server

import tidegate

_LONGEST_MILLISECONDS = 5.0
_LARGEST_RATIO = 1.05
_OWNER, _ADMINISTRATOR = "ann", "root"
_SECTIONS = f"[authorization]\nenabled = true\nadministrators = ['{_ADMINISTRATOR}']"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Medians in milliseconds of the same work, once unchecked and once checked."""

    work: str
    administrator: float
    """The privileges of administrators are not checked."""
    user: float

    @property
    def ratio(self) -> float:
        """How many times as long the checked work takes."""
        return self.user / self.administrator


def main() -> int:
    """Measure and print; return 1 when checking takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="of each statement")
    parser.add_argument("--refreshes", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-rights-") as directory,
        tidegate_server(Path(directory), sections=_SECTIONS) as server,
        tidegate.connect(host="127.0.0.1", port=server.port, user=_ADMINISTRATOR) as root,
        tidegate.connect(host="127.0.0.1", port=server.port, user=_OWNER) as ann,
    ):
        figures = [*_statements(root, ann, options.runs), _refresh(root, ann, options.refreshes)]
    for figure in figures:
        print(
            f"{figure.work:<16} administrator {figure.administrator:8.2f} ms   "
            f"user {figure.user:8.2f} ms   ratio {figure.ratio:.3f}"
        )
    if options.json:
        report = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    first, last = figures[0], figures[-1]
    slow = first.user - first.administrator > _LONGEST_MILLISECONDS or last.ratio > _LARGEST_RATIO
    return int(slow)


def _statements(root: tidegate.Connection, ann: tidegate.Connection, runs: int) -> list[Figure]:
    _run(ann, "CREATE TABLE facts AS SELECT id, id % 100 AS k FROM range(100000)")
    texts = ("SELECT 1", "SELECT k, count(*) FROM facts GROUP BY k ORDER BY k LIMIT 5")
    found = []
    for text in texts:
        unchecked, checked = _alternate(partial(_run, root, text), partial(_run, ann, text), runs)
        found.append(Figure(work=text[:16], administrator=unchecked, user=checked))
    return found


def _refresh(root: tidegate.Connection, ann: tidegate.Connection, runs: int) -> Figure:
    for connection, name in ((root, "by_root"), (ann, "by_ann")):
        _run(
            connection,
            f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '1' DAY "
            "AS SELECT k, count(*) AS c FROM facts GROUP BY k",
        )
    refresh = "ALTER MATERIALIZED TABLE {} REFRESH FULL"
    unchecked, checked = _alternate(
        partial(_run, root, refresh.format("by_root")),
        partial(_run, ann, refresh.format("by_ann")),
        runs,
    )
    return Figure(work="REFRESH FULL", administrator=unchecked, user=checked)


def _alternate(
    first: Callable[[], None], second: Callable[[], None], runs: int
) -> tuple[float, float]:
    """Return the medians of both in milliseconds; the first fifth warms up."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs + runs // 5):
        for work, times in zip((first, second), taken, strict=True):
            begun = time.perf_counter()
            work()
            times.append((time.perf_counter() - begun) * 1000)
    medians = [statistics.median(times[runs // 5 :]) for times in taken]
    return medians[0], medians[1]


def _run(connection: tidegate.Connection, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text)
        if cursor.description is not None:
            cursor.fetchall()


if __name__ == "__main__":
    sys.exit(main())
