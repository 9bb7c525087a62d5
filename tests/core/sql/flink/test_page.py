"""The manual's page of translations says what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegate_server.core.sql.flink.translate import translate_query, translate_type

PAGE = (Path(__file__).parents[4] / "docs" / "flink-sql.md").read_text("utf-8")


def _rows(after: str) -> list[list[str]]:
    """Return the cells of the first table after a text, as they are written in backticks."""
    table = PAGE.partition(after)[2].partition("| -- |")[2].partition("\n\n")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    assert lines
    return [[cell.strip() for cell in re.split(r"(?<=`) \|", line)] for line in lines]


EXPRESSIONS = [
    (flink.strip("| `"), spark.strip("| `")) for flink, spark, *_ in _rows("the tests compare")
]
TYPES = [
    (flink.replace("(p)", "(3)").replace("(n)", "(3)"), spark.strip("| `"))
    for cells, spark, *_ in _rows("## Types")
    for flink in re.findall(r"`([^`]+)`", cells)
]


@pytest.mark.parametrize(("flink", "spark"), EXPRESSIONS)
def test_an_example_is_translated_as_the_page_says(flink: str, spark: str) -> None:
    assert translate_query(f"SELECT {flink} FROM t").text == f"SELECT {spark} FROM t"


@pytest.mark.parametrize(("flink", "spark"), TYPES)
def test_a_type_is_translated_as_the_page_says(flink: str, spark: str) -> None:
    assert translate_type(flink) == spark
