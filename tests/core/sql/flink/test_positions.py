"""A place in translated text is one in the user's."""

from __future__ import annotations

import pytest

from tidegate_server.core.sql.cursor import position
from tidegate_server.core.sql.flink.translate import translate_statement

TEXT = """SELECT AVG(a / b) AS x, -- per day
  FLOOR(ts TO DAY) AS y, missing
FROM TABLE(TUMBLE(TABLE nowhere, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS w
WHERE z LIKE 'x\\y' AND last"""


@pytest.mark.parametrize("word", ["missing", "nowhere", "last", "w\n"])
def test_words_that_stay_are_found(word: str) -> None:
    found = translate_statement(TEXT)
    there = position(found.text, found.text.index(word))
    assert found.place(*there) == position(TEXT, TEXT.index(word))


def test_what_is_new_comes_from_what_it_replaces() -> None:
    found = translate_statement(TEXT)
    there = position(found.text, found.text.index("flink_floor"))
    assert found.place(*there) == position(TEXT, TEXT.index("FLOOR"))
    there = position(found.text, found.text.index("flink_divide"))
    assert found.place(*there) == position(TEXT, TEXT.index("a / b"))


def test_places_outside_are_kept_in_the_text() -> None:
    found = translate_statement(TEXT)
    assert found.place(99, 1)[0] <= TEXT.count("\n") + 1
    assert translate_statement("").place(1, 1) == (1, 1)
