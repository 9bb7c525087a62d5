"""Every conformity case has its place: a row of cases.txt, or a test that case_index.txt names."""

from __future__ import annotations

import pytest

from tests.support.conformity import TESTS, index, places, rows

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


def test_every_row_has_a_name_of_its_own() -> None:
    names = [name for name, *_ in rows()]
    assert sorted(set(names)) == sorted(names)


def test_no_case_is_without_a_test_or_a_reason() -> None:
    wanted = {letter + number for letter, numbers in CASES.items() for number in numbers.split()}
    assert wanted - places().keys() - {case for case, _ in index()} == set()


@pytest.mark.parametrize(("case", "where"), index())
def test_what_the_index_names_is_there(case: str, where: str) -> None:
    if where.startswith("none: "):
        return
    for place in where.split(", "):
        file, _, function = place.partition("::")
        assert f"def {function}(" in (TESTS / file).read_text(encoding="utf-8"), f"{case}: {place}"
