"""Tables over files and over topics of Kafka, as queries of Spark."""

from __future__ import annotations

import re

import pytest

from tidegate_server.core.connectors.tables import is_endless, stream_query
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.core.sql.streams import find_stream, reject_streams

MARK = re.compile(r"SELECT /\*.*?\*/ ")
DEFINITION = re.compile(r", 'connector.definition' = '(?:[^'\\]|\\.)*'")
KAFKA = "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1'"


def view(columns: str, options: str, before: str = "") -> str:
    statement = parse(f"CREATE TABLE t ({columns}) {before} WITH ({options})")
    assert isinstance(statement, SparkStatement)
    reject_streams(statement.text)  # its call has known parameters
    return MARK.sub("SELECT ", DEFINITION.sub("", statement.text))


def query(columns: str, options: str, before: str = "") -> str:
    return f"SELECT {view(columns, options, before).partition(' AS SELECT ')[2]}"


def test_files_are_read_with_the_columns_of_the_table() -> None:
    text = view(
        "id BIGINT, at TIMESTAMP(3), up AS id + 1, `from` STRING METADATA FROM 'file.name',"
        " d STRING",
        "'connector' = 'filesystem', 'path' = '/in', 'format' = 'json', "
        "'json.ignore-parse-errors' = 'true'",
        "PARTITIONED BY (d)",
    )
    assert text == (
        "CREATE VIEW `t` (`id`, `at`, `up`, `from`, `d`) TBLPROPERTIES ('connector' = 'filesystem')"
        " AS SELECT `id`, `at`, id + 1 AS `up`, `from`, `d` FROM (SELECT `id` AS `id`,"
        " `at` AS `at`, CAST(_metadata.file_name AS STRING) AS `from`, `d` AS `d` FROM"
        " read_files(path => '/in', format => 'json', schema => '`id` BIGINT, `at` TIMESTAMP,"
        " `d` STRING', mode => 'DROPMALFORMED', allowMissingPath => 'true'))"
    )


def test_options_of_csv_are_sparks() -> None:
    found = query(
        "a STRING",
        "'connector' = 'filesystem', 'path' = '/in', 'format' = 'csv', 'csv.null-literal' = 'n/a',"
        " 'csv.field-delimiter' = '\\t', 'csv.disable-quote-character' = 'true'",
    )
    for part in ("nullValue => 'n/a'", "sep => '\t'", "quote => ''", "mode => 'FAILFAST'"):
        assert part in found


def test_records_are_decoded_and_those_without_a_value_left_out() -> None:
    found = query("a INT, o BIGINT METADATA FROM 'offset' VIRTUAL", f"{KAFKA}, 'format' = 'json'")
    assert found == (
        "SELECT CAST(_value.`a` AS INT) AS `a`, CAST(offset AS BIGINT) AS `o` FROM (SELECT * FROM"
        " (SELECT *, from_json(CAST(value AS STRING), '`a` INT', map('mode', 'FAILFAST')) AS _value"
        " FROM read_kafka(bootstrapServers => 'b:1', subscribe => 't', startingOffsets =>"
        " 'earliest')) WHERE value IS NOT NULL)"
    )


def test_keys_have_a_format_of_their_own() -> None:
    found = query(
        "k_id INT, a STRING, h MAP<STRING, BYTES> METADATA FROM 'headers'",
        f"{KAFKA}, 'key.format' = 'csv', 'key.fields' = 'k_id', 'key.fields-prefix' = 'k_', "
        "'value.format' = 'json', 'value.json.ignore-parse-errors' = 'true', "
        "'value.fields-include' = 'EXCEPT_KEY', 'properties.security.protocol' = 'PLAINTEXT', "
        "'scan.startup.mode' = 'specific-offsets', "
        "'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:3'",
    )
    for part in (
        "from_csv(CAST(key AS STRING), '`id` INT', map('escape', '\"', 'mode', 'FAILFAST'))",
        "from_json(CAST(value AS STRING), '`a` STRING, _malformed STRING', map('mode',",
        "WHERE value IS NOT NULL AND _value._malformed IS NULL",
        "CAST(_key.`id` AS INT) AS `k_id`",
        "CAST(map_from_entries(headers) AS MAP<STRING, BINARY>) AS `h`",
        "includeHeaders => 'true'",
        "`kafka.security.protocol` => 'PLAINTEXT'",
        """startingOffsets => '{"t": {"0": 42, "1": 3}}'""",
    ):
        assert part.lower() in found.lower()


@pytest.mark.parametrize(
    ("mode", "parameter"),
    [
        ("'latest-offset'", ""),
        ("'timestamp', 'scan.startup.timestamp-millis' = '17'", "startingTimestamp => '17'"),
        ("'earliest-offset'", "startingOffsets => 'earliest'"),
    ],
)
def test_where_reading_starts(mode: str, parameter: str) -> None:
    found = query("a STRING", f"{KAFKA}, 'format' = 'raw', 'scan.startup.mode' = {mode}")
    assert parameter in found
    assert found.count("start") == (1 if parameter else 0)


