"""SQL that means the same to both stays byte for byte."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.full_run import FULL
from tidegate_server.core.sql.flink.translate import translate_query, translate_statement

NAMES = st.sampled_from(["a", "b1", "t.c", "`odd name`", "s.t.`x``y`", "größe", "ds", "left_", "T"])
LITERALS = st.sampled_from(
    ["1", "-2.5", "1e3", "'x'", "'it''s'", "''", "NULL", "TRUE", "DATE '2024-01-01'"]
    + ["INTERVAL '1' DAY", "INTERVAL '1:30' MINUTE TO SECOND", "X'0A'"]
)
GAPS = st.sampled_from([" ", "  ", "\n", " /* it's / a comment */ ", " -- it's one; 1 / 2\n"])
FUNCTIONS = st.sampled_from(
    ["COUNT", "sum", "MAX", "Coalesce", "UPPER", "ABS", "CONCAT", "CHAR_LENGTH", "IF", "NULLIF"]
    + ["ROUND", "MOD", "CONCAT_WS", "LEFT", "RIGHT", "REPLACE", "CARDINALITY", "my_udf", "db.udf"]
)
OPERATORS = st.sampled_from(
    [
        "+",
        "-",
        "*",
        "%",
        "=",
        "<>",
        "<",
        ">=",
        "||",
        "AND",
        "OR",
        "IS DISTINCT FROM",
        "LIKE 'a%' OR",
    ]
)


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    listed = st.lists(inner, min_size=1, max_size=3).map(", ".join)
    return st.one_of(
        st.tuples(inner, GAPS, OPERATORS, GAPS, inner).map("".join),
        st.builds("({})".format, inner),
        st.builds("{}({})".format, FUNCTIONS, listed),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, inner, inner, inner),
        st.builds("{} IN ({})".format, inner, listed),
        st.builds("CAST({} AS BIGINT)".format, inner),
        st.builds("CAST({} AS DECIMAL(10, 2))".format, inner),
        st.builds("{} IS NOT NULL".format, inner),
        st.builds("{} NOT BETWEEN {} AND {}".format, inner, inner, inner),
        st.builds("SUM({}) OVER (PARTITION BY {} ORDER BY {})".format, inner, inner, inner),
        st.builds("EXISTS (SELECT {} FROM t)".format, inner),
        st.builds("SUBSTRING({}, 2, 3)".format, inner),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, LITERALS), _extended, max_leaves=12)
JOINS = st.sampled_from(["", " LEFT JOIN u USING (a)", ", v AS w", " CROSS JOIN (SELECT 1) AS x"])


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query of common SQL."""
    columns = draw(st.lists(EXPRESSIONS, min_size=1, max_size=4))
    text = f"SELECT {draw(GAPS)}{', '.join(columns)}{draw(GAPS)}FROM t AS x{draw(JOINS)}"
    if draw(st.booleans()):
        text += f"{draw(GAPS)}WHERE {draw(EXPRESSIONS)}"
    if draw(st.booleans()):
        text += f" GROUP BY GROUPING SETS ((a), ({draw(EXPRESSIONS)}))"
    if draw(st.booleans()):
        text += f" UNION ALL (SELECT {draw(EXPRESSIONS)})"
    if draw(st.booleans()):
        text += " ORDER BY 1 DESC LIMIT 10"
    return text


@settings(max_examples=3000 if FULL else 150, deadline=None)
@given(queries())
def test_common_sql_is_not_touched(query: str) -> None:
    assert translate_query(query).text == query
    assert translate_statement(f"INSERT INTO t {query}").text == f"INSERT INTO t {query}"
    create = f"CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' HOUR AS {query};"
    assert translate_statement(create).text == create
