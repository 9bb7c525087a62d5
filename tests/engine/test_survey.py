"""What the engine says of a statement before it runs: what it reads, where it reaches."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Session
from tidegate_server.core.messages.answers import Reach, Surveyed
from tidegate_server.core.messages.requests import Survey

pytestmark = pytest.mark.spark


def survey(session: Session, sql: str, **settings: str) -> Surveyed:
    answer = session.client.call(Survey(session_id=session.id, sql=sql, settings=settings))
    assert isinstance(answer, Surveyed)
    return answer


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

REACHES = [
    ("SELECT * FROM t", None),
    ("ADD JAR '/a.jar'", Reach.RESOURCES),
    ("ADD FILE '/a'", Reach.RESOURCES),
    ("ADD ARCHIVE '/a.zip'", Reach.RESOURCES),
    ("CREATE FUNCTION j AS 'a.B' USING JAR '/a.jar'", Reach.JAR_FUNCTIONS),
    ("CREATE TEMPORARY FUNCTION j AS 'a.B'", Reach.JAR_FUNCTIONS),
    ("SELECT reflect('java.lang.System', 'gc')", Reach.JAR_FUNCTIONS),
    ("SELECT JAVA_METHOD('java.lang.System', 'gc')", Reach.JAR_FUNCTIONS),
    ("CREATE FUNCTION g() RETURNS STRING RETURN reflect('java.lang.System', 'gc')", "jar"),
    ("SELECT TRANSFORM(a) USING 'cat' FROM t", Reach.SCRIPTS),
    ("FROM t MAP a USING 'cat'", Reach.SCRIPTS),
    ("EXPLAIN SELECT TRANSFORM(a) USING 'cat' FROM t", Reach.SCRIPTS),
    ("SELECT * FROM csv.`/etc/passwd`", Reach.PATHS),
    ("SELECT * FROM parquet.`some/where`", Reach.PATHS),
    ("INSERT INTO delta.`/w/t` SELECT 1", Reach.PATHS),
    ("CREATE TEMPORARY VIEW c USING csv OPTIONS (path '/etc/passwd')", Reach.PATHS),
    ("VACUUM '/w/t'", Reach.PATHS),
    ("DESCRIBE HISTORY '/w/t'", Reach.PATHS),
    ("CONVERT TO DELTA parquet.`/w/t`", Reach.PATHS),
    ("INSERT OVERWRITE DIRECTORY '/tmp/o' USING csv SELECT 1", Reach.LOCATIONS),
    ("LOAD DATA INPATH '/x' INTO TABLE x", Reach.LOCATIONS),
    ("CREATE TABLE y LIKE t LOCATION '/x'", Reach.LOCATIONS),
    ("ALTER TABLE x SET SERDEPROPERTIES ('path' = '/etc')", Reach.LOCATIONS),
    ("EXECUTE IMMEDIATE 'SELECT 1'", Reach.UNKNOWN),
    ("BEGIN SELECT 1; END", Reach.UNKNOWN),
    ("CALL spark_catalog.system.x()", Reach.UNKNOWN),
    ("TRUNCATE TABLE IDENTIFIER(lower('X'))", Reach.UNKNOWN),
    ("SELECT * FROM IDENTIFIER(lower('T'))", None),
]

LOCATIONS = [
    ("CREATE TABLE y (a INT) USING delta LOCATION '/x'", ("/x",)),
    ("CREATE TABLE y (a INT) USING csv OPTIONS ('path' = '/x')", ("/x",)),
    ("CREATE EXTERNAL TABLE y (a INT) STORED AS PARQUET LOCATION '/x'", ("/x",)),
    ("CREATE TABLE y USING delta LOCATION '/x' AS SELECT 1 a", ("/x",)),
    ("CREATE SCHEMA s LOCATION '/x'", ("/x",)),
    ("ALTER TABLE x SET LOCATION '/x'", ("/x",)),
    ("ALTER TABLE x ADD PARTITION (a = 1) LOCATION '/x'", ("/x",)),
    ("CREATE TABLE y (a INT) USING delta", ()),
]


@pytest.fixture
def tables(session: Session, schema: str) -> str:
    session.execute(
        "CREATE TABLE t (a INT, b STRING) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    session.execute("CREATE TABLE x (a INT) USING delta")
    session.execute("CREATE VIEW v AS SELECT a FROM t")
    session.execute("CREATE TEMPORARY VIEW tv AS SELECT * FROM v")
    session.execute("CREATE FUNCTION f() RETURNS INT RETURN (SELECT max(a) FROM t)")
    return schema


def test_statements_read_what_they_name_and_what_stands_behind_it(
    session: Session, tables: str
) -> None:
    found = {sql: " ".join(sorted(read(survey(session, sql)))) for sql, _ in READS}
    assert found == dict(READS)


def test_a_version_that_the_statement_chooses_is_told(session: Session, tables: str) -> None:
    found = survey(session, "SELECT * FROM t VERSION AS OF 0 JOIN v ON true")
    assert sorted(reading.travelled for reading in found.readings) == [False, True]


def test_ways_beyond_tables_are_told(session: Session, tables: str) -> None:
    found = {sql: survey(session, sql).reaches for sql, _ in REACHES}
    for sql, reach in REACHES:
        expected = Reach.JAR_FUNCTIONS if reach == "jar" else reach
        assert (expected in found[sql]) if expected else not found[sql], (sql, found[sql])


def test_places_written_in_a_statement_are_told(session: Session, tables: str) -> None:
    assert {sql: survey(session, sql).locations for sql, _ in LOCATIONS} == dict(LOCATIONS)


def test_nothing_of_a_surveyed_statement_is_carried_out(session: Session, tables: str) -> None:
    for sql, _ in (*READS, *LOCATIONS):
        survey(session, sql)
    listed = {row[1] for row in session.rows("SHOW TABLES")}
    assert listed == {"t", "x", "v", "tv"}
    assert session.rows("SELECT count(*) FROM x") == [(0,)]


def test_a_path_is_read_at_its_place(session: Session, tables: str) -> None:
    location = session.rows("DESCRIBE DETAIL t")[0][4]
    [reading] = survey(session, f"SELECT * FROM delta.`{location}`").readings
    assert (reading.name, reading.location) == (None, location)
    session.execute(f"CREATE TABLE copy USING delta LOCATION '{location}'")
    [reading] = survey(session, "SELECT * FROM copy").readings
    assert reading.name is not None
    assert (reading.name.table, reading.location) == ("copy", location)


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
    for text in ("SET spark.jars = /x.jar", "SET spark.jars", "RESET spark.jars"):
        assert survey(session, text).settings == ("spark.jars",)
    of_a_view = "ALTER VIEW v SET TBLPROPERTIES ('view.sqlConfig.spark.jars' = '/x.jar', 'a' = 'b')"
    assert survey(session, of_a_view).settings == ("spark.jars",)
    assert survey(session, "RESET").settings == ()
    for listing in ("SHOW TABLES", "SHOW TABLE EXTENDED LIKE '*'", "SHOW VIEWS"):
        assert survey(session, listing).lists_tables
    assert not survey(session, "SELECT 1").lists_tables


MERGE = "MERGE INTO x USING ({}) s ON x.a = s.a WHEN MATCHED THEN DELETE"
OPTIONS = [
    (MERGE.format("SELECT * FROM t WITH ('fs.x' = 'y')"), "fs.x"),
    ("SELECT * FROM t WITH ('FS.x' = 'y')", "fs.x"),
    ("SELECT * FROM t WITH (fs.x = 'y') q JOIN x WITH ('a.b' = 1)", "a.b fs.x"),
    ("SELECT (SELECT max(a) FROM t WITH ('fs.x' = 'y'))", "fs.x"),
    ("SELECT * FROM x WHERE EXISTS (SELECT 1 FROM t WITH ('fs.x' = 'y'))", "fs.x"),
    ("SELECT * FROM x, LATERAL (SELECT * FROM t WITH ('fs.x' = 'y'))", "fs.x"),
    ("WITH q AS (SELECT * FROM t WITH ('fs.x' = 'y')) SELECT * FROM q", "fs.x"),
    ("WITH q AS (SELECT 1 a) INSERT INTO t WITH ('fs.x' = 'y') SELECT a FROM q", "fs.x"),
    ("INSERT INTO t WITH ('fs.x' = 'y') SELECT 1", "fs.x"),
    ("INSERT INTO x SELECT a FROM t WITH ('fs.x' = 'y')", "fs.x"),
    ("FROM t WITH ('fs.x' = 'y') INSERT INTO x SELECT a", "fs.x"),
    ("DELETE FROM x WHERE a IN (SELECT a FROM t WITH ('fs.x' = 'y'))", "fs.x"),
    ("EXPLAIN SELECT * FROM t WITH ('fs.x' = 'y')", "fs.x"),
    ("CREATE VIEW w AS SELECT * FROM t WITH ('fs.x' = 'y')", "fs.x"),
    ("CREATE TEMPORARY VIEW w AS SELECT * FROM t WITH ('fs.x' = 'y')", "fs.x"),
    ("CACHE TABLE w AS SELECT * FROM t WITH ('fs.x' = 'y')", "fs.x"),
    ("CREATE TABLE y AS SELECT * FROM t WITH ('fs.x' = 'y')", "fs.x"),
    ("CREATE FUNCTION g() RETURNS TABLE RETURN SELECT * FROM t WITH ('fs.x' = 'y')", "fs.x"),
    ("CREATE TABLE y (a INT) USING csv OPTIONS ('fs.x' = 'y', sep ',')", "fs.x sep"),
    ("CREATE TABLE y USING csv OPTIONS ('fs.x' = 'y') AS SELECT 1", "fs.x"),
    ("CREATE TABLE y (a INT) USING csv TBLPROPERTIES ('Option.fs.x' = 'y', 'a.b' = 'c')", "fs.x"),
    ("CREATE OR REPLACE TABLE y USING csv OPTIONS ('fs.x' = 'y') AS SELECT 1", "fs.x"),
    ("CREATE TABLE y (a INT) ROW FORMAT SERDE 's' WITH SERDEPROPERTIES ('fs.x' = 'y')", "fs.x"),
    ("ALTER TABLE t SET TBLPROPERTIES ('option.fs.x' = 'y', 'a.b' = 'c')", "fs.x"),
    ("WITH q AS (SELECT * FROM t) SELECT * FROM q", ""),
]


@pytest.mark.parametrize(("sql", "options"), OPTIONS)
def test_the_options_of_tables_are_told(
    session: Session, tables: str, sql: str, options: str
) -> None:
    assert sorted(survey(session, sql).options) == options.split()


def test_options_can_be_a_location_or_unknown(session: Session, tables: str) -> None:
    assert survey(session, "SELECT * FROM t WITH (path = '/x')").reaches == (Reach.LOCATIONS,)
    by_name = "SELECT * FROM IDENTIFIER(concat('', 't')) WITH ('fs.x' = 'y')"
    assert survey(session, by_name).reaches == (Reach.UNKNOWN,)


def test_a_statement_is_read_under_its_own_settings(session: Session, tables: str) -> None:
    quoted = 'SELECT a FROM "t"'
    assert read(survey(session, quoted)) == set()
    names = dict.fromkeys(
        ("spark.sql.ansi.enabled", "spark.sql.ansi.doubleQuotedIdentifiers"), "true"
    )
    assert read(survey(session, quoted, **names)) == {"t"}
