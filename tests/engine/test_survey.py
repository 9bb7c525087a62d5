"""What the engine says of a statement before it runs: what it reads and accesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import Session
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import Survey
from tidegate_server.core.model.access import Access, Act, Features, ObjectKind
from tidegate_server.core.sql.statements import ListingKind

pytestmark = pytest.mark.spark


def survey(session: Session, sql: str, **settings: str) -> Surveyed:
    answer = session.client.call(Survey(session_id=session.id, sql=sql, settings=settings))
    assert isinstance(answer, Surveyed)
    return answer


def beyond(session: Session, sql: str) -> set[str]:
    """Return the features and paths that a statement uses."""
    accesses = session.client.call(
        Survey(session_id=session.id, sql=sql, user="bob", features=Features())
    ).accesses
    features = {a.catalog for a in accesses if a.kind is ObjectKind.FEATURE}
    paths = {a.act for a in accesses if a.kind is ObjectKind.PATH}
    return features | {"paths" if act is Act.READ else "locations" for act in paths}


def read(surveyed: Surveyed) -> set[str]:
    return {reading.name.table for reading in surveyed.readings if reading.name is not None}


READS = [
    ("SELECT 1", ""),
    ("SELECT * FROM range(3) JOIN VALUES (1) AS q(x)", ""),
    ("SELECT * FROM t", "t"),
    ("TABLE t", "t"),
    ("SELECT * FROM v", "t"),
    ("SELECT * FROM tv", "t"),
    ("SELECT * FROM t VERSION AS OF 0", "t"),
    ("SELECT a FROM x WHERE a IN (SELECT a FROM v)", "t x"),
    ("WITH q AS (SELECT * FROM t) SELECT * FROM q, q r", "t"),
    ("SELECT * FROM IDENTIFIER('t')", "t"),
    ("SELECT * FROM table_changes('t', 0)", "t"),
    ("SELECT f()", "t"),
    ("SELECT nope FROM t", "t"),
    ("EXPLAIN EXTENDED SELECT * FROM tv", "t"),
    ("EXPLAIN SELECT f()", "t"),
    ("DESCRIBE QUERY SELECT * FROM t", "t"),
    ("DESCRIBE HISTORY t", "t"),
    ("DESCRIBE DETAIL t", "t"),
    ("DESCRIBE EXTENDED v", "t"),
    ("SHOW TBLPROPERTIES t", "t"),
    ("SHOW COLUMNS IN t", "t"),
    ("SHOW CREATE TABLE v", "t"),
    ("CREATE VIEW v2 AS SELECT * FROM v", "t"),
    ("CREATE TEMPORARY VIEW v2 AS SELECT * FROM t", "t"),
    ("CREATE TABLE y AS SELECT f() AS c", "t"),
    ("CREATE TABLE y AS SELECT * FROM table_changes('t', 0)", "t"),
    ("CREATE TABLE y LIKE t", "t"),
    ("CREATE TABLE y SHALLOW CLONE t", "t"),
    ("CACHE TABLE t", "t"),
    ("CACHE TABLE y AS SELECT f()", "t"),
    ("INSERT INTO x SELECT a FROM tv", "t x"),
    ("INSERT INTO x SELECT f()", "t x"),
    ("WITH q AS (SELECT a FROM t) INSERT INTO x SELECT * FROM q", "t x"),
    ("FROM t INSERT INTO x SELECT a", "t x"),
    ("MERGE INTO x USING v ON x.a = v.a WHEN MATCHED THEN DELETE", "t x"),
    ("MERGE INTO x USING (SELECT f() a) s ON x.a = s.a WHEN MATCHED THEN DELETE", "t x"),
    ("UPDATE x SET a = (SELECT max(a) FROM v)", "t x"),
    ("DELETE FROM x WHERE a = (SELECT max(a) FROM v)", "t x"),
    ("CREATE FUNCTION g() RETURNS INT RETURN (SELECT max(a) FROM t)", "t"),
    ("CREATE FUNCTION g(i INT) RETURNS INT RETURN (SELECT max(a) FROM t WHERE a = i)", "t"),
    ("CREATE FUNCTION g() RETURNS TABLE RETURN SELECT * FROM t", "t"),
    ("DECLARE VARIABLE q INT DEFAULT (SELECT max(a) FROM t)", "t"),
    ("SET VARIABLE q = (SELECT max(a) FROM t)", "t"),
    ("SELEC", ""),
]

KIND = ObjectKind.SETTING
HIVE = "org.apache.hadoop.hive.ql.io"
SYMLINKS = (
    f"INPUTFORMAT '{HIVE}.SymlinkTextInputFormat' "
    f"OUTPUTFORMAT '{HIVE}.HiveIgnoreKeyTextOutputFormat'"
)
BEYOND = [
    ("SELECT * FROM t", ""),
    ("SELECT * FROM IDENTIFIER(lower('T'))", ""),
    ("TRUNCATE TABLE IDENTIFIER(lower('X'))", ""),
    ("EXECUTE IMMEDIATE 'SELECT 1'", ""),
    ("BEGIN SELECT 1; END", ""),
    ("CREATE TABLE y (a INT) USING delta", ""),
    ("ADD JAR '/a.jar'", "resources"),
    ("ADD FILE '/a'", "resources"),
    ("ADD ARCHIVE '/a.zip'", "resources"),
    ("CREATE FUNCTION j AS 'a.B' USING JAR '/a.jar'", "jar-functions"),
    ("CREATE TEMPORARY FUNCTION j AS 'a.B'", "jar-functions"),
    ("SELECT reflect('java.lang.System', 'gc')", "jar-functions"),
    ("SELECT JAVA_METHOD('java.lang.System', 'gc')", "jar-functions"),
    ("SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'gc')", "jar-functions"),
    ("SELECT * FROM IDENTIFIER(reflect('java.lang.System', 'gc'))", "jar-functions"),
    ("EXECUTE IMMEDIATE reflect('java.lang.System', 'gc')", "jar-functions"),
    ("EXECUTE IMMEDIATE 'SELECT reflect(\\'java.lang.System\\', \\'gc\\')'", "jar-functions"),
    ("SELECT sum(1) OVER (PARTITION BY reflect('java.lang.System', 'gc'))", "jar-functions"),
    ("CREATE FUNCTION g() RETURNS STRING RETURN reflect('a.B', 'c')", "jar-functions"),
    ("CREATE FUNCTION g(i STRING DEFAULT reflect('a.B')) RETURNS INT RETURN 1", "jar-functions"),
    ("SELECT TRANSFORM(a) USING 'cat' FROM t", "scripts"),
    ("FROM t MAP a USING 'cat'", "scripts"),
    ("EXPLAIN SELECT TRANSFORM(a) USING 'cat' FROM t", "scripts"),
    ("CREATE FUNCTION g() RETURNS TABLE RETURN SELECT TRANSFORM(a) USING 'id' FROM t", "scripts"),
    ("SELECT * FROM csv.`/etc/passwd`", "paths"),
    ("SELECT * FROM parquet.`some/where`", "paths"),
    ("INSERT INTO delta.`/w/t` SELECT 1", "paths"),
    ("CREATE TEMPORARY VIEW c USING csv OPTIONS (path '/etc/passwd')", "paths"),
    ("VACUUM '/w/t'", "paths"),
    ("DESCRIBE HISTORY '/w/t'", "paths"),
    ("CONVERT TO DELTA parquet.`/w/t`", "paths"),
    ("INSERT OVERWRITE DIRECTORY '/tmp/o' USING csv SELECT 1", "locations"),
    ("LOAD DATA INPATH '/x' INTO TABLE x", "locations"),
    ("CREATE TABLE y LIKE t LOCATION '/x'", "locations"),
    ("CREATE TABLE y (a INT) USING delta LOCATION '/x'", "locations"),
    ("CREATE TABLE y (a INT) USING csv OPTIONS ('path' = '/x')", "locations"),
    ("CREATE EXTERNAL TABLE y (a INT) STORED AS PARQUET LOCATION '/x'", "locations"),
    ("CREATE TABLE y USING delta LOCATION '/x' AS SELECT 1 a", "locations"),
    ("CREATE SCHEMA s LOCATION '/x'", "locations"),
    ("ALTER TABLE x SET LOCATION '/x'", "locations"),
    ("ALTER TABLE p ADD PARTITION (b = 1) LOCATION '/x'", "locations"),
    ("ALTER TABLE p SET SERDEPROPERTIES ('path' = '/etc')", "paths"),
    ("CREATE TABLE y USING jdbc OPTIONS (url 'jdbc:derby:x', dbtable 't')", "connections"),
    (f"CREATE TABLE y (a STRING) STORED AS {SYMLINKS}", "administrators"),
    ("ALTER TABLE x SET TBLPROPERTIES ('tidegate.id' = 'x')", "administrators"),
    ("CALL spark_catalog.system.x()", "administrators"),
]


@pytest.fixture(scope="module")
def schema_with_tables(module_session: Session, module_schema: str) -> str:
    for statement in (
        "CREATE TABLE t (a INT, b STRING) USING delta",
        "ALTER TABLE t SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "CREATE TABLE x (a INT) USING delta",
        "CREATE TABLE p (a INT, b INT) USING parquet PARTITIONED BY (b)",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE FUNCTION f() RETURNS INT RETURN (SELECT max(a) FROM t)",
    ):
        module_session.execute(statement)
    return module_schema


@pytest.fixture
def tables(session: Session, schema_with_tables: str) -> str:
    """The schema of tables that no test changes, current in the session, with a temporary view."""
    session.execute(f"USE {schema_with_tables}")
    session.execute("CREATE TEMPORARY VIEW tv AS SELECT * FROM v")
    return schema_with_tables


@pytest.fixture(scope="module")
def surveys(module_session: Session, schema_with_tables: str) -> dict[str, Surveyed]:
    """What the engine says of each of READS."""
    module_session.execute("CREATE TEMPORARY VIEW tv AS SELECT * FROM v")
    return {sql: survey(module_session, sql) for sql, _ in READS}


@pytest.fixture(scope="module")
def ways(module_session: Session, schema_with_tables: str) -> dict[str, set[str]]:
    """The features and paths of each of BEYOND."""
    return {sql: beyond(module_session, sql) for sql, _ in BEYOND}


def test_statements_read_what_they_name_and_what_stands_behind_it(
    surveys: dict[str, Surveyed],
) -> None:
    found = {sql: " ".join(sorted(read(surveyed))) for sql, surveyed in surveys.items()}
    assert found == dict(READS)


def test_a_version_that_the_statement_chooses_is_told(session: Session, tables: str) -> None:
    found = survey(session, "SELECT * FROM t VERSION AS OF 0 JOIN v ON true")
    assert sorted(reading.travelled for reading in found.readings) == [False, True]


def test_ways_beyond_tables_are_told(ways: dict[str, set[str]]) -> None:
    missing = {sql: (want, ways[sql]) for sql, want in BEYOND if want and want not in ways[sql]}
    assert not missing
    assert not {sql: ways[sql] for sql, want in BEYOND if not want and ways[sql]}


def test_what_is_known_only_while_it_runs_is_opaque(session: Session, tables: str) -> None:
    for sql in ("BEGIN SELECT 1; END", "CALL spark_catalog.system.x()"):
        assert survey(session, sql).opaque
    for sql in ("SELECT 1", "EXECUTE IMMEDIATE 'SELECT 1'"):
        assert not survey(session, sql).opaque


@pytest.mark.usefixtures("surveys", "ways")
def test_nothing_of_a_surveyed_statement_is_carried_out(session: Session, tables: str) -> None:
    for sql in (
        "EXECUTE IMMEDIATE 'INSERT INTO x VALUES (1)'",
        "BEGIN INSERT INTO x VALUES (1); DROP TABLE p; END",
    ):
        survey(session, sql)
        beyond(session, sql)
    listed = {row[1] for row in session.rows("SHOW TABLES")}
    assert listed == {"t", "x", "p", "v", "tv"}
    assert session.rows("SELECT count(*) FROM x") == [(0,)]


def test_a_path_is_read_at_its_place(session: Session, tables: str) -> None:
    location = session.rows("DESCRIBE DETAIL t")[0][4]
    [reading] = survey(session, f"SELECT * FROM delta.`{location}`").readings
    assert (reading.name, reading.location) == (None, location)
    session.execute(f"CREATE TABLE copy USING delta LOCATION '{location}'")
    [reading] = survey(session, "SELECT * FROM copy").readings
    assert reading.name is not None
    assert (reading.name.table, reading.location) == ("copy", location)
    session.execute("DROP TABLE copy")


def test_a_query_on_the_system_schema_tells_where_it_mentions_what(
    session: Session, tables: str
) -> None:
    session.execute("CREATE SCHEMA IF NOT EXISTS information_schema")
    session.execute("CREATE TABLE IF NOT EXISTS information_schema.s (a INT) USING delta")
    text = "SELECT '🎉', q.a FROM Information_Schema.S AS q JOIN v ON true"
    mentions = survey(session, text).mentions
    found = [(text[m.start : m.end], m.name.table, m.aliased) for m in mentions]
    assert found == [("Information_Schema.S", "s", True), ("v", "v", False)]
    assert survey(session, "EXPLAIN SELECT * FROM information_schema.s").mentions == ()
    assert survey(session, "SELECT * FROM t").mentions == ()
    session.execute("DROP TABLE information_schema.s")


def test_settings_and_lists_are_told(session: Session, tables: str) -> None:
    of_a_view = "ALTER VIEW v SET TBLPROPERTIES ('view.sqlConfig.spark.jars' = '/x.jar', 'a' = 'b')"
    for act, text in (
        (Act.SET, "SET spark.jars = /x.jar"),
        (Act.SHOW, "SET spark.jars"),
        (Act.SET, "RESET spark.jars"),
        (Act.SET, of_a_view),
    ):
        request = Survey(session_id=session.id, sql=text, features=Features())
        settings = [a for a in session.client.call(request).accesses if a.kind is KIND]
        assert [(each.act, each.name) for each in settings] == [(act, "spark.jars")]


LISTS = {
    "SHOW TABLES": ListingKind.TABLES,
    "SHOW TABLE EXTENDED LIKE '*'": ListingKind.TABLE_EXTENDED,
    "SHOW VIEWS": ListingKind.VIEWS,
    "SHOW SCHEMAS": ListingKind.SCHEMAS,
    "SHOW USER FUNCTIONS": ListingKind.FUNCTIONS,
}


@pytest.mark.parametrize("text", LISTS)
def test_what_is_listed_is_told_by_the_plan(session: Session, text: str) -> None:
    quoted = text.replace("'", "\\'")
    dynamic = f"EXECUTE IMMEDIATE '{quoted}'"
    for whole in (text, dynamic, f"EXECUTE IMMEDIATE '{quoted[:6]}' || '{quoted[6:]}'"):
        assert survey(session, whole).lists is LISTS[text]
    assert survey(session, f"BEGIN {text}; END").lists is None  # its result is that of a query
    assert survey(session, "SELECT 1").lists is None


def test_a_stream_of_files_is_a_path_and_its_functions_count(
    session: Session, tables: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    source = f"STREAM read_files(path => '{tmp_path}/link', format => 'json', schema => 'a INT')"
    for features in (Features(), Features(names=("paths",))):
        request = Survey(session_id=session.id, sql=f"SELECT a FROM {source}", features=features)
        accesses = session.client.call(request).accesses
        assert accesses == (Access(act=Act.READ, kind=ObjectKind.PATH, name=f"file:{tmp_path}/in"),)
    reflecting = f"SELECT reflect('java.lang.System', 'gc') FROM {source}"
    request = Survey(session_id=session.id, sql=reflecting, features=Features(names=("paths",)))
    assert "jar-functions" in {each.catalog for each in session.client.call(request).accesses}


def test_a_statement_is_read_under_its_own_settings(session: Session, tables: str) -> None:
    quoted = 'SELECT a FROM "t"'
    assert read(survey(session, quoted)) == set()
    names = dict.fromkeys(
        ("spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers"), "true"
    )
    assert read(survey(session, quoted, **names)) == {"t"}
