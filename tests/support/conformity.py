"""Where each conformity case is tested, and a count of those that hold at the end of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
HERE = TESTS / "gateway" / "command"
_TABLE = "gateway/command/test_cases.py::test_case"


def rows() -> list[list[str]]:
    """Return the cells of cases.txt: id, settings, statements, what is expected."""
    lines = (HERE / "cases.txt").read_text(encoding="utf-8").replace("| |", "|  |").splitlines()
    return [[cell.strip() for cell in line.split(" | ")] for line in lines[1:]]


def index() -> list[tuple[str, str]]:
    """Return case_index.txt: a case and the tests that prove it, or why there is none."""
    lines = (HERE / "case_index.txt").read_text(encoding="utf-8").splitlines()[1:]
    return [(case.strip(), where.strip()) for case, _, where in (s.partition("|") for s in lines)]


def places() -> Mapping[str, set[str]]:
    """Return the tests of each case, below ``tests/``."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, _, _, expected in rows():
        other = expected.removeprefix("see ")
        place = f"gateway/command/{other}" if other != expected else f"{_TABLE}[{name}]"
        found[name[:3]].add(place)
    for case, where in index():
        if not where.startswith("none: "):
            found[case].update(where.split(", "))
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many cases hold, when the table of cases was run."""
    ran = {
        outcome: set(_names(terminalreporter.stats.get(outcome, ())))
        for outcome in ("passed", "failed", "error")
    }
    passed, broken = ran["passed"], ran["failed"] | ran["error"]
    if not any(name.startswith(_TABLE) for name in passed | broken):
        return
    wanted = places()
    failed = sorted(case for case, tests in wanted.items() if tests & broken)
    held = [case for case, tests in wanted.items() if tests <= passed and case not in failed]
    rest = len(wanted) - len(held) - len(failed)
    told = f"conformity cases: {len(held)} of {len(wanted)} hold, {len(failed)} fail"
    told += f" ({', '.join(failed)})" if failed else ""
    terminalreporter.write_line(told + f", {rest} have tests that were not run here")


def _names(reports: Any) -> Iterator[str]:
    for report in reports:
        name = getattr(report, "nodeid", "").removeprefix("tests/")
        yield name
        yield name.partition("[")[0]
