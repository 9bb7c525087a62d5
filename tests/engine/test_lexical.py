"""The driver reads literals, names and comments as Spark's lexer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.java_gateway import get_field
from pyspark.sql import SparkSession

from tidegate.lexical import UNCLOSED, compile_tokens, find_tokens
from tidegate_server.engine.storage.jvm import java

_QUESTION_MARK = compile_tokens(r"(?P<qmark> \? )")
_PIECES = (
    *("'", '"', "`", "\\", "r'", "R'", 'r"', "xr'", "''", "/*", "*/", "/*+", "/**/", "--"),
    *("\n", "\r", "\\\n", " ", "?", "a", "1", "é", "a:b", "$$", "$x$", "%", "//", ";"),
)

Offsets = Callable[[str], list[int] | None]


@pytest.fixture(scope="module")
def spark_offsets(spark_root: SparkSession) -> Offsets:
    """Return where Spark sees question marks; None if a quote or a comment is not closed."""
    jvm = java(spark_root)
    parser: Any = jvm.org.apache.spark.sql.catalyst.parser
    antlr: Any = jvm.org.antlr.v4.runtime

    def offsets(sql: str) -> list[int] | None:
        characters = parser.UpperCaseCharStream(antlr.CharStreams.fromString(sql))
        lexer = parser.SqlBaseLexer(characters)
        lexer.removeErrorListeners()
        tokens = [(token.getText(), token.getStartIndex()) for token in lexer.getAllTokens()]
        is_open = get_field(lexer, "has_unclosed_bracketed_comment")
        if is_open or {"'", '"', "`"} & {text for text, _ in tokens}:
            return None
        return [start for text, start in tokens if text == "?"]

    return offsets


def offsets_of_driver(sql: str) -> list[int] | None:
    tokens = list(find_tokens(_QUESTION_MARK, sql))
    if any(token.kind == UNCLOSED for token in tokens):
        return None
    return [token.start for token in tokens if token.kind == "qmark"]


@pytest.mark.parametrize(
    "sql",
    [
        r"r'C:\' ? 'x'",
        'R"C:\\" ?',
        r"xr'a\' ?'",
        "/* a /* ? */ ? */ ?",
        "/* a /*+ ? */ ? ",
        "/*+ REPARTITION(?) */ ?",
        "/*+ x('*/') ? */ ?",
        "*/*/ ?",
        "2*/*?*/?",
        "`a``?` ?",
        "-- a ?\n?",
        "-- a \\\n? b\n?",
        "-- a ?\r?",
        "'a''?' ?",
        "a:b ?",
        "$$ ? $$ ?",
    ],
)
def test_question_marks_are_where_spark_sees_them(sql: str, spark_offsets: Offsets) -> None:
    assert offsets_of_driver(sql) == spark_offsets(sql)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_question_marks_of_any_text_are_where_spark_sees_them(
    spark_offsets: Offsets, sql: str
) -> None:
    expected = spark_offsets(sql)
    if expected is not None:
        assert offsets_of_driver(sql) == expected
