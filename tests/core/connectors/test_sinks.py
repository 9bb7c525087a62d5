"""How rows are written into tables of connectors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tidegate_server.core.connectors.sinks import mark_of
from tidegate_server.core.connectors.tables import refused_insert, stream_query
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.core.sql.streams import find_stream, reject_streams

KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1'"
FILES = "'connector' = 'filesystem', 'path' = '/out'"
TWO = KAFKA.replace("'t'", "'t;u'")
HEADERS = "MAP<STRING, BYTES> METADATA FROM 'headers'"
ZONED = {
    "timestampFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS]'Z'",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss[.SSSSSS]",
    "timeZone": "UTC",
}


def query(columns: str, options: str, before: str = "", temporary: str = "") -> str:
    statement = parse(f"CREATE {temporary} TABLE t ({columns}) {before} WITH ({options})")
    assert isinstance(statement, SparkStatement)
    reject_streams(statement.text)
    return f"SELECT {statement.text.partition(' AS SELECT ')[2]}"


def sink(columns: str, options: str, before: str = "") -> dict[str, Any]:
    found = re.match(r"SELECT /\* connector=\w+ (\{.*?\}) \*/ ", query(columns, options, before))
    assert found is not None
    read: dict[str, Any] = json.loads(found[1])
    return read


def test_files_have_the_columns_of_the_table_but_the_computed_ones_and_metadata() -> None:
    found = sink(
        "id BIGINT NOT NULL, d STRING, at TIMESTAMP(3), there TIMESTAMP_LTZ(3), up AS id + 1,"
        " `from` STRING METADATA FROM 'file.name'",
        f"{FILES}, 'format' = 'json'",
        "PARTITIONED BY (D)",
    )
    assert found == {
        "connector": "filesystem",
        "columns": "`id` BIGINT NOT NULL, `d` STRING, `at` TIMESTAMP, `there` TIMESTAMP_LTZ",
        "expressions": [
            *("`id` AS `id`", "CAST(`at` AS STRING) AS `at`", "`there` AS `there`"),
            "`d` AS `d`",
        ],
        "format": "json",
        "path": "/out",
        "partitions": ["d"],
        "options": {**ZONED, "ignoreNullFields": "false"},
    }


def test_options_of_formats_are_those_of_sparks_writers() -> None:
    found = sink(
        "at TIMESTAMP",
        f"{FILES}, 'format' = 'csv', 'csv.field-delimiter' = ';', 'csv.null-literal' = 'n/a',"
        " 'csv.allow-comments' = 'true'",
    )
    assert found["options"] == {
        **ZONED,
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "sep": ";",
        "nullValue": "n/a",
        "escape": '"',
    }
    found = sink(
        "at TIMESTAMP, n TIMESTAMP_LTZ",
        f"{FILES}, 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601',"
        " 'json.encode.ignore-null-fields' = 'true'",
    )
    assert found["expressions"][0] == "replace(CAST(`at` AS STRING), ' ', 'T') AS `at`"
    assert found["options"]["timestampFormat"] == "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]'Z'"
    assert found["options"]["ignoreNullFields"] == "true"
    assert "options" not in sink("a INT", f"{FILES}, 'format' = 'parquet'")


def test_lines_are_texts() -> None:
    found = sink("a STRING", f"{FILES}, 'format' = 'raw', 'raw.charset' = 'ISO-8859-1'")
    assert found["format"] == "text"
    assert found["expressions"] == ["CAST(encode(`a`, 'ISO-8859-1') AS STRING) AS `value`"]
    text = query("a STRING", f"{FILES}, 'format' = 'raw', 'raw.charset' = 'ISO-8859-1'")
    assert "CAST(decode(CAST(value AS BINARY), 'ISO-8859-1') AS STRING) AS `a`" in text
    found = sink("a BYTES, d INT", f"{FILES}, 'format' = 'raw'", "PARTITIONED BY (d)")
    assert found["expressions"] == ["CAST(`a` AS STRING) AS `value`", "`d` AS `d`"]


def test_records_have_keys_values_and_headers() -> None:
    found = sink(
        "k_id INT, a STRING, up AS a, h MAP<STRING, BYTES> METADATA FROM 'headers',"
        " o BIGINT METADATA FROM 'offset', at TIMESTAMP METADATA FROM 'timestamp' VIRTUAL",
        f"{KAFKA}, 'key.format' = 'csv', 'key.fields' = 'k_id', 'key.fields-prefix' = 'k_', "
        "'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY', "
        "'properties.security.protocol' = 'PLAINTEXT', 'properties.group.id' = 'g'",
    )
    assert found["columns"] == "`k_id` INT, `a` STRING, `h` MAP<STRING, BINARY>"
    value, key, headers = found["expressions"]
    assert value == "encode(`a`, 'UTF-8') AS value"
    assert key.startswith("to_csv(named_struct('id', `k_id`), map('timestampFormat', ")
    assert headers.startswith("transform(map_entries(`h`), e -> named_struct('key', ")
    assert found["options"] == {
        "kafka.bootstrap.servers": "b:1",
        "topic": "t",
        "kafka.security.protocol": "PLAINTEXT",
    }
    all_of_it = sink(
        "a INT, b INT", f"{KAFKA}, 'format' = 'json', 'key.format' = 'json', 'key.fields' = 'a'"
    )
    assert all_of_it["expressions"][0].startswith("to_json(named_struct('a', `a`, 'b', `b`), ")
    virtual = sink(
        "a INT, h MAP<STRING, BYTES> METADATA FROM 'headers' VIRTUAL", f"{KAFKA}, 'format' = 'csv'"
    )
    assert virtual["columns"] == "`a` INT"
    timed = sink("a INT, at TIMESTAMP METADATA FROM 'timestamp'", f"{KAFKA}, 'format' = 'csv'")
    assert timed["expressions"][1] == "unix_millis(CAST(`at` AS TIMESTAMP)) AS timestamp"


def test_rows_are_printed_as_flink_prints_them() -> None:
    found = sink("a INT, b AS a + 1, c STRING", "'connector' = 'print', 'print-identifier' = 'x'")
    assert found["columns"] == "`a` INT, `c` STRING"
    assert found["expressions"] == [
        (
            "concat('x> +I[', array_join(array(CAST(`a` AS STRING), CAST(`c` AS STRING)),"
            " ', ', 'null'), ']')"
        ),
    ]
    text = query("a INT, b AS a + 1", "'connector' = 'blackhole'", temporary="TEMPORARY")
    assert text.endswith(
        "*/ `a`, a + 1 AS `b` FROM (SELECT CAST(NULL AS INT) AS `a` FROM (SELECT 1) WHERE "
        "raise_error('A table of the connector blackhole can only be written.') IS NULL)"
    )


def test_the_comment_ends_where_it_should() -> None:
    text = query("a INT", "'connector' = 'filesystem', 'path' = '/a/*/b', 'format' = 'orc'")
    assert refused_insert(text, {}) == "its path is a pattern"
    text = query("a INT", "'connector' = 'print', 'print-identifier' = '/* */ ${x} ''x'")
    before, _, after = text.partition(" */ ")
    assert before.rindex("/*") < 10 and "*/" not in before and "${" not in before
    assert after.startswith("CAST(NULL AS INT)")
    assert mark_of(text) is not None


def test_a_stream_of_files_needs_them() -> None:
    text = query("a INT", f"{FILES}, 'format' = 'orc'")
    assert "allowMissingPath" in text
    stream = stream_query(text, {"connector": "filesystem"})
    assert stream is not None and "allowMissingPath" not in stream
    assert find_stream(stream) is not None
    found = mark_of(text)
    assert found is not None
    assert (found.connector, found.path, found.refused) == ("filesystem", "/out", "")


@pytest.mark.parametrize(
    ("columns", "options", "before", "said"),
    [
        ("a INT", f"{FILES}, 'format' = 'orc'", "PARTITIONED BY (a)", "all of its columns"),
        ("a INT", f"{TWO}, 'format' = 'csv'", "", "several topics"),
        (
            f"a INT, h {HEADERS}, i {HEADERS}",
            f"{KAFKA}, 'format' = 'csv'",
            "",
            "several of its columns are the same metadata",
        ),
        ("a INT", "'connector' = 'datagen'", "", "its rows are generated"),
    ],
)
def test_some_tables_are_only_read(columns: str, options: str, before: str, said: str) -> None:
    text = query(columns, options, before)
    assert said in (refused_insert(text, {"connector": "datagen"}) or "")


def test_views_of_other_kinds_are_not_judged() -> None:
    assert refused_insert("SELECT 1", {}) is None
    for forged in ("{no json}", "{} }", '{"path": null, "columns": "a INT"}'):
        text = f"SELECT /* connector=kafka {forged} */ 1"
        assert refused_insert(text, {}) == "the comment in its view is not the server's"
    earlier = "it was created by an earlier version: create it again"
    assert refused_insert("SELECT 1 FROM read_files()", {"connector": "filesystem"}) == earlier
    assert refused_insert("SELECT /* connector=kafka */ 1", {}) == earlier
    temporary = query("a INT", "'connector' = 'datagen'", temporary="TEMPORARY")
    assert refused_insert(temporary, {}) == "its rows are generated"


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("a INT", "'connector' = 'print', 'standard-error' = 'true'", "print.log"),
        (
            "a STRING",
            f"{FILES}, 'format' = 'raw', 'raw.charset' = 'UTF-16'",
            "raw.charset of files is one of US-ASCII, ISO-8859-1, UTF-8, not UTF-16",
        ),
        ("a INT", "'connector' = 'print', 'print-identifer' = 'x'", "print-identifier?"),
        ("a INT", "'connector' = 'blackhole', 'print-identifier' = 'x'", "not one of its options"),
        ("a INT, o INT METADATA", "'connector' = 'blackhole'", "o has METADATA"),
        ("a AS 1", "'connector' = 'print'", "has no columns"),
        (
            "a INT",
            f"{FILES}, 'format' = 'orc', 'sink.rolling-policy.file-size' = '1MB'",
            "each INSERT writes files of its own",
        ),
        (
            "a INT",
            f"{KAFKA}, 'format' = 'raw', 'sink.delivery-guarantee' = 'exactly-once'",
            "must be at-least-once",
        ),
    ],
)
def test_invalid_options(columns: str, options: str, said: str) -> None:
    with pytest.raises(ServerError) as caught:
        query(columns, options)
    assert caught.value.code == "INVALID_CONNECTOR"
    assert said in caught.value.message
