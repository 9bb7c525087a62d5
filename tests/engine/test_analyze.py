"""Analysis of definition queries: full names, stars written out, sources, what is temporary."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.support.fixtures.spark import Lake
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Analysis
from tidegate_server.core.model.table import ColumnOrigin
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.engine.definition.analyze import analyze as run_analyze
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.query.resolution import Tables
from tidegate_server.engine.session.sessions import Child

pytestmark = pytest.mark.spark


def create_tables(lake: Lake) -> Lake:
    lake.sql(
        "CREATE TABLE t (a INT COMMENT 'the a', b STRING) USING delta",
        "INSERT INTO t VALUES (1, 'x'), (2, 'y')",
        "CREATE TABLE u (a INT, c INT) USING delta",
        "CREATE TABLE p (a INT) USING parquet",
        "CREATE VIEW v (x, y) AS SELECT * FROM t -- all",
        "CREATE VIEW w AS SELECT x FROM v WHERE x IN (SELECT a FROM p)",
        "CREATE FUNCTION plus_one(x INT) RETURNS INT RETURN x + 1",
    )
    return lake


@pytest.fixture(scope="module")
def tables(module_lake: Lake) -> Lake:
    """Tables, views and a function that no test changes; tests may add views."""
    return create_tables(module_lake)


@pytest.fixture
def own_tables(lake: Lake) -> Lake:
    """The same, for a test that changes them."""
    return create_tables(lake)


def analyze(lake: Lake, sql: str) -> Analysis:
    return run_analyze(Child(lake.session), sql, lake.format)


def failure(lake: Lake, sql: str) -> ServerError:
    with pytest.raises((ServerError, PySparkException)) as caught:
        analyze(lake, sql)
    return to_server_error(caught.value)


def sources(answer: Analysis) -> list[str]:
    return [source.name.table for source in answer.sources]


def expand(lake: Lake, sql: str) -> str:
    return without_schema(lake, analyze(lake, sql).expanded_query)


def without_schema(lake: Lake, query: str) -> str:
    return query.replace(f"`spark_catalog`.`{lake.schema}`.", "~")


def pinned_rows(lake: Lake, sql: str) -> list[tuple[object, ...]]:
    """Return the rows that a refresh of a query sees, in a new session."""
    query = analyze(lake, sql).expanded_query
    session = lake.root.newSession()
    text = Tables(session, lake.format).pin(query, "spark_catalog", "default")
    return sorted((tuple(row) for row in session.sql(text).collect()), key=repr)


def test_tables_copied_file_by_file_are_told_apart_by_nobody(lake: Lake) -> None:
    lake.sql("CREATE TABLE first (n INT) USING delta", "INSERT INTO first VALUES (1)")
    [detail] = lake.session.sql("DESCRIBE DETAIL first").collect()
    place = Path(str(detail["location"]).removeprefix("file:"))
    other = shutil.copytree(place, place.with_name("copied"))
    lake.sql(f"CREATE TABLE second USING delta LOCATION '{other}'")
    failed = failure(lake, "SELECT * FROM first UNION ALL SELECT * FROM second")
    assert failed.code == "MT_QUERY_UNSUPPORTED"
    assert "copied file by file" in failed.message
    lake.sql("CREATE TABLE third SHALLOW CLONE first")
    twice = f"SELECT * FROM first UNION ALL SELECT * FROM third UNION ALL TABLE delta.`{place}`"
    assert pinned_rows(lake, twice) == [(1,), (1,), (1,)]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT * FROM nosuch.db.t", "SHOW CATALOGS"),
        ("BEGIN ALTER MATERIALIZED TABLE m REFRESH; END", "not allowed in BEGIN"),
    ],
)
def test_errors_of_spark_that_say_little_have_a_hint(tables: Lake, sql: str, hint: str) -> None:
    with pytest.raises(PySparkException) as caught:
        tables.session.sql(sql)
    assert hint in to_server_error(caught.value).hint


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "text"),
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
        ("select a from identifier('t')", "select a from ~`t`"),
        (
            "select plus_one(a) n, upper(b) u from t",
            "select ~`plus_one`(a) n, upper(b) u from ~`t`",
        ),
        ("select count(*) n from t group by b", None),
    ],
)
def test_only_names_change_in_the_expanded_query(tables: Lake, sql: str, text: str | None) -> None:
    answer = analyze(tables, sql)
    if text is not None:
        assert without_schema(tables, answer.expanded_query) == text
    assert analyze(tables, answer.expanded_query).schema == answer.schema


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select * from t -- all", "select `a`, `b` from ~`t` -- all"),
        ("table t", "SELECT `a`, `b` FROM ~`t`"),
        ("select t.* from t", "select `t`.`a`, `t`.`b` from ~`t`"),
        ("select * except (b) from t", "select `a` from ~`t`"),
        ("select *, a + 1 as n from t z", "select `a`, `b`, a + 1 as n from ~`t` z"),
        (
            "select * from t join u using (a)",
            "select `t`.`a`, `t`.`b`, `u`.`c` from ~`t` join ~`u` using (a)",
        ),
        (
            "select x.*, y.c from t x left join u y on x.a = y.a",
            "select `x`.`a`, `x`.`b`, y.c from ~`t` x left join ~`u` y on x.a = y.a",
        ),
        (
            "with c as (select * from t) select n.* from (select * from c) n",
            (
                "with c as (select `a`, `b` from ~`t`) "
                "select `n`.`a`, `n`.`b` from (select `a`, `b` from c) n"
            ),
        ),
        (
            "with c as (select 1 a) select c.* from c union select a from t",
            "with c as (select 1 a) select `c`.`a` from c union select a from ~`t`",
        ),
        (
            "select a from t where exists (select * from u where u.a = t.a)",
            "select a from ~`t` where exists (select `a`, `c` from ~`u` where u.a = t.a)",
        ),
        ("select struct(*) as s from t", "select struct(`a`, `b`) as s from ~`t`"),
        ("select * from v", "select `x`, `y` from ~`v`"),
        (
            "select * from t natural join u",
            (
                "select * from (SELECT `a`, `b` FROM ~`t`) AS `t` "
                "natural join (SELECT `a`, `c` FROM ~`u`) AS `u`"
            ),
        ),
        (
            "from t |> extend a + 1 as n",
            "from (SELECT `a`, `b` FROM ~`t`) AS `t` |> extend a + 1 as n",
        ),
    ],
)
def test_stars_are_written_out(tables: Lake, sql: str, text: str) -> None:
    assert expand(tables, sql) == text


BEFORE_COLUMNS_CAME = (
    "select * from t",
    "select * from t natural join u",
    "select * from (select a.*, b.* from t a, t b) where 1 = 0",
    "select * from t pivot (count(*) for b in ('x', 'y'))",
    "select a, b from t where exists (select 1 from u where c = 1)",
    "select b, c from t, u where t.a = u.a",
)


def test_columns_that_sources_get_later_change_nothing(own_tables: Lake) -> None:
    answers = [analyze(own_tables, sql) for sql in BEFORE_COLUMNS_CAME]
    own_tables.sql("ALTER TABLE u ADD COLUMN b STRING", "ALTER TABLE t ADD COLUMN c INT")
    for answer in answers:
        recorded = {source.name: source.columns for source in answer.sources}
        later = Tables(own_tables.root.newSession(), own_tables.format, recorded=recorded)
        text = later.pin(answer.expanded_query, "spark_catalog", "default")
        assert tuple(later.spark.sql(text).columns) == answer.schema.names()


def test_names_of_other_schemas_are_kept(tables: Lake) -> None:
    tables.sql("USE default")
    try:
        assert expand(tables, f"select a from {tables.schema}.t") == "select a from ~`t`"
    finally:
        tables.sql(f"USE {tables.schema}")


def test_columns_written_with_their_schema_are_found_again(tables: Lake) -> None:
    s = tables.schema
    sql = f"select {s}.v.x, spark_catalog.{s}.t.a from {s}.v join t on {s}.v.x = {s}.t.a"
    assert pinned_rows(tables, sql) == [(1, 1), (2, 2)]
    assert pinned_rows(tables, f"select {s}.v.* from {s}.v where {s}.v.x > 1") == [(2, "y")]


def test_two_views_of_one_name_need_an_alias(tables: Lake) -> None:
    other = Lake(tables.root)
    try:
        other.sql("CREATE VIEW v AS SELECT 1 AS x")
        sql = f"select {tables.schema}.v.x from {tables.schema}.v, {other.schema}.v"
        refused = failure(tables, sql)
        assert refused.code == "MT_QUERY_UNSUPPORTED"
        assert "give the tables aliases" in refused.message
    finally:
        other.close()


def test_functions_in_views_are_those_of_the_view(tables: Lake) -> None:
    tables.sql("CREATE VIEW f AS SELECT plus_one(a) AS n FROM t")
    assert pinned_rows(tables, "select n from f") == [(2,), (3,)]


def test_functions_that_a_refresh_could_not_pin_or_find_are_refused(own_tables: Lake) -> None:
    own_tables.sql(
        "CREATE FUNCTION newest(x INT) RETURNS STRING RETURN (SELECT max(b) FROM t WHERE a < x)",
        "CREATE FUNCTION below(x INT) RETURNS TABLE (a INT) RETURN SELECT a FROM t WHERE a < x",
        "CREATE FUNCTION upto(x INT) RETURNS TABLE (a INT) RETURN SELECT explode(sequence(1, x))",
        "CREATE VIEW calling AS SELECT * FROM below(2)",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    )
    for query in (
        "SELECT c, newest(a) AS b FROM u",
        "SELECT * FROM below(2)",
        "SELECT u.c, f.a FROM u, LATERAL below(u.a) AS f",
        "SELECT * FROM calling",
    ):
        failed = failure(own_tables, query)
        assert failed.code == "MT_QUERY_UNSUPPORTED"
        assert f"reads spark_catalog.{own_tables.schema}.t; replace the call by" in failed.message
    for query in (
        f"SELECT a FROM table_changes('{own_tables.schema}.t', 0)",
        f"SELECT u.a FROM u JOIN table_changes('{own_tables.schema}.t', 0) AS d ON d.a = u.a",
    ):
        failed = failure(own_tables, query)
        assert failed.code == "MT_QUERY_UNSUPPORTED"
        assert "table_changes hides the table it reads" in failed.message
    failed = failure(own_tables, "SELECT * FROM upto(3)")
    assert failed.code == "MT_QUERY_UNSUPPORTED"
    assert "only in the current schema" in failed.message
    assert own_tables.rows("SELECT current_schema()") == [(own_tables.schema,)]


def test_a_view_keeps_the_settings_it_was_created_under(own_tables: Lake) -> None:
    own_tables.sql(
        "SET spark.sql.session.timeZone = Asia/Tokyo",
        "CREATE VIEW z AS SELECT date_format(timestamp_seconds(0), 'HH') AS h, a FROM t",
        "SET spark.sql.session.timeZone = UTC",
    )
    assert pinned_rows(own_tables, "select h, a from z where a = 1") == [("09", 1)]
    assert own_tables.rows("SHOW VIEWS LIKE '__tidegate*'") == []


def test_the_time_zone_of_the_session_is_known(tables: Lake) -> None:
    tables.sql("SET TIME ZONE 'Asia/Tokyo'")
    try:
        assert analyze(tables, "select a from t").time_zone == "Asia/Tokyo"
    finally:
        tables.sql("RESET spark.sql.session.timeZone")


def test_a_view_with_columns_of_one_name_is_read_by_position(tables: Lake) -> None:
    tables.sql("CREATE VIEW d (l, r) AS SELECT one.a, two.a FROM t one JOIN t two USING (b)")
    assert pinned_rows(tables, "select * from d") == [(1, 1), (2, 2)]


def test_the_schema_has_types_and_comments(tables: Lake) -> None:
    columns = analyze(tables, "select a, array(b) as bs from t").schema.columns
    assert [(c.name, c.type, c.comment) for c in columns] == [
        ("a", "int", "the a"),
        ("bs", "array<string>", None),
    ]


def test_views_are_looked_through_to_their_tables(tables: Lake) -> None:
    answer = analyze(tables, "select x from w")
    assert sources(answer) == ["p", "t"]
    kinds = {source.name.table: source.kind for source in answer.sources}
    assert kinds == {"p": SourceKind.PLAIN, "t": SourceKind.VERSIONED}
    via = {source.name.table: [view.table for view in source.via] for source in answer.sources}
    assert via == {"p": ["w"], "t": ["w", "v"]}


def test_a_source_has_its_columns(tables: Lake) -> None:
    t, p = sorted(analyze(tables, "select x from w").sources, key=lambda s: s.kind.value)[::-1]
    assert [(c.name, c.type) for c in t.columns] == [("a", "int"), ("b", "string")]
    assert [(c.name, c.type) for c in p.columns] == [("a", "int")]


def test_the_lineage_is_told(tables: Lake) -> None:
    answer = analyze(tables, "select y as name, count(*) as n, sum(x) as total from v group by y")
    t = tables.name("t")
    assert answer.lineage == (
        ColumnOrigin(column="name", source=t, source_column="b", unchanged=True),
        ColumnOrigin(column="total", source=t, source_column="a", unchanged=False),
    )


def test_what_is_unstable_is_told(tables: Lake) -> None:
    answer = analyze(tables, "select a, current_date as d, rand() as r from t")
    assert answer.unstable == ("D1 current_date", "D3 rand")


def test_a_source_has_the_identity_of_its_table(own_tables: Lake) -> None:
    (before,) = analyze(own_tables, "select a from t").sources
    own_tables.sql("DROP TABLE t", "CREATE TABLE t (a INT) USING delta")
    (after,) = analyze(own_tables, "select a from t").sources
    assert before.name == after.name
    assert before.table_id != after.table_id


def test_temporary_things_are_reported(own_tables: Lake) -> None:
    own_tables.sql(
        "CREATE TEMPORARY VIEW mine AS SELECT 1 a",
        "CREATE TEMPORARY FUNCTION twice(x INT) RETURNS INT RETURN x * 2",
        "CREATE TEMPORARY FUNCTION ones(x INT) RETURNS TABLE (a INT) RETURN SELECT 1 WHERE x > 0",
        "DECLARE OR REPLACE VARIABLE threshold INT DEFAULT 1",
    )
    answer = analyze(own_tables, "select twice(mine.a) from mine, t where t.a > threshold")
    assert answer.temporary_objects == ("view mine", "function twice", "variable threshold")
    assert analyze(own_tables, "SELECT a FROM ones(1)").temporary_objects == ("function ones",)
    own_tables.sql("DROP TEMPORARY FUNCTION twice", "DROP TEMPORARY FUNCTION ones")
    own_tables.sql("DROP TEMPORARY VARIABLE threshold")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("selec 1", "PARSE_SYNTAX_ERROR"),
        ("insert into t values (1, 'x')", "PARSE_SYNTAX_ERROR"),
        ("select nope from t", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("select 1 from nowhere", "TABLE_OR_VIEW_NOT_FOUND"),
        ("select current_database(), a from t", "MT_QUERY_UNSUPPORTED"),
        ("select a from t where b in (select current_schema())", "MT_QUERY_UNSUPPORTED"),
        ("select upper(current_catalog()) as c from t", "MT_QUERY_UNSUPPORTED"),
        ("select a from identifier(b)", "MT_QUERY_UNSUPPORTED"),
    ],
)
def test_an_unusable_query_is_refused(tables: Lake, sql: str, code: str) -> None:
    assert failure(tables, sql).code == code


def test_nothing_is_run(tables: Lake) -> None:
    failure(tables, "drop table t")
    assert tables.rows("select count(*) from t") == [(2,)]
