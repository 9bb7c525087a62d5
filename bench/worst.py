"""Runs the worst statements of one session, and measures how long others wait meanwhile."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from servers import Server, machine, tidegate_server

import tidegate

_LONGEST_WAIT = 1.0
"""Seconds that ``SELECT 1`` of another session may take."""
_PAUSE = 0.05
_FEW = "SELECT count(*) FROM range(10)"

STATEMENTS = {
    "10 MB of numbers in IN": f"{_FEW} WHERE id IN ({'1234567,' * 1_300_000}1)",
    "numbers up to the limit": f"{_FEW} WHERE id IN ({'1,' * 124_000}1)",
    "VALUES up to the limit": f"SELECT count(*) FROM VALUES {'(1),' * 62_000}(1)",
    "a literal of 10 MB": f"SELECT length('{'x' * 10_000_000}')",
    "20,000 columns": f"SELECT {', '.join(f'id + {n} AS c{n}' for n in range(20_000))} "
    "FROM range(5)",
    "5,000 UNION ALL": " UNION ALL ".join(f"SELECT {n}" for n in range(5_000)),
    "2,000 joins": "SELECT count(*) FROM range(2) t0 "
    + " ".join(f"JOIN range(2) t{n} ON t{n}.id = t0.id" for n in range(1, 2_000)),
    "200 joins": "SELECT count(*) FROM range(2) t0 "
    + " ".join(f"JOIN range(2) t{n} ON t{n}.id = t0.id" for n in range(1, 200)),
    "10,000 brackets": f"SELECT {'(' * 10_000}1{')' * 10_000}",
    "3,000 functions, nested": f"SELECT {'abs(' * 3_000}id{')' * 3_000} FROM range(3)",
    "20,000 branches of CASE": "SELECT CASE "
    + " ".join(f"WHEN id = {n} THEN {n}" for n in range(20_000))
    + " END FROM range(3)",
    "20,000 terms of OR": f"{_FEW} WHERE " + " OR ".join(f"id * 2 = {n}" for n in range(20_000)),
    "views that double 30 times": "WITH t0 AS (SELECT 1 AS a), "
    + ", ".join(
        f"t{n} AS (SELECT x.a FROM t{n - 1} x JOIN t{n - 1} y ON x.a = y.a)" for n in range(1, 31)
    )
    + " SELECT * FROM t30",
    "CUBE of 16 columns": "SELECT count(*) FROM (SELECT count(*) FROM (SELECT "
    + ", ".join(f"id % {n + 2} AS c{n}" for n in range(16))
    + f" FROM range(1000)) GROUP BY CUBE ({', '.join(f'c{n}' for n in range(16))}))",
    "a cross join": "SELECT count(*) FROM range(10000000) a JOIN range(10000000) b "
    "ON a.id + b.id > 7",
    "explode of a long sequence": "SELECT count(*) FROM "
    "(SELECT explode(sequence(1, 1500000000)) AS x)",
    "a long sequence": "SELECT size(sequence(1, 2000000000))",
    "a long text": "SELECT length(repeat('x', 2000000000))",
    "a long array of arrays": "SELECT size(array_repeat(array_repeat(1, 1000000), 1000000))",
    "everything in one list": "SELECT size(collect_list(id)) FROM range(1000000000)",
    "a skewed aggregate": "SELECT id % 2 = 3 AS k, count(DISTINCT id), percentile(id, 0.5) "
    "FROM range(1000000000) GROUP BY 1",
    "a slow regular expression": "SELECT rlike(repeat('a', 60), '^(a+)+$b')",
    "recursion without end": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) "
    "SELECT count(*) FROM r",
    "a sort of wide rows": "SELECT * FROM (SELECT id, rand() AS r, repeat('x', 1000) AS t "
    "FROM range(100000000)) ORDER BY r",
}


@dataclass(slots=True)
class Other:
    """Another session, which runs a statement again and again."""

    port: int
    statement: str = "SELECT 1"
    fetch: Callable[[tidegate.Cursor], object] = tidegate.Cursor.fetchall
    pause: float = _PAUSE
    waits: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run it beside the block."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def take(self) -> tuple[list[float], list[str]]:
        """Return the seconds and errors since the last call."""
        waits, self.waits = self.waits, []
        problems, self.problems = self.problems, []
        return waits, problems

    def _run(self) -> None:
        with tidegate.connect(host="127.0.0.1", port=self.port, user="other") as connection:
            cursor = connection.cursor()
            while not self._stop.wait(self.pause):
                began = time.monotonic()
                try:
                    self.fetch(cursor.execute(self.statement))
                except tidegate.Error as problem:
                    self.problems.append(str(problem).splitlines()[0])
                self.waits.append(time.monotonic() - began)


def main() -> int:
    """Measure and print; return 1 if another session waited too long or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timeout", type=int, default=20, help="seconds a statement may take")
    parser.add_argument("--only", help="part of the names of the statements to run")
    options = parser.parse_args()
    chosen = {name: text for name, text in STATEMENTS.items() if (options.only or "") in name}
    print(machine(), flush=True)
    worst = 0.0
    with (
        tempfile.TemporaryDirectory(prefix="bench-worst-") as directory,
        tidegate_server(Path(directory), driver_memory="auto") as server,
    ):
        other = Other(server.port)
        with other.running():
            time.sleep(5)
            waits, _ = other.take()
            print(f"{'nothing':28} {_summary(waits)}", flush=True)
            for name, text in chosen.items():
                worst = max(worst, _measure(server, other, name, text, options.timeout))
    print(f"longest wait {worst:.2f} s, wanted at most {_LONGEST_WAIT} s")
    return int(worst > _LONGEST_WAIT)


def _measure(server: Server, other: Other, name: str, text: str, timeout: int) -> float:
    """Run one statement and print what happened; return how long the other session waited."""
    engine = _engine(server)
    began = time.monotonic()
    with (
        tidegate.connect(
            host="127.0.0.1", port=server.port, user="worst", query_timeout=timeout
        ) as connection,
        connection.cursor() as cursor,
    ):
        try:
            cursor.execute(text)
            outcome = repr(cursor.fetchone())[:40]
        except tidegate.Error as problem:
            outcome = getattr(problem, "code", None) or type(problem).__name__
    ended = time.monotonic() - began
    time.sleep(1)  # what is left of it may still disturb
    waits, problems = other.take()
    note = "" if _engine(server) == engine else "; the engine was replaced"
    if problems:
        note += f"; {len(problems)} errors: {problems[0][:60]}"
    print(f"{name:28} {_summary(waits)}; itself {ended:5.1f} s: {outcome}{note}", flush=True)
    return float("inf") if problems or not waits else max(waits)


def _summary(waits: list[float]) -> str:
    if not waits:
        return "SELECT 1 never ended"
    ordered = sorted(waits)
    middle, last = ordered[len(ordered) // 2], ordered[-1]
    return f"SELECT 1: median {1000 * middle:4.0f} ms, longest {1000 * last:6.0f} ms"


def _engine(server: Server) -> list[int]:
    """Return the process ids of the server's children."""
    return [child.pid for child in psutil.Process(server.pid).children()]


if __name__ == "__main__":
    sys.exit(main())
