"""Names are completed and quoted so that any text survives."""

from __future__ import annotations

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from tidegate_server.core.model.names import TableName, qualify, quote_identifier, quote_literal


def test_missing_parts_come_from_the_session() -> None:
    assert qualify(("t",), "c", "d") == TableName("c", "d", "t")
    assert qualify(("x", "t"), "c", "d") == TableName("c", "x", "t")
    assert qualify(("y", "x", "t"), "c", "d") == TableName("y", "x", "t")


def test_four_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="one to three parts"):
        qualify(("a", "b", "c", "d"), "c", "d")


@given(st.text(min_size=1))
def test_a_quoted_literal_reads_back_as_the_text(text: str) -> None:
    read = sqlglot.parse_one(quote_literal(text), dialect="spark")
    assert read.is_string


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_a_quoted_identifier_reads_back_as_the_name(name: str) -> None:
    read = sqlglot.parse_one(quote_identifier(name), dialect="spark")
    assert read.name == name
