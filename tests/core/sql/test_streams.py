"""STREAM read_files(...) and its like in the text of a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_server.core.connectors.readers import READERS
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.streams import (
    VIEW,
    Stream,
    find_stream,
    reject_changes,
    reject_readers,
    reject_streams,
)

LATEST = {"startingVersion": "latest"}


def find(text: str) -> Stream:
    stream = find_stream(text)
    assert stream is not None
    return stream


def test_a_stream_of_files_in_sparks_words() -> None:
    stream = find(
        "select a from stream READ_FILES ('/in', format => 'JSON', schema => 'a INT', "
        "fileNamePattern => '*.json', multiLine => true, samplingRatio => 0.5) f where a > 1"
    )
    assert (stream.function, stream.path, stream.source) == ("read_files", "/in", "json")
    assert stream.options == {
        "pathGlobFilter": "*.json",
        "multiLine": "true",
        "samplingRatio": "0.5",
    }
    assert stream.name.table == "read_files(/in)"


def test_a_stream_of_kafka_is_the_same_whatever_its_brokers() -> None:
    call = "SELECT * FROM STREAM read_kafka(bootstrapServers => '{}', subscribe => 't')"
    one, other = (find(call.format(broker)) for broker in ("a:1", "b:2"))
    assert one.source == "kafka"
    assert one.options == {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    assert one.name == other.name


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "SELECT stream FROM stream",
        "SELECT 'STREAM read_files(' -- STREAM rate()",
        "SELECT rate(a) FROM `STREAM`",
        "SELECT a.stream b FROM stream AS s",
        "SELECT * FROM stream WHERE a",
        "SELECT * FROM stream LEFT JOIN b ON true",
        "SELECT stream t FROM a",
    ],
)
def test_other_queries_read_no_stream(text: str) -> None:
    assert find_stream(text) is None


@pytest.mark.parametrize(
    ("text", "code", "column", "said"),
    [
        ("FROM STREAM read_files('/a')", "MT_STREAM_UNUSABLE", 6, "needs format"),
        ("FROM STREAM read_files(format => 'csv')", "MT_STREAM_UNUSABLE", 6, "needs path"),
        ("FROM STREAM read_files('/a', format => 'delta')", "MT_STREAM_UNUSABLE", 30, "formats"),
        ("FROM STREAM rate(a => 1, A => 2)", "MT_STREAM_UNUSABLE", 26, "twice"),
        ("FROM STREAM rate(maxFilesPerTrigger => 2)", "MT_STREAM_UNUSABLE", 18, "one commit"),
        ("FROM STREAM rate(), STREAM rate()", "MT_STREAM_UNUSABLE", 21, "one stream"),
        ("FROM read_files('/a')", "INVALID_READER", 6, "needs format"),
        ("FROM read_files(path => concat('a'))", "PARSE_SYNTAX", 25, "a literal"),
        (
            "FROM STREAM read_files('/a', format => 'csv', headr => true)",
            *("MT_STREAM_UNUSABLE", 47, "no parameter headr; did you mean header"),
        ),
        (
            "FROM read_files('/a', format => 'csv', latestFirst => true)",
            *("INVALID_READER", 40, "latestFirst is for STREAM read_files"),
        ),
        (
            "FROM STREAM read_kafka(assign => 't', bootstrapServers => 'b', endingOffsets => '')",
            *("MT_STREAM_UNUSABLE", 64, "endingOffsets is for queries without STREAM"),
        ),
        (
            "FROM read_kafka(bootstrapServers => 'b', subscribe => 't', kafka.a => 'x')",
            *("INVALID_READER", 60, "a name with dots is quoted: `kafka.a`"),
        ),
        ("FROM STREAM read_kafka(subscribe => 't')", "MT_STREAM_UNUSABLE", 6, "bootstrapServers"),
        ("FROM STREAM rate(a => b)", "PARSE_SYNTAX", 23, "a literal"),
        ("FROM STREAM rate(a 1)", "PARSE_SYNTAX", 20, "=>"),
        ("FROM STREAM rate(", "PARSE_SYNTAX", 18, "a parameter"),
        ("FROM STREAM a JOIN STREAM b", "MT_STREAM_UNUSABLE", 20, "one stream"),
        (
            "FROM STREAM t WITH ('startVersion' = 3)",
            *("MT_STREAM_UNUSABLE", 21, "no option startVersion; did you mean startingVersion"),
        ),
        ("FROM STREAM t WITH ('ignoreDeletes' = true)", "MT_STREAM_UNUSABLE", 21, "there is"),
        ("FROM STREAM t WITH ('startingVersion' = 'first')", "MT_STREAM_UNUSABLE", 41, "'latest'"),
        (
            "FROM STREAM t WITH ('startingVersion' = 1, 'startingVersion' = 2)",
            *("MT_STREAM_UNUSABLE", 44, "appears twice"),
        ),
        ("FROM STREAM t WITH ()", "PARSE_SYNTAX", 21, "an option"),
        ("FROM STREAM(t WHERE", "PARSE_SYNTAX", 15, "or )"),
    ],
)
def test_errors_are_placed(text: str, code: str, column: int, said: str) -> None:
    with pytest.raises(ServerError) as caught:
        find_stream(text)
    assert (caught.value.code, caught.value.column) == (code, column)
    assert said in caught.value.message


_NAMES = st.from_regex(r"kafka\.[a-z]{1,8}|[a-z][A-Za-z_]{0,8}x", fullmatch=True)


@given(st.dictionaries(_NAMES, st.text(), max_size=4), st.text(min_size=1))
def test_a_stream_is_written_as_it_is_read(options: dict[str, str], path: str) -> None:
    parameters = {"path": path, "format": "csv", **options}
    unique = len({key.lower() for key in parameters}) == len(parameters)
    stream = Stream(function="read_files", parameters=parameters, start=0, end=0)
    if unique:
        read = find_stream(f"SELECT * FROM {stream.sql()}", stored=True)
        assert read is not None
        assert dict(read.parameters) == parameters


@pytest.mark.parametrize(
    ("text", "table", "options"),
    [
        ("SELECT a FROM STREAM t WHERE b", ("t",), {}),
        ("select a from stream(`a b`.t) as c", ("a b", "t"), {}),
        (
            "SELECT a FROM (SELECT * FROM STREAM x.y.z WITH ('STARTINGVERSION' = 12) u)",
            ("x", "y", "z"),
            {"startingVersion": "12"},
        ),
        (
            "FROM STREAM t WITH ('startingVersion' = 'Latest')",
            ("t",),
            {"startingVersion": "latest"},
        ),
    ],
)
def test_a_stream_of_the_changes_of_a_table(
    text: str, table: tuple[str, ...], options: dict[str, str]
) -> None:
    stream = find(text)
    assert (stream.table, dict(stream.parameters), stream.foreign) == (table, options, False)
    again = find(f"SELECT * FROM {stream.sql()} AS c")
    assert (again.table, again.parameters, again.name) == (table, options, stream.name)
    assert len(stream.with_view(text)) == len(text)
    with pytest.raises(ServerError, match="in this statement is not supported"):
        reject_streams(text)
    with pytest.raises(ServerError, match="leave out STREAM"):
        reject_changes(stream, text)


def test_hiding_a_stream_moves_nothing_else() -> None:
    text = "SELECT a\nFROM STREAM read_files('/ü',\n  format => 'csv') f\nWHERE b"
    hidden = find(text).with_view(text)
    assert [len(line) for line in hidden.split("\n")] == [len(line) for line in text.split("\n")]
    assert VIEW in hidden
    assert hidden.endswith(" f\nWHERE b")
    assert all(len(f"STREAM {name}()") > len(VIEW) for name in READERS)


def test_only_pipelines_read_streams() -> None:
    text = "SELECT *\nFROM STREAM read_files('/a', format => 'csv')"
    with pytest.raises(ServerError) as caught:
        reject_streams(text)
    assert (caught.value.code, caught.value.line, caught.value.column) == ("NOT_SUPPORTED", 2, 6)
    for allowed in (text.replace("STREAM ", ""), "SELECT s.read_files(1)", "SELECT rate(1)"):
        reject_streams(allowed)


def test_a_materialized_table_reads_files_as_a_stream() -> None:
    with pytest.raises(ServerError, match=r"STREAM read_files\(") as caught:
        reject_readers("SELECT * FROM read_files('/a', format => 'csv')")
    assert (caught.value.code, caught.value.column) == ("MT_STREAM_UNUSABLE", 15)
    reject_readers("SELECT * FROM t")
