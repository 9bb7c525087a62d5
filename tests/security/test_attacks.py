"""Attacks of a user without privileges on a real server, and the errors they end with."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as
from tests.support.full_run import FULL

pytestmark = pytest.mark.faults  # the server with authorization

HUSH = "hush"
DENIED = "ACCESS_DENIED"
CATALOG = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
HIVE = "org.apache.hadoop.hive.ql.io"


@pytest.fixture(scope="module")
def server(guarded_server: Server) -> Iterator[Server]:
    run_as(
        guarded_server,
        "ann",
        "CREATE SCHEMA pay",
        "CREATE TABLE pay.salaries AS SELECT 'hush' AS who, 1 AS salary",
        "CREATE MATERIALIZED TABLE pay.totals FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT who, sum(salary) AS total FROM pay.salaries GROUP BY who",
        "CREATE VIEW pay.peek AS SELECT * FROM pay.totals",
    )
    run_as(guarded_server, "bob", "CREATE SCHEMA bob", "CREATE TABLE bob.own AS SELECT 1 AS a")
    yield guarded_server
    run_as(
        guarded_server,
        "root",
        "DROP MATERIALIZED TABLE pay.totals",
        "DROP SCHEMA pay CASCADE",
        "DROP SCHEMA bob CASCADE",
    )


@pytest.fixture(scope="module")
def location(server: Server) -> str:
    rows = run_as(server, "ann", "DESCRIBE EXTENDED pay.totals")
    [found] = [row[1] for row in rows if row[0] == "location"]
    return str(found).removeprefix("file:")


def attack(server: Server, statement: str) -> str:
    """Run a statement as bob; return the error's code, or what it gave."""
    try:
        rows = run_as(server, "bob", *statement.split(" ;; "))
    except tidegate.Error as refused:
        assert HUSH not in str(refused), refused
        return str(refused).partition("]")[0].removeprefix("[")
    return f"done: {rows}"


