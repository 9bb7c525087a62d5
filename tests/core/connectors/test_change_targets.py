"""How the targets of jobs take the changes of a table."""

from __future__ import annotations

import pytest

from tests.core.connectors.test_sinks import KAFKA, query
from tidegate_server.core.connectors.change_targets import (
    ChangeError,
    Taking,
    key_places,
    names_feed,
    taking_of,
)
from tidegate_server.core.connectors.sinks import Mark, mark_of

ROWS = "SELECT a FROM STREAM t"
KEYED = "a INT, b INT, PRIMARY KEY (B, a) NOT ENFORCED"
UPSERTS = KAFKA.replace("'kafka'", "'upsert-kafka'")
TABLE = "'connector' = 'jdbc', 'connection' = 'c', 'table-name' = 't'"


def mark(columns: str, options: str) -> Mark:
    found = mark_of(query(columns, options))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("columns", "options", "taking", "key"),
    [
        (KEYED, f"{UPSERTS}, 'key.format' = 'json', 'value.format' = 'json'", "BY_KEY", ("b", "a")),
        (KEYED, TABLE, "BY_KEY", ("b", "a")),
        ("a INT", TABLE, "ADDED", ()),
        ("a INT", f"{KAFKA}, 'format' = 'json'", "ADDED", ()),
        ("a INT", "'connector' = 'filesystem', 'path' = '/o', 'format' = 'csv'", "ADDED", ()),
        ("a INT", "'connector' = 'print'", "PRINTED", ()),
        ("a INT", "'connector' = 'blackhole'", "AS_ROWS", ()),
    ],
)
def test_a_target_takes_changes_by_its_key_or_only_new_rows(
    columns: str, options: str, taking: str, key: tuple[str, ...]
) -> None:
    target = mark(columns, options)
    assert (taking_of(target, ROWS), target.key) == (Taking[taking], key)
    assert taking_of(target, "SELECT a, _CHANGE_TYPE FROM STREAM t") is Taking.AS_ROWS


def test_a_delta_table_takes_new_rows_or_each_change_as_a_row() -> None:
    assert taking_of(None, ROWS) is Taking.ADDED
    assert taking_of(None, "SELECT a, _commit_version FROM STREAM t") is Taking.ADDED
    assert taking_of(None, "SELECT a, `_change_type` AS k FROM STREAM t") is Taking.AS_ROWS
    assert names_feed("SELECT _COMMIT_TIMESTAMP FROM STREAM t")
    assert not names_feed("SELECT my_change_type FROM STREAM t")


def test_the_key_is_among_the_columns_that_are_written() -> None:
    assert key_places(("b", "a"), ("A", "c", "B")) == (2, 0)
    with pytest.raises(ChangeError, match=r"by its key \(b, a\)") as caught:
        key_places(("b", "a"), ("a", "c"))
    assert caught.value.hint == "Insert into the column b, too."


def test_a_topic_of_an_earlier_version_has_no_key() -> None:
    with pytest.raises(ChangeError, match="earlier version") as caught:
        taking_of(Mark(connector="upsert-kafka", columns="`a` INT"), ROWS)
    assert "create it again" in caught.value.hint
    forged = mark_of('SELECT /* connector=jdbc {"columns": "a INT", "key": 5} */ 1 AS a')
    assert forged is not None
    assert forged.refused
