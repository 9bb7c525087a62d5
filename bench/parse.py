"""Measures how the time to parse a statement grows with its length, for difficult shapes.

Each shape is parsed at doubling lengths. A linear-time parser shows ratios near 2; the program
exits with 1 when the last two doublings of a shape both take more than three times as long.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Mapping

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.parse import parse

_CREATE = "CREATE MATERIALIZED TABLE m "
_REFUSED = 3.0  # a quadratic parser has 4

SHAPES: Mapping[str, Callable[[int], str]] = {
    "deep brackets": lambda n: f"{_CREATE}AS SELECT {'(' * n}1{')' * n}",
    "open brackets": lambda n: f"{_CREATE}(a AS {'(' * n}",
    "one long literal": lambda n: f"{_CREATE}COMMENT '{'x' * n}' AS SELECT 1",
    "doubled quotes": lambda n: f"{_CREATE}COMMENT '{chr(39) * 2 * n}' AS SELECT 1",
    "many columns": lambda n: f"{_CREATE}({', '.join(f'c{i} INT' for i in range(n))}) AS SELECT 1",
    "many names": lambda n: f"{_CREATE}({', '.join(f'c{i}' for i in range(n))}) AS SELECT 1",
    "many options": lambda n: f"{_CREATE}WITH ({', '.join(['(k) = 1'] * n)}".replace("(k)", "'k'"),
    "many expectations": lambda n: (
        f"{_CREATE}({', '.join(f'CONSTRAINT c{i} EXPECT (a)' for i in range(n))}) AS SELECT 1"
    ),
    "many comments": lambda n: "/* a */ // b\n-- c\n" * n + f"{_CREATE}AS SELECT 1",
    "nested comments": lambda n: f"{'/*' * n}{'*/' * n}{_CREATE}AS SELECT 1",
    "open comments": lambda n: f"{_CREATE}AS SELECT {'/*' * n}",
    "nested types": lambda n: f"{_CREATE}(a {'ARRAY<' * n}INT{'>' * n}) AS SELECT 1",
    "semicolons": lambda n: f"SELECT ';' {', 1' * n}{';' * n}",
    "semicolons in literals": lambda n: f"SELECT {', '.join([repr(';')] * n)}",
    "comment lines for Spark": lambda n: "// a\nSELECT 1\n" + "\n// b" * n,
    "blank lines": lambda n: "\n" * n + "SELECT 1 // x",
    "bare SET": lambda n: f"SET a.b = {'/* ; */' * n}",
    "a typing error": lambda n: f"{_CREATE}{'FRESHNES ' * n}",
    "a long word": lambda n: f"{_CREATE}{'F' * n}",
}


def main() -> int:
    """Print one line per shape; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--length", type=int, default=40_000, help="repetitions at most")
    parser.add_argument("--runs", type=int, default=5, help="runs of which the fastest counts")
    given = parser.parse_args()
    lengths = [given.length // 8, given.length // 4, given.length // 2, given.length]
    print(f"{'shape':<26}{'bytes':>10}{'ms':>10}{'MB/s':>8}   ratios of doubled lengths")
    slow = []
    for name, shape in SHAPES.items():
        texts = [shape(length) for length in lengths]
        times = [min(_seconds(text) for _ in range(given.runs)) for text in texts]
        ratios = [after / before for before, after in zip(times, times[1:], strict=False)]
        size = len(texts[-1])
        shown = "  ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"{name:<26}{size:>10,}{times[-1] * 1e3:>10.1f}{size / times[-1] / 1e6:>8.1f}   {shown}"
        )
        if min(ratios[-2:]) > _REFUSED:
            slow.append(name)
    if slow:
        print(f"Not linear: {', '.join(slow)}")
    return 1 if slow else 0


def _seconds(text: str) -> float:
    started = time.perf_counter()
    with contextlib.suppress(ServerError):  # a rejection has to be quick too
        parse(text)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