HOME = "'java.lang.System', 'getProperty', 'user.home'"
PROGRAMS = [
    f"SELECT reflect({HOME})",
    f"SELECT JAVA_METHOD({HOME})",
    f"SELECT try_reflect({HOME})",
    f"SELECT IDENTIFIER('ref' || 'lect')({HOME})",
    f"SELECT IDENTIFIER('ref' || 'lect')({HOME}) FROM bob.own",
    f"INSERT INTO bob.own SELECT length(IDENTIFIER('ref' || 'lect')({HOME}))",
    f"DECLARE v STRING ;; SET VARIABLE v = IDENTIFIER('ref' || 'lect')({HOME})",
    f"DECLARE v STRING DEFAULT IDENTIFIER('REF' || 'LECT')({HOME})",
    (
        "CREATE MATERIALIZED TABLE bob.m FRESHNESS = INTERVAL '1' DAY AS SELECT "
        f"IDENTIFIER('ref' || 'lect')({HOME}) AS x"
    ),
    f"SELECT * FROM IDENTIFIER(reflect({HOME}))",
    f"SELECT * FROM VALUES (reflect({HOME}))",
    f"SELECT * FROM range(length(reflect({HOME})))",
    f"SELECT sum(a) OVER (PARTITION BY reflect({HOME})) FROM bob.own",
    f"SELECT sum(a) OVER w FROM bob.own WINDOW w AS (PARTITION BY reflect({HOME}))",
    f"SELECT sum(a) OVER w FROM bob.own WINDOW w AS (ORDER BY IDENTIFIER('reflect')({HOME}))",
    f"CREATE TEMPORARY FUNCTION f(x STRING DEFAULT reflect({HOME})) RETURNS STRING RETURN x",
    f"CREATE FUNCTION bob.f() RETURNS STRING RETURN IDENTIFIER('ref' || 'lect')({HOME})",
    f"CREATE TEMPORARY FUNCTION f() RETURNS STRING RETURN (SELECT reflect({HOME}))",
    (
        "CREATE TEMPORARY FUNCTION f() RETURNS TABLE(x STRING) "
        "RETURN SELECT TRANSFORM(1) USING 'id' AS (x STRING)"
    ),
    f'EXECUTE IMMEDIATE "SELECT reflect({HOME})"',
    f"EXECUTE IMMEDIATE reflect({HOME})",
    f"BEGIN SELECT reflect({HOME}); END",
    f"EXPLAIN SELECT IDENTIFIER('ref' || 'lect')({HOME})",
    f"CACHE TABLE c AS SELECT IDENTIFIER('ref' || 'lect')({HOME})",
    (
        f"VACUUM bob.own USING INVENTORY (SELECT reflect({HOME}) AS path, 1L AS length, "
        "false AS isDir, 1L AS modificationTime)"
    ),
    "SELECT TRANSFORM(a) USING 'id' FROM bob.own",
    "FROM bob.own MAP a USING 'id' AS x",
    "FROM bob.own REDUCE a USING 'id' AS x",
    "ADD JAR '/tmp/x.jar'",
    "CREATE TEMPORARY FUNCTION f AS 'org.apache.hadoop.hive.ql.udf.UDFLength'",
    "CALL spark_catalog.system.x()",
]
SWITCHED_OFF = [
    f"SET spark.sql.debug.maxToStringFields=0 ;; SELECT reflect({HOME})",
    f"SET spark.sql.maxMetadataStringLength=0 ;; SELECT reflect({HOME})",
    f"SET spark.sql.analyzer.singlePassResolver.enabled=true ;; SELECT reflect({HOME})",
    "SET spark.sql.runSQLOnFiles=true ;; SELECT * FROM csv.`/etc/passwd`",
    "RESET ;; SELECT * FROM IDENTIFIER('csv.`/etc/passwd`')",
    "SET spark.tidegate.gated=false",
    "SET spark.redaction.regex=zzz ;; SET spark.hadoop.fs.s3a.secret.key",
    "SET spark.hadoop.fs.s3a.secret.key",
    "SET spark.hadoop.fs.s3a.endpoint",
    "SET fs.defaultFS=s3a://elsewhere",
    "SET hive.metastore.uris=thrift://elsewhere:9083",
    "SET javax.jdo.option.ConnectionURL=jdbc:derby:elsewhere",
    "EXECUTE IMMEDIATE 'SET spark.sql.runSQLOnFiles=true'",
]
FILES = [
    "SELECT * FROM csv.`/etc/passwd`",
    "SELECT * FROM text.`file:///etc/passwd`",
    "SELECT * FROM IDENTIFIER('csv.`/etc/passwd`')",
    "SELECT * FROM IDENTIFIER('text' || '.`/etc/passwd`')",
    "CREATE TEMPORARY VIEW f USING csv OPTIONS (path '/etc/passwd')",
    "CREATE TABLE bob.f USING csv OPTIONS (path '/etc/passwd')",
    "CREATE TABLE bob.f (x STRING) USING text LOCATION '/etc'",
    "CREATE EXTERNAL TABLE bob.f (x STRING) STORED AS TEXTFILE LOCATION '/etc'",
    "CREATE TABLE bob.f (x STRING) USING text LOCATION 'pay.db/../../../..'",
    "CREATE SCHEMA s LOCATION '/etc'",
    "ALTER TABLE bob.own SET LOCATION '/etc'",
    "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE bob.own",
    "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/out' SELECT 1",
    "INSERT OVERWRITE DIRECTORY '/tmp/out' USING csv SELECT 1",
    (
        f"CREATE TABLE bob.f (x STRING) STORED AS INPUTFORMAT '{HIVE}.SymlinkTextInputFormat' "
        f"OUTPUTFORMAT '{HIVE}.HiveIgnoreKeyTextOutputFormat'"
    ),
    (
        "CREATE TABLE bob.f (x STRING) STORED AS AVRO TBLPROPERTIES "
        "('avro.schema.url' = 'file:///etc/passwd')"
    ),
    (
        "CREATE TABLE bob.f (x STRING) ROW FORMAT SERDE "
        "'org.apache.hadoop.hive.serde2.avro.AvroSerDe' WITH SERDEPROPERTIES "
        "('avro.schema.url' = 'http://169.254.169.254/') STORED AS TEXTFILE"
    ),
    "SELECT from_xml('<a/>', 'b INT', map('rowValidationXSDPath', '/etc/passwd'))",
    "SELECT from_avro(X'00', '\"int\"', map('avroSchemaUrl', 'file:///etc/passwd'))",
    "SELECT from_avro(X'00', '\"int\"', map('avroSchema' || 'Url', 'file:///etc/passwd'))",
    "CREATE TABLE bob.f USING avro OPTIONS (avroSchemaUrl 'file:///etc/passwd')",
    (
        "SELECT * FROM read_kafka(bootstrapServers => '127.0.0.1:1', subscribe => 't', "
        "valueSchemaRegistry => 'http://127.0.0.1:1', valueSubject => 's', valueSchema => 'a INT')"
    ),
    "SELECT * FROM VALUES (from_xml('<a/>', 'b INT', map('rowValid' || 'ationXSDPath', '/etc')))",
    "CREATE TABLE bob.f USING jdbc OPTIONS (url 'jdbc:derby:;databaseName=x', dbtable 't')",
    "CREATE TABLE bob.f USING org.apache.spark.sql.jdbc OPTIONS (url 'jdbc:derby:x', dbtable 't')",
    "CREATE TEMPORARY VIEW f USING jdbc OPTIONS (url 'jdbc:derby:x', query 'VALUES 1')",
    "SELECT * FROM bob.own WITH ('fs.defaultFS' = 's3a://elsewhere')",
    "SELECT * FROM table_changes_by_path('/tmp', 0)",
    "DESCRIBE HISTORY '/tmp'",
    "VACUUM '/tmp'",
]
FOREIGN = [
    "SELECT * FROM pay.totals",
    "SELECT * FROM pay.peek",
    "TABLE pay.totals",
    "SELECT who FROM IDENTIFIER('pay.' || 'totals')",
    "SELECT nope FROM IDENTIFIER('pay.' || 'totals')",
    "SELECT (SELECT max(total) FROM pay.totals)",
    "SELECT * FROM bob.own WHERE EXISTS (SELECT 1 FROM pay.peek)",
    "SELECT * FROM pay.totals VERSION AS OF 0",
    "SELECT * FROM table_changes('pay.totals', 0)",
    "SELECT * FROM table_changes('pay.' || 'totals', 0)",
    "WITH q AS (TABLE pay.totals) SELECT * FROM q",
    "EXECUTE IMMEDIATE 'SELECT * FROM pay.totals'",
    "DECLARE q STRING DEFAULT 'SELECT * FROM pay.totals' ;; EXECUTE IMMEDIATE q",
    "BEGIN SELECT * FROM pay.totals; END",
    "BEGIN DECLARE q STRING DEFAULT 'pay.totals'; SELECT * FROM IDENTIFIER(q); END",
    (
        "VACUUM bob.own USING INVENTORY (SELECT who AS path, 1L AS length, false AS isDir, "
        "1L AS modificationTime FROM pay.totals)"
    ),
    "CREATE FUNCTION bob.f() RETURNS STRING RETURN (SELECT max(who) FROM pay.totals)",
    "CREATE FUNCTION bob.f() RETURNS TABLE RETURN SELECT * FROM pay.peek",
    "CREATE VIEW bob.v AS SELECT * FROM pay.totals",
    "CREATE TABLE bob.c SHALLOW CLONE pay.totals",
    "CREATE TABLE bob.c LIKE pay.totals",
    "CREATE MATERIALIZED TABLE bob.m FRESHNESS = INTERVAL '1' DAY AS TABLE pay.totals",
    "MERGE INTO bob.own USING pay.totals s ON a = s.total WHEN MATCHED THEN DELETE",
    "CACHE TABLE pay.totals",
    "DESCRIBE EXTENDED pay.totals",
    "SELECT * FROM delta.`{location}`",
    "CREATE TABLE bob.l USING delta LOCATION '{location}'",
    "CREATE TABLE bob.l (who STRING) USING parquet LOCATION '{location}/../{last}'",
    "CREATE EXTERNAL TABLE bob.l (who STRING) STORED AS PARQUET LOCATION '{location}*'",
]
LANDED = [
    "SELECT * FROM csv.`{landing}/../secret`",
    "SELECT * FROM csv.`{landing}/link`",
    "SELECT * FROM csv.`{landing}/link/s.csv`",
    "SELECT * FROM csv.`{landing}/*`",
    "SELECT * FROM csv.`{landing}/{in,../secret}`",
    "SELECT * FROM csv.`{landing}/mixed`",
    "SELECT nope FROM csv.`{landing}/mixed`",
    "SELECT nope FROM csv.`{landing}/link`",
    "SELECT nope FROM IDENTIFIER('csv.`{landing}/link`')",
    "SELECT * FROM csv.`{other}`",
    "SELECT * FROM text.`{landing}x`",
    "SELECT * FROM csv.`passwd`",
    "EXECUTE IMMEDIATE 'SELECT * FROM csv.`{other}`'",
    "BEGIN DECLARE q STRING DEFAULT 'csv.`{other}`'; SELECT nope FROM IDENTIFIER(q); END",
    (
        "BEGIN DECLARE q STRING DEFAULT 'csv.`{landing}/link`'; "
        "SELECT * FROM csv.`{landing}/in`; SELECT * FROM IDENTIFIER(q); END"
    ),
    "SELECT * FROM csv.`{landing}/in` JOIN csv.`{other}`",
    "SELECT * FROM csv.`{landing}/in` WITH (path = '{other}')",
    "CREATE TEMPORARY VIEW f USING csv OPTIONS (path '{landing}/link')",
    "CREATE TEMPORARY VIEW f USING csv OPTIONS (PATH '{other}')",
    "CREATE TEMPORARY VIEW f USING csv OPTIONS (paths '[\"{other}\"]')",
    "CREATE TABLE bob.f (x STRING) USING csv LOCATION '{landing}/in'",
    "CREATE TABLE bob.f (x STRING) USING csv OPTIONS (path '{landing}/in')",
    "CREATE TABLE delta.`{landing}/new` (x STRING) USING delta",
    "CREATE SCHEMA s LOCATION '{landing}/s'",
    "ALTER TABLE bob.own SET LOCATION '{landing}/in'",
    "INSERT OVERWRITE DIRECTORY '{landing}/in' USING csv SELECT 1",
    (
        "BEGIN SELECT * FROM csv.`{landing}/in`; EXECUTE IMMEDIATE "
        "'INSERT OVERWRITE DIRECTORY \\'{landing}/in\\' USING csv SELECT 1'; END"
    ),
    "INSERT INTO delta.`{landing}/anns` VALUES ('x')",
    "SELECT * FROM delta.`{landing}/anns`",
    "SELECT * FROM parquet.`{landing}/anns/*`",
    "VACUUM '{landing}/anns'",
    (
        "CREATE MATERIALIZED TABLE bob.f FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT * FROM csv.`{landing}/link`"
    ),
    (
        "CREATE MATERIALIZED TABLE bob.f FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM STREAM "
        "read_files('{landing}/../secret', format => 'text', schema => 'x STRING')"
    ),
    "CREATE EXTERNAL LOCATION all URL '/'",
    "ALTER EXTERNAL LOCATION landing SET URL '/'",
    "ALTER EXTERNAL LOCATION landing OWNER TO USER bob",
    "DROP EXTERNAL LOCATION landing",
    "DESCRIBE EXTERNAL LOCATION other",
    "GRANT READ FILES ON EXTERNAL LOCATION landing TO PUBLIC",
]
CONNECTED = [
    "SELECT * FROM crm.APP.LEADS",
    "SELECT nope FROM crm.APP.LEADS",
    "SELECT * FROM IDENTIFIER('crm.APP.' || 'LEADS')",
    "SELECT (SELECT max(who) FROM crm.APP.LEADS)",
    "EXECUTE IMMEDIATE 'SELECT * FROM crm.APP.LEADS'",
    "BEGIN DECLARE q STRING DEFAULT 'crm.APP.LEADS'; SELECT nope FROM IDENTIFIER(q); END",
    "CREATE VIEW bob.f AS SELECT * FROM crm.APP.LEADS",
    "CREATE MATERIALIZED TABLE bob.f FRESHNESS = INTERVAL '1' DAY AS TABLE crm.APP.LEADS",
    "CREATE FUNCTION bob.f() RETURNS STRING RETURN (SELECT max(who) FROM crm.APP.LEADS)",
    "USE crm",
    "SET CATALOG crm ;; SELECT * FROM APP.LEADS",
    "SET CATALOG IDENTIFIER('c' || 'rm')",
    "SHOW TABLES IN crm.APP",
    "SHOW SCHEMAS IN crm",
    "DESCRIBE crm.APP.LEADS",
    "INSERT INTO crm.APP.LEADS VALUES ('x')",
    "CREATE TABLE crm.APP.MINE (a INT)",
    "DROP TABLE crm.APP.LEADS",
    "CREATE SCHEMA crm.mine",
    "CACHE TABLE c AS SELECT * FROM crm.APP.LEADS",
    "DESCRIBE CONNECTION crm",
    "SET spark.sql.catalog.crm.url",
    "SET spark.sql.catalog.crm.password",
    f"SET spark.sql.catalog.mine={CATALOG}",
    "CREATE CONNECTION mine TYPE jdbc OPTIONS (url 'jdbc:derby:memory:crm', driver 'x')",
    "ALTER CONNECTION crm SET OPTIONS (url 'jdbc:derby:memory:mine')",
    "ALTER CONNECTION crm RENAME TO mine",
    "DROP CONNECTION crm",
    "GRANT USE CONNECTION ON CONNECTION crm TO USER bob",
]
RESERVED = [
    "ALTER TABLE bob.own SET TBLPROPERTIES ('tidegate.id' = 'x')",
    "ALTER TABLE pay.salaries SET TBLPROPERTIES ('Tidegate.Id' = 'x')",
    "CREATE TABLE bob.r (a INT) TBLPROPERTIES ('tidegate.definition' = 'x')",
    "CREATE VIEW bob.r TBLPROPERTIES ('tidegate.quarantine-of' = 'x') AS SELECT 1 AS a",
    "EXECUTE IMMEDIATE 'ALTER TABLE bob.own SET TBLPROPERTIES (\\'tidegate.id\\' = \\'x\\')'",
    "BEGIN ALTER TABLE bob.own SET TBLPROPERTIES ('tidegate.id' = 'x'); END",
]


