"""Analysis of definition queries: full names, fixed columns, sources, what is temporary."""

from __future__ import annotations

import pytest

from tests.server.engine.conftest import Session
from tidegate_server.errors import ServerError
from tidegate_server.link.messages import Analysis, Analyze
from tidegate_server.model.versions import SourceKind

pytestmark = pytest.mark.spark


@pytest.fixture
def tables(session: Session, schema: str) -> str:
    session.execute("CREATE TABLE t (a INT COMMENT 'the a', b STRING) USING delta")
    session.execute("CREATE TABLE p (a INT) USING parquet")
    session.execute("CREATE VIEW v (x, y) AS SELECT * FROM t -- all")
    session.execute("CREATE VIEW w AS SELECT x FROM v WHERE x IN (SELECT a FROM p)")
    return schema


def analyze(session: Session, sql: str) -> Analysis:
    answer = session.client.call(Analyze(session_id=session.id, sql=sql))
    assert isinstance(answer, Analysis)
    return answer


def failure(session: Session, sql: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        analyze(session, sql)
    return caught.value


def sources(answer: Analysis) -> list[str]:
    return [source.name.table for source in answer.sources]


def check_expansion(session: Session, schema: str, sql: str, expanded: str) -> Analysis:
    answer = analyze(session, sql)
    assert answer.expanded_query.replace(f"`spark_catalog`.`{schema}`.", "~") == expanded
    return answer


@pytest.mark.parametrize(
    ("sql", "expanded"),
    [
        ("select a  from t", "select a  from ~`t`"),
        ("SELECT t.a FROM `T`, p AS q", "SELECT t.a FROM ~`T`, ~`p` AS q"),
        ("select '🎉', a from t -- from t", "select '🎉', a from ~`t` -- from t"),
        ("with t as (select 1 a) select a from t", "with t as (select 1 a) select a from t"),
        (
            "with c as (select a from t), t as (select a from c) select a from t",
            "with c as (select a from ~`t`), t as (select a from c) select a from t",
        ),
        (
            "select (select max(a) from p) m from t where exists (select 1 from p)",
            "select (select max(a) from ~`p`) m from ~`t` where exists (select 1 from ~`p`)",
        ),
        (
            "select a from t union all (select x from v order by x limit 1)",
            "select a from ~`t` union all (select x from ~`v` order by x limit 1)",
        ),
        ("select z.a from t z join lateral (select z.a c)", None),
        ("select a from t version as of 0;", "select a from ~`t` version as of 0"),
        ("from t |> where a > 1 |> select a", "from ~`t` |> where a > 1 |> select a"),
        ("select * from t -- all", "SELECT `a`, `b` FROM (select * from ~`t` -- all\n)"),
        ("table t", "SELECT `a`, `b` FROM (SELECT * FROM ~`t`\n)"),
        (
            "select a, count(*) n from (select * from t) group by a having count(*) > 0",
            "select a, count(*) n from (select * from ~`t`) group by a having count(*) > 0",
        ),
        (
            "with c as (select 1 a) select c.* from c union select a from t",
            "SELECT `a` FROM (with c as (select 1 a) select c.* from c union select a from ~`t`\n)",
        ),
        ("select count(*) n from t group by b", None),
    ],
)
def test_only_names_change_in_the_expanded_query(
    session: Session, tables: str, sql: str, expanded: str | None
) -> None:
    if expanded is not None:
        check_expansion(session, tables, sql, expanded)
    again = analyze(session, analyze(session, sql).expanded_query)
    assert again.schema == analyze(session, sql).schema


def test_names_of_other_schemas_are_kept(session: Session, tables: str) -> None:
    session.execute("USE default")
    check_expansion(session, tables, f"select a from {tables}.t", "select a from ~`t`")


def test_the_schema_has_types_and_comments(session: Session, tables: str) -> None:
    columns = analyze(session, "select a, array(b) as bs from t").schema.columns
    assert [(c.name, c.type, c.comment) for c in columns] == [
        ("a", "int", "the a"),
        ("bs", "array<string>", None),
    ]


def test_views_are_looked_through_to_their_tables(session: Session, tables: str) -> None:
    answer = analyze(session, "select x from w")
    assert sources(answer) == ["p", "t"]
    kinds = {source.name.table: source.kind for source in answer.sources}
    assert kinds == {"p": SourceKind.PLAIN, "t": SourceKind.VERSIONED}


def test_a_source_has_the_identity_of_its_table(session: Session, tables: str) -> None:
    (before,) = analyze(session, "select a from t").sources
    session.execute("DROP TABLE t")
    session.execute("CREATE TABLE t (a INT) USING delta")
    (after,) = analyze(session, "select a from t").sources
    assert before.name == after.name
    assert before.table_id != after.table_id


def test_temporary_views_and_functions_are_reported(session: Session, tables: str) -> None:
    session.execute("CREATE TEMPORARY VIEW mine AS SELECT 1 a")
    session.execute("CREATE TEMPORARY FUNCTION twice(x INT) RETURNS INT RETURN x * 2")
    answer = analyze(session, "select twice(mine.a) from mine, t")
    assert answer.temporary_objects == ("view mine", "function twice")


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("selec 1", "PARSE_SYNTAX_ERROR"),
        ("insert into t values (1, 'x')", "PARSE_SYNTAX_ERROR"),
        ("select nope from t", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("select 1 from nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("select a from identifier('t')", "MT_QUERY_UNSUPPORTED"),
    ],
)
def test_an_unusable_query_is_refused(session: Session, tables: str, sql: str, code: str) -> None:
    assert failure(session, sql).code == code


def test_nothing_is_run(session: Session, tables: str) -> None:
    failure(session, "drop table t")
    assert session.rows("select count(*) from t") == [(0,)]
