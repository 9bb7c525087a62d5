"""Whatever the text is, it is translated or refused with an error that has a place."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.full_run import FULL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.flink.translate import translate_statement, translate_type

_WORDS = """
SELECT FROM WHERE GROUP BY ORDER OFFSET FETCH FIRST ROWS ONLY JOIN LATERAL TABLE UNNEST WITH
ORDINALITY AS FOR SYSTEM_TIME OF CASE WHEN END LIKE ESCAPE QUALIFY MATCH_RECOGNIZE OVER FILTER
WITHIN IGNORE NULLS INTERVAL DAY TO SECOND DATE TIMESTAMP TIME U ARRAY MAP ROW MULTISET CAST
TRY_CAST AVG FLOOR EXTRACT SUBSTRING TUMBLE HOP CUMULATE SESSION TUMBLE_START HOP_END DESCRIPTOR
DATA TIMECOL SIZE PARTITION JSON_VALUE JSON_QUERY RETURNING SPLIT_INDEX TO_TIMESTAMP_LTZ
TIMESTAMPDIFF LISTAGG FIRST_VALUE ARRAY_AGG GREATEST LPAD REGEXP_REPLACE PROCTIME CREATE ALTER
MATERIALIZED VIEW ADD MODIFY IMMUTABLE REFRESH WATERMARK CONSTRAINT EXPECT COMMENT EXPLAIN PLAN
DESCRIBE QUERY INSERT INTO VALUES SET EXECUTE STATEMENT NOT NULL INT STRING DECIMAL BYTES t a
"""
SYMBOLS = ["(", ")", "[", "]", ",", ".", "*", "/", "-", "+", "%", "=", "=>", "<", ">", "||", ";"]
OTHERS = ["'x'", "'10'", "'$.a'", "1", "2.5", "`n`", "&", "'\\'", "/*+ OPTIONS('a'='b') */", "\n"]
TOKENS = st.sampled_from([*_WORDS.split(), *SYMBOLS, *SYMBOLS, *OTHERS])


def _places(text: str, problem: ServerError) -> bool:
    lines = text.split("\n")
    line, column = problem.line, problem.column
    if line is None or column is None or not 1 <= line <= len(lines):
        return False
    return 1 <= column <= len(lines[line - 1]) + 1


@settings(max_examples=5000 if FULL else 300, deadline=None)
@given(
    st.lists(TOKENS, max_size=25).map(" ".join), st.sampled_from(["", "SELECT ", "CREATE TABLE "])
)
def test_any_tokens_are_translated_or_refused(text: str, before: str) -> None:
    text = before + text
    try:
        found = translate_statement(text)
    except ServerError as problem:
        assert _places(text, problem), problem
    else:
        assert all(found.place(1, column)[0] >= 1 for column in range(1, len(found.text) + 1, 7))


@settings(max_examples=3000 if FULL else 100, deadline=None)
@given(st.lists(TOKENS, max_size=8).map(" ".join))
def test_any_type_is_translated_or_refused(text: str) -> None:
    try:
        translate_type(text)
    except ServerError as problem:
        assert _places(text, problem), problem
