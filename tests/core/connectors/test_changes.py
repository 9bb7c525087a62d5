"""Formats of changes become queries of the newest rows, and of the events for refreshes."""

from __future__ import annotations

import pytest

from tidegate_server.core.connectors.changes import FORMATS, change_key, events_query
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.external.changes import events_of
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement

COLUMNS = "id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED"
PLACE = "'topic' = 'items', 'properties.bootstrap.servers' = 'broker:9092'"
TABLE = "(SELECT `id` /* changes by `id` */ FROM (SELECT 1 FROM STREAM rate()))"
HIDDEN = "__deleted, __sequence"


def _view(columns: str, options: str) -> str:
    statement = parse(f"CREATE TABLE t ({columns}) WITH ({PLACE}, {options})")
    assert isinstance(statement, SparkStatement)
    return f"SELECT {statement.text.partition(' AS SELECT ')[2]}"


@pytest.mark.parametrize("format", FORMATS)
def test_a_query_reads_the_newest_rows_and_a_refresh_the_events(format: str) -> None:
    url = f", '{format}.url' = 'http://r:1'" if FORMATS[format].registry else ""
    text = _view(COLUMNS, f"'connector' = 'kafka', 'format' = '{format}'{url}")
    assert change_key(text) == ("id",)
    assert "max_by(struct(*), __sequence)" in text
    events = events_query(text)
    assert "max_by" not in events
    assert "*/ `id`, `name` /* changes by `id` */ FROM (SELECT " in events
    assert "`offset` AS __sequence" in events
    assert events.count("(") == events.count(")")


def test_a_compacted_topic_deletes_by_records_without_a_value() -> None:
    formats = "'key.format' = 'json', 'value.format' = 'csv'"
    text = _view(COLUMNS, f"'connector' = 'upsert-kafka', {formats}")
    assert "value IS NULL AS __deleted" in text
    assert "CAST(_key.`id` AS INT) AS `id`" in text


def test_options_of_formats_are_applied() -> None:
    given = (
        "'connector' = 'kafka', 'format' = 'canal-json', 'canal-json.table.include' = 'items|a', "
        "'canal-json.ignore-parse-errors' = 'true'"
    )
    text = _view(COLUMNS, given)
    assert "RLIKE '^(?:items|a)$'" in text
    assert "'PERMISSIVE'" in text
    assert "_value.type IN ('DELETE', 'INSERT', 'UPDATE')" in text
    enveloped = "'format' = 'debezium-json', 'debezium-json.schema-include' = 'true'"
    assert "_value.payload.op" in _view(COLUMNS, f"'connector' = 'kafka', {enveloped}")


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id INT", "'connector' = 'kafka', 'format' = 'ogg-json'", "needs PRIMARY KEY"),
        ("id INT", "'connector' = 'upsert-kafka'", "needs PRIMARY KEY"),
        (COLUMNS, "'connector' = 'upsert-kafka', 'key.format' = 'json'", "value.format is missing"),
        (COLUMNS, "'connector' = 'upsert-kafka', 'format' = 'json'", "format cannot be set"),
        (
            COLUMNS,
            "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'canal-json'",
            "use 'connector' = 'kafka'",
        ),
        (
            COLUMNS,
            "'connector' = 'kafka', 'format' = 'maxwell-json', 'maxwell-json.table.include' = 'a'",
            "maxwell-json.table.include is not one of its options",
        ),
        (
            "id INT, up AS id + 1, PRIMARY KEY (up) NOT ENFORCED",
            "'connector' = 'kafka', 'format' = 'debezium-json'",
            "up, which is computed",
        ),
    ],
)
def test_what_cannot_be_read_is_rejected(columns: str, options: str, words: str) -> None:
    with pytest.raises(ServerError, match=words):
        _view(columns, options)


def test_queries_get_the_columns_of_events() -> None:
    shown = f"(SELECT `id` , {HIDDEN} FROM (SELECT 1 FROM STREAM rate()))"
    assert events_of(f"SELECT t.*, 'FROM' FROM {TABLE} t;") == (
        f"SELECT t.* EXCEPT ({HIDDEN}), 'FROM'\n, __deleted, __sequence FROM {shown} t"
    )
    excluded = "__deleted OR NOT coalesce(( id > 3 -- some\n), false) AS __deleted, __sequence"
    assert events_of(f"SELECT id FROM {TABLE} WHERE id > 3 -- some") == (
        f"SELECT id\n, {excluded} FROM {shown} "
    )
    nested = events_of(f"SELECT a FROM (SELECT id AS a FROM {TABLE}) s")
    assert nested is not None and nested.count("__deleted, __sequence") == 3


@pytest.mark.parametrize(
    "text", ["VALUES (1)", "SELECT * EXCEPT (a) FROM " + TABLE, "SELECT 1", "SELECT a FROM b"]
)
def test_other_queries_have_no_events(text: str) -> None:
    assert events_of(text) is None
