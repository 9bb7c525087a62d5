"""Every conformity case has its place: a row of cases.txt, or a test that case_index.txt names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
CASES = {
    "C": "01 02 03 04 06 07 09 10 12 13 14 15 16 18 19 20 21 23 24 25",
    "E": "01 02 04 06 07 08 09 11 12 13 14 17 18 19 20 21 22 24 25 26",
    "F": "01 02 03 05 06 09 10 11 12 14 16 17",
    "S": "01 02 03 04 06 07 09 10 12 13 14 15 17 19 20",
    "R": "01 02 03 04 06 07 09 11 12 13 15 16 17 18 19 21 23 25",
    "A": "01 02 04 05 07 08 10 11 13",
    "O": "01 02 04 06 07 08 10 12 13 14 15",
    "L": "01 03 04 05 07 09 10 11 12 13 15 16 17 18 19 20",
    "D": "01 02 03 05 06 07 08 09 12 13",
    "K": "01 03 04 06 07 08 09",
}
"""The numbers of the cases by letter: CREATE, its errors, freshness, suspend and drop, refresh,
ALTER AS, OR ALTER, other ALTER, show and describe, scheduler and crashes."""


def index() -> list[tuple[str, str]]:
    lines = (HERE / "case_index.txt").read_text(encoding="utf-8").splitlines()[1:]
    return [(case.strip(), where.strip()) for case, _, where in (s.partition("|") for s in lines)]


def test_no_case_is_without_a_test_or_a_reason() -> None:
    wanted = {letter + number for letter, numbers in CASES.items() for number in numbers.split()}
    rows = re.findall(r"^([A-Z]\d\d)", (HERE / "cases.txt").read_text(encoding="utf-8"), re.M)
    assert wanted - {*rows, *(case for case, _ in index())} == set()


@pytest.mark.parametrize(("case", "where"), index())
def test_what_the_index_names_is_there(case: str, where: str) -> None:
    if where.startswith("none: "):
        return
    for place in where.split(", "):
        file, _, function = place.partition("::")
        assert f"def {function}(" in (TESTS / file).read_text(encoding="utf-8"), f"{case}: {place}"
