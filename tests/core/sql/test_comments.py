"""Comments that Spark does not know are respelled in place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate_server.core.sql.comments import spark_text


def test_slash_comments_become_dash_comments_in_place() -> None:
    query = "SELECT 1 // one\n, '//not', 4 -- // kept\n/* // */ // last"
    assert spark_text(query) == "SELECT 1 -- one\n, '//not', 4 -- // kept\n/* // */ -- last"


@given(st.text(max_size=80))
def test_offsets_in_any_text_stay_the_same(text: str) -> None:
    assert len(spark_text(text)) == len(text)