def test_a_materialized_table_ingests_the_same_as_a_stream() -> None:
    found = query("a BYTES", f"{KAFKA}, 'format' = 'raw'")
    stream = stream_query(found, {"connector": "kafka"})
    assert stream is not None
    read = find_stream(stream)
    assert read is not None and read.options["kafka.bootstrap.servers"] == "b:1"
    assert is_endless(found, {"connector": "kafka"})
    assert not is_endless(found, {"connector": "filesystem"})
    assert stream_query(found, {"comment": "an ordinary view"}) is None


def test_a_temporary_table_says_in_its_text_what_it_is() -> None:
    statement = parse(f"CREATE TEMPORARY TABLE t (a STRING) WITH ({KAFKA}, 'format' = 'raw')")
    assert isinstance(statement, SparkStatement)
    text = f"SELECT {statement.text.partition(' AS SELECT ')[2]}"
    assert text.startswith('SELECT /* connector=kafka {"connector": "kafka", ')
    assert is_endless(text, {})
    assert find_stream(stream_query(text, {}) or "") is not None


FILES = "'connector' = 'filesystem', 'path' = '/in'"


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("a INT", FILES, "format is missing"),
        ("a INT", "'connector' = 'filesystem', 'format' = 'json'", "path is missing"),
        ("a INT", f"{FILES}, 'format' = 'jsn'", "format cannot be jsn; did you mean json?"),
        ("a INT", f"{FILES}, 'format' = 'debezium-json'", "its records are changes by key"),
        ("a INT", f"{FILES}, 'format' = 'json', 'json.ignore-errors' = 'true'", "did you mean"),
        (
            "a INT",
            f"{FILES}, 'format' = 'json', 'csv.null-literal' = ''",
            "csv.null-literal is not",
        ),
        ("a INT", f"{FILES}, 'format' = 'raw'", "a single column of type STRING or BYTES"),
        (
            "a INT",
            f"{FILES}, 'format' = 'json', 'json.fail-on-missing-field' = 'true'",
            "must be false, since Spark reads NULL",
        ),
        (
            "a INT",
            f"{FILES}, 'format' = 'csv', 'csv.field-delimiter' = '||'",
            "csv.field-delimiter must be one character",
        ),
        (
            "a INT",
            f"{FILES}, 'format' = 'json', 'source.monitor-interval' = '1 s'",
            "source.monitor-interval cannot be set: a materialized table looks for new files",
        ),
        (
            "a INT, n STRING METADATA FROM 'file.names'",
            f"{FILES}, 'format' = 'json'",
            "there is no metadata file.names; did you mean file.name?",
        ),
        ("a INT", f"{KAFKA}", "either format or value.format"),
        ("a INT", f"{KAFKA}, 'format' = 'parquet'", "format cannot be parquet; there are json"),
        ("a INT", f"{KAFKA}, 'format' = 'json', 'topic-pattern' = 'x'", "either topic or"),
        ("a INT", f"{KAFKA}, 'format' = 'json', 'key.fields' = 'a'", "belong together"),
        (
            "a INT",
            f"{KAFKA}, 'format' = 'json', 'key.format' = 'raw', 'key.fields' = 'b'",
            "key.fields names b, which is no column",
        ),
        (
            "a INT",
            f"{KAFKA}, 'format' = 'json', 'scan.startup.mode' = 'group-offsets'",
            "scan.startup.mode must be earliest-offset or latest-offset",
        ),
        (
            "a INT",
            f"{KAFKA}, 'format' = 'json', 'scan.startup.timestamp-millis' = '5'",
            "'scan.startup.mode' = 'timestamp' belong together",
        ),
        (
            "a INT",
            f"{KAFKA}, 'format' = 'json', 'properties.ssl.key.password' = 'p'",
            "would be shown to all who see the table's definition",
        ),
        (
            "a INT",
            f"{KAFKA}, 'format' = 'json', 'properties.enable.auto.commit' = 'true'",
            "Spark's reader has its own",
        ),
        (
            "a INT",
            f"{KAFKA}, 'format' = 'json', 'scan.bounded.mode' = 'latest-offset'",
            "a query ends with the last record there is",
        ),
    ],
)
def test_invalid_options(columns: str, options: str, said: str) -> None:
    with pytest.raises(ServerError) as caught:
        view(columns, options)
    assert caught.value.code == "INVALID_CONNECTOR"
    assert said in caught.value.message


def test_only_files_are_partitioned() -> None:
    with pytest.raises(ServerError, match="PARTITIONED BY is for the connector filesystem"):
        view("a INT", f"{KAFKA}, 'format' = 'json'", "PARTITIONED BY (a)")
    with pytest.raises(ServerError, match="PARTITIONED BY names b, which is no column"):
        view("a INT", f"{FILES}, 'format' = 'json'", "PARTITIONED BY (b)")