@pytest.fixture(scope="module")
def landing(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An external location whose files bob may read, beside one of others."""
    folder = tmp_path_factory.mktemp("files")
    landing, other, secret = folder / "landing", folder / "other", folder / "secret"
    for each in (landing / "in", landing / "mixed", other, secret):
        each.mkdir(parents=True)
        (each / "s.csv").write_text("fine" if each == landing / "in" else HUSH)
    (landing / "mixed" / "s.csv").unlink()
    (landing / "mixed" / "s.csv").symlink_to(secret / "s.csv")
    (landing / "link").symlink_to(secret)
    run_as(
        server,
        "root",
        f"CREATE EXTERNAL LOCATION landing URL '{landing}'",
        f"CREATE EXTERNAL LOCATION other URL '{other}'",
        "GRANT CREATE EXTERNAL TABLE ON EXTERNAL LOCATION landing TO USER ann",
        "GRANT READ FILES ON EXTERNAL LOCATION landing TO USER bob",
    )
    run_as(
        server,
        "ann",
        f"CREATE TABLE pay.landed USING delta LOCATION '{landing}/anns' AS SELECT 'hush' AS who",
    )
    assert run_as(server, "bob", f"SELECT * FROM csv.`{landing}/in`") == [("fine",)]
    yield landing
    run_as(server, "root", "DROP EXTERNAL LOCATION landing", "DROP EXTERNAL LOCATION other")


@pytest.fixture(scope="module")
def connection(server: Server) -> Iterator[str]:
    """A connection to a database in memory, in which a user without its privilege finds nothing."""
    options = (
        "url 'jdbc:derby:memory:crm;create=true', driver 'org.apache.derby.jdbc.EmbeddedDriver'"
    )
    run_as(
        server,
        "root",
        f"CREATE CONNECTION crm TYPE jdbc OPTIONS ({options}, password secret('crm'))",
        "CREATE TABLE crm.APP.LEADS AS SELECT 'hush' AS who",
    )
    yield "crm"
    run_as(server, "root", "DROP CONNECTION crm")


@pytest.mark.parametrize(
    "attacks", [PROGRAMS, SWITCHED_OFF, FILES, FOREIGN, LANDED, CONNECTED, RESERVED]
)
def test_a_user_without_privileges_gets_nothing(
    server: Server, location: str, landing: Path, connection: str, attacks: list[str]
) -> None:
    places = {
        "{location}": location,
        "{last}": Path(location).name,
        "{landing}": str(landing),
        "{other}": str(landing.parent / "other"),
    }
    texts = list(attacks)
    for name, place in places.items():
        texts = [text.replace(name, place) for text in texts]
    outcomes = {text: attack(server, text) for text in texts}
    # A name computed from a path is a name, and no such table exists.
    refused = (DENIED, "TABLE_OR_VIEW_NOT_FOUND", "DELTA_UNSUPPORTED_EXPRESSION")
    let_through = {t: o for t, o in outcomes.items() if not o.startswith(refused)}
    assert not let_through
    assert run_as(server, "ann", "SELECT * FROM pay.totals") == [(HUSH, 1)]
    assert run_as(server, "root", "SHOW TABLES IN bob") == [("bob", "own", False)]
    assert run_as(server, "root", "SELECT * FROM crm.APP.LEADS") == [(HUSH,)]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_an_administrator_takes_apart_what_is_marked_wrongly(server: Server, kind: str) -> None:
    making = "USING delta AS SELECT 1 AS a" if kind == "TABLE" else "AS SELECT 1 AS a"
    mark = f"ALTER {kind} bob.stray SET TBLPROPERTIES ('tidegate.id' = 'x')"
    drop = f"DROP {kind} bob.stray"
    release = "ALTER MATERIALIZED TABLE bob.stray CONVERT TO TABLE"
    run_as(server, "bob", f"CREATE {kind} bob.stray {making}")
    run_as(server, "root", mark)
    for user, statement, hint in (
        ("bob", drop, "DROP MATERIALIZED TABLE"),
        ("root", drop, "DROP MATERIALIZED TABLE"),
        ("bob", release, "An administrator can remove them"),
    ):
        with pytest.raises(tidegate.Error, match="MT_WRONG_KIND") as caught:
            run_as(server, user, statement)
        assert hint in str(caught.value.hint)
    run_as(server, "root", release, drop)
    assert run_as(server, "root", "SHOW TABLES IN bob") == [("bob", "own", False)]


def test_a_name_that_changes_between_look_and_run_opens_nothing(server: Server) -> None:
    """The view in the query exists only at times, so that some looks cannot be analyzed."""
    done = threading.Event()

    def flicker() -> None:
        with closing(server.connect(user="bob")) as connection, closing(connection.cursor()) as c:
            while not done.is_set():
                c.execute("CREATE OR REPLACE VIEW bob.late AS SELECT 1 AS one")
                c.execute("DROP VIEW bob.late")

    other = threading.Thread(target=flicker)
    other.start()
    query = "SELECT who FROM IDENTIFIER('pay.' || 'totals') CROSS JOIN bob.late"
    try:
        outcomes = {attack(server, query) for _ in range(60 if FULL else 20)}
    finally:
        done.set()
        other.join()
    assert outcomes <= {DENIED, "TABLE_OR_VIEW_NOT_FOUND"}


def test_a_refresh_reads_with_its_executors_privileges_of_that_moment(server: Server) -> None:
    """A view is redefined over a table that the table's owner may not read."""
    run_as(
        server,
        "ann",
        "CREATE VIEW pay.harmless AS SELECT 'x' AS who, 1 AS total",
        "GRANT SELECT ON MATERIALIZED TABLE pay.totals TO USER carl",
        "GRANT SELECT ON VIEW pay.harmless TO USER bob",
    )
    reads = "FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM pay."
    run_as(server, "bob", f"CREATE MATERIALIZED TABLE bob.through {reads}harmless")
    run_as(server, "carl", "CREATE SCHEMA carl", f"CREATE MATERIALIZED TABLE carl.t {reads}totals")
    run_as(
        server,
        "ann",
        "CREATE OR REPLACE VIEW pay.harmless AS SELECT * FROM pay.totals",
        "REVOKE SELECT ON MATERIALIZED TABLE pay.totals FROM USER carl",
    )
    for user, table in (("bob", "bob.through"), ("carl", "carl.t")):
        for text in (
            f"ALTER MATERIALIZED TABLE {table} REFRESH FULL",
            f"VERIFY MATERIALIZED TABLE {table}",
            f"EXPLAIN ALTER MATERIALIZED TABLE {table} REFRESH",
        ):
            with pytest.raises(tidegate.Error, match="ACCESS_DENIED") as refused:
                pytest.fail(f"{user}: {text}: {run_as(server, user, text)}")
            assert HUSH not in str(refused.value)
    run_as(server, "ann", "INSERT INTO pay.salaries VALUES ('hush', 2)")
    inline = "SET 'materialized-table.read.max-staleness' = '1 s INLINE'"
    time.sleep(2)  # so that carl's table is stale
    with pytest.raises(tidegate.Error, match="ACCESS_DENIED"):
        run_as(server, "carl", inline, "SELECT * FROM carl.t")
    assert run_as(server, "bob", "SELECT * FROM bob.through") == [("x", 1)]
    run_as(
        server,
        "root",
        "DROP MATERIALIZED TABLE bob.through",
        "DROP MATERIALIZED TABLE carl.t",
        "DROP SCHEMA carl",
        "DROP VIEW pay.harmless",
    )


def test_views_and_functions_read_with_their_owners_privileges(server: Server) -> None:
    count = "(SELECT count(*) FROM pay.salaries)"
    run_as(
        server,
        "ann",
        "CREATE VIEW pay.counted AS SELECT count(*) AS c FROM pay.salaries",
        f"CREATE OR REPLACE FUNCTION pay.counting() RETURNS BIGINT RETURN {count}",
        f"CREATE OR REPLACE FUNCTION pay.counting() RETURNS BIGINT RETURN {count}",
        "GRANT SELECT ON VIEW pay.counted TO USER bob",
        "GRANT EXECUTE ON FUNCTION pay.counting TO USER bob",
    )
    reads = ("SELECT c FROM pay.counted", "SELECT pay.counting()")
    for text in reads:
        assert run_as(server, "bob", text) == run_as(server, "ann", text)
        assert attack(server, f"{text} UNION ALL SELECT salary FROM pay.salaries") == DENIED
    assert attack(server, "CREATE OR REPLACE VIEW pay.counted AS SELECT 1 AS c") == DENIED
    assert attack(server, "ALTER VIEW pay.counted AS SELECT 1 AS c") == DENIED
    assert attack(server, "DROP FUNCTION pay.counting") == DENIED
    run_as(server, "bob", "CREATE VIEW bob.through AS SELECT c FROM pay.counted")
    run_as(server, "ann", "REVOKE SELECT ON VIEW pay.counted FROM USER bob")
    assert attack(server, "SELECT c FROM bob.through") == DENIED
    run_as(server, "ann", "DROP VIEW pay.counted", "DROP FUNCTION pay.counting")
    run_as(server, "root", "DROP VIEW bob.through")


def test_a_user_is_the_current_user(server: Server) -> None:
    assert run_as(server, "bob", "SELECT current_user(), session_user()") == [("bob", "bob")]
    run_as(
        server,
        "bob",
        "CREATE MATERIALIZED TABLE bob.me FRESHNESS = INTERVAL '1' DAY AS SELECT "
        "current_user() AS me",
    )
    run_as(server, "root", "ALTER MATERIALIZED TABLE bob.me REFRESH FULL")
    assert run_as(server, "bob", "SELECT me FROM bob.me") == [("bob",)]
    run_as(server, "bob", "DROP MATERIALIZED TABLE bob.me")
