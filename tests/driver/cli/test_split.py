"""The splitter keeps every character, and cuts only where a statement ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.cli.split import Ending, is_complete, split


def statements(script: str) -> list[str]:
    return [part.sql for part in split(script) if part.sql]


SQL_ISH = st.lists(
    st.sampled_from(
        ["select", " ", "\n", ";", "'", '"', "`", "\\", "--", "//", "/*", "*/", "a", "!", "begin"]
        + ["end", "if", "(", ")", ",", "r", "é", "\r\n", "case"]
    ),
    max_size=40,
).map("".join)


@given(st.one_of(st.text(), SQL_ISH))
def test_the_parts_of_a_script_join_to_the_script(script: str) -> None:
    assert "".join(part.raw for part in split(script)) == script


@given(SQL_ISH)
def test_a_statement_lies_where_its_line_and_column_say(script: str) -> None:
    lines = script.split("\n")
    for part in split(script):
        if part.sql:
            first = part.sql.split("\n")[0]
            begin = lines[part.line - 1][part.column - 1 :]
            assert begin[:1] == first[:1]


@given(st.text(alphabet=st.characters(exclude_characters="'\\")))
def test_a_quoted_semicolon_never_splits(text: str) -> None:
    script = f"select '{text};' as a"
    assert statements(f"{script}; select 2") == [script, "select 2"]


@given(st.text(alphabet=st.characters(exclude_characters="*/")))
def test_a_commented_semicolon_never_splits(text: str) -> None:
    script = f"select /* {text}; ' */ 1"
    assert statements(f"{script}; select 2") == [script, "select 2"]


@given(st.lists(st.sampled_from(["select 1", "use x", "select ';'"]), max_size=8))
def test_a_list_of_statements_comes_back(given_statements: list[str]) -> None:
    assert statements(";\n".join(given_statements)) == given_statements


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("select 1; select 2;", ["select 1", "select 2"]),
        ("select 'it''s; ok'; x", ["select 'it''s; ok'", "x"]),
        (r"select 'it\'s; ok'; x", [r"select 'it\'s; ok'", "x"]),
        (r"select 'a\\'; x", [r"select 'a\\'", "x"]),
        (r"select r'a\'; x", [r"select r'a\'", "x"]),
        (r"""select R"a\"; x""", [r"""select R"a\"""", "x"]),
        ("select 1 -- a \\\n ; b\n; x", ["select 1 -- a \\\n ; b", "x"]),
        ("select `a;``b`; x", ["select `a;``b`", "x"]),
        ('select "a;b"; x', ['select "a;b"', "x"]),
        ("select 1 -- ; '\n; x", ["select 1 -- ; '", "x"]),
        ("select /* a /* b; */ c; */ 1; x", ["select /* a /* b; */ c; */ 1", "x"]),
        ("select /*+ BROADCAST(t) */ 1", ["select /*+ BROADCAST(t) */ 1"]),
        (";;  ; x", ["x"]),
        ("-- only a comment", []),
        ("/* only; */ -- comments", []),
        ("-- before\n/* both; */ select 1", ["select 1"]),
        ("select 6 - -1; x", ["select 6 - -1", "x"]),
    ],
)
def test_quotes_and_comments_hide_semicolons(script: str, expected: list[str]) -> None:
    assert statements(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("// pv; uv\nselect 1", ["select 1"]),
        ("select a, // product; id\n b", ["select a, -- product; id\n b"]),
        ("select (// x\n1)", ["select (-- x\n1)"]),
        ("select 'http://x'; y", ["select 'http://x'", "y"]),
        ("add jar hdfs://host/x.jar; y", ["add jar hdfs://host/x.jar", "y"]),
        ("add jar file:///x.jar; y", ["add jar file:///x.jar", "y"]),
    ],
)
def test_slashes_are_a_comment_only_where_a_token_begins(script: str, expected: list[str]) -> None:
    assert statements(script) == expected


@pytest.mark.parametrize(
    "block",
    [
        "BEGIN SELECT 1; SELECT 2; END",
        "begin declare x int; if x > 1 then select 1; end if; end",
        "BEGIN IF (1 > 0) THEN SELECT if(true, 1, 2); ELSE SELECT 3; END IF; END",
        "BEGIN SELECT CASE WHEN a THEN 1 END FROM t; END",
        "BEGIN WHILE x < 3 DO SET x = x + 1; END WHILE; END",
        "BEGIN REPEAT SELECT repeat('a', 2); UNTIL true END REPEAT; END",
        "BEGIN l: LOOP LEAVE l; END LOOP; BEGIN SELECT 1; END; END",
        "BEGIN CREATE TABLE IF NOT EXISTS t (a INT); END",
        "BEGIN CASE x WHEN 1 THEN SELECT 1; END CASE; END",
    ],
)
def test_a_block_of_sql_scripting_is_one_statement(block: str) -> None:
    assert statements(f"{block}; select 9") == [block, "select 9"]


def test_a_flink_statement_set_is_cut_at_every_semicolon() -> None:
    script = "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END; x"
    assert statements(script) == ["BEGIN STATEMENT SET", "INSERT INTO a SELECT 1", "END", "x"]


def test_a_column_named_like_a_block_word_does_not_matter_outside_of_a_block() -> None:
    assert statements("select case when a then 1 end; select begin; x") == [
        "select case when a then 1 end",
        "select begin",
        "x",
    ]


def test_a_shell_command_ends_with_its_line() -> None:
    parts = [part for part in split("!set a it's\nselect 1;\n  !quit;\n") if part.sql]
    assert [(part.sql, part.is_command) for part in parts] == [
        ("!set a it's", True),
        ("select 1", False),
        ("!quit", True),
    ]


def test_an_exclamation_mark_inside_a_statement_is_no_command() -> None:
    assert statements("select 1\n!= 2; x") == ["select 1\n!= 2", "x"]


def test_lines_and_columns_point_at_the_statement_behind_its_comments() -> None:
    script = "-- a\n\nselect 1;  select\n2;\n/* b\n */ x"
    found = [(part.sql, part.line, part.column) for part in split(script)]
    assert found == [("select 1", 3, 1), ("select\n2", 3, 12), ("x", 6, 5)]


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("select 1;", Ending.SEMICOLON),
        ("select 1", Ending.INPUT),
        ("select 'a", Ending.IN_QUOTE),
        ("select `a;", Ending.IN_QUOTE),
        ("select 1 /* ;", Ending.IN_COMMENT),
        ("/* /* */ select 1;", Ending.IN_COMMENT),
        ("!help", Ending.COMMAND),
    ],
)
def test_the_ending_tells_what_is_missing(text: str, ending: Ending) -> None:
    assert [part.ending for part in split(text)] == [ending]


@pytest.mark.parametrize("text", ["", "  \n", "select 1;", "select 1; -- x", "!help", "-- x"])
def test_a_terminated_buffer_is_complete(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text", ["select", "select 1; select", "select ';", "/* select 1;", "begin select 1;"]
)
def test_an_unterminated_buffer_is_not_complete(text: str) -> None:
    assert not is_complete(text)


def test_a_megabyte_of_unbalanced_signs_is_split_at_once() -> None:
    script = "/*" * 200_000 + "'" * 200_000 + "\\" * 200_000
    assert "".join(part.raw for part in split(script)) == script
