"""What may not be done to a materialized table, however it is named, and what a statement reads."""

from __future__ import annotations

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Stored
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.engine.statement.guard import disown, guard
from tidegate_server.engine.statement.targets import NewTarget, PathTarget, TableTarget, targets

pytestmark = pytest.mark.spark

REFUSED = """
INSERT INTO mt VALUES (1, 'x')
INSERT INTO MT (k, v) SELECT 1, 'x'
INSERT OVERWRITE TABLE {schema}.mt SELECT 1, 'x'
INSERT INTO spark_catalog.{schema}.mt REPLACE WHERE k = 1 SELECT 1, 'x'
INSERT INTO delta.`{path}` VALUES (1, 'x')
INSERT INTO spark_catalog.delta.`{path}` VALUES (1, 'x')
INSERT INTO DELTA.`file:{path}` VALUES (1, 'x')
INSERT INTO delta.`{path}/../{path.name}` VALUES (1, 'x')
INSERT OVERWRITE parquet.`{path}/part` SELECT 1
INSERT OVERWRITE DIRECTORY '{path}' USING parquet SELECT 1
INSERT OVERWRITE DIRECTORY '{path}/k=1' USING parquet SELECT 1
INSERT OVERWRITE DIRECTORY '{parent}' USING parquet SELECT 1
INSERT OVERWRITE LOCAL DIRECTORY '{parent}' STORED AS parquet SELECT 1
INSERT INTO IDENTIFIER('{schema}.' || 'mt') VALUES (1, 'x')
INSERT INTO IDENTIFIER(chosen) VALUES (1, 'x')
INSERT INTO tv VALUES (1, 'x')
INSERT INTO placed VALUES (1, 'x')
INSERT INTO alias VALUES (1, 'x')
FROM p INSERT INTO p SELECT * INSERT INTO mt SELECT *
WITH q AS (SELECT 1, 'x') INSERT INTO mt SELECT * FROM q
/* c */ -- d
    INSERT INTO mt VALUES (1, 'x')
DELETE FROM mt
DELETE FROM mt AS m WHERE m.k = 1
DELETE FROM v WHERE k = 1
DELETE FROM tv WHERE k = 1
UPDATE mt SET k = 2
UPDATE shown SET k = 2
MERGE INTO mt USING p ON mt.k = p.k WHEN MATCHED THEN DELETE
MERGE INTO tv AS m USING p ON m.k = p.k WHEN MATCHED THEN DELETE
MERGE INTO IDENTIFIER('mt') USING p ON true WHEN MATCHED THEN DELETE
TRUNCATE TABLE mt
DROP TABLE mt
DROP TABLE IF EXISTS mt PURGE
DROP TABLE IDENTIFIER('mt')
DROP TABLE delta.`{path}`
DROP VIEW shown
ALTER VIEW shown AS SELECT 1 AS k
ALTER VIEW shown RENAME TO other
ALTER TABLE mt RENAME TO other
ALTER TABLE mt SET TBLPROPERTIES ('a' = 'b')
ALTER TABLE mt UNSET TBLPROPERTIES ('tidegate.id')
ALTER TABLE mt ADD COLUMN x INT
ALTER TABLE mt DROP COLUMN v
ALTER TABLE mt RENAME COLUMN v TO w
ALTER TABLE mt ALTER COLUMN k TYPE BIGINT
ALTER TABLE mt REPLACE COLUMNS (k INT)
ALTER TABLE mt ADD CONSTRAINT c CHECK (k > 0)
ALTER TABLE mt CLUSTER BY (k)
ALTER TABLE mt DROP FEATURE deletionVectors
ALTER TABLE mt SET LOCATION '/elsewhere'
ALTER TABLE p SET LOCATION '{path}'
COMMENT ON TABLE mt IS 'x'
ANALYZE TABLE mt COMPUTE STATISTICS
ANALYZE TABLE mt COMPUTE STATISTICS FOR ALL COLUMNS
MSCK REPAIR TABLE mt
LOAD DATA INPATH '/x' INTO TABLE mt
LOAD DATA INPATH '{path}/part.parquet' INTO TABLE p
CREATE OR REPLACE TABLE mt AS SELECT 1
CREATE OR REPLACE TABLE mt (a INT) USING delta
REPLACE TABLE mt (a INT) USING delta
CREATE OR REPLACE TABLE delta.`{path}` (a INT) USING delta
CREATE OR REPLACE VIEW shown AS SELECT 1
CREATE TABLE other USING delta LOCATION '{path}'
CREATE TABLE other (k INT) USING parquet LOCATION '{path}/deeper'
CREATE TABLE other USING delta OPTIONS (path '{path}')
CREATE TABLE other LIKE p LOCATION '{path}'
CREATE TABLE delta.`{path}` (k INT) USING delta
CREATE TABLE other USING delta LOCATION '{path}' AS SELECT 1
CREATE OR REPLACE TABLE mt SHALLOW CLONE p
CREATE TABLE other SHALLOW CLONE p LOCATION '{path}'
CONVERT TO DELTA parquet.`{path}`
RESTORE TABLE mt TO VERSION AS OF 0
RESTORE delta.`{path}` TO VERSION AS OF 0
OPTIMIZE mt
OPTIMIZE '{path}'
OPTIMIZE delta.`{path}` WHERE k = 1
VACUUM mt RETAIN 1000 HOURS
VACUUM '{path}'
REORG TABLE mt APPLY (PURGE)
GENERATE symlink_format_manifest FOR TABLE mt
SHOW CREATE TABLE mt
EXECUTE IMMEDIATE 'DROP TABLE mt'
EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE ''DROP TABLE mt'''
EXECUTE IMMEDIATE statement
EXECUTE IMMEDIATE 'DELETE FROM mt WHERE k = ?' USING 1
EXECUTE IMMEDIATE 'DELETE FROM IDENTIFIER(:t)' USING 'mt' AS t
EXECUTE IMMEDIATE 'DELETE FROM IDENTIFIER(?)' USING chosen
EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE ''TRUNCATE TABLE IDENTIFIER(?)'' USING ''mt'''
EXECUTE IMMEDIATE upper('drop table mt')
BEGIN EXECUTE IMMEDIATE 'DELETE FROM mt WHERE k = ?' USING 1; END
BEGIN EXECUTE IMMEDIATE 'DROP TABLE ' || 'mt'; END
BEGIN INSERT INTO mt VALUES (1, 'x'); END
BEGIN DECLARE n INT; IF n = 1 THEN SELECT 1; ELSE DROP TABLE mt; END IF; END
BEGIN WHILE 1 = 1 DO DELETE FROM mt; END WHILE; END
BEGIN FOR x AS SELECT k FROM p DO TRUNCATE TABLE mt; END FOR; END
BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN DROP TABLE mt; END; SELECT 1; END
DROP SCHEMA {schema} CASCADE
DROP DATABASE IF EXISTS spark_catalog.{schema} CASCADE
"""

ALLOWED = """
SELECT * FROM mt
WITH q AS (SELECT * FROM mt) SELECT * FROM q
SELECT 'INSERT INTO mt VALUES (1)'
INSERT INTO p SELECT * FROM mt
INSERT INTO p SELECT * FROM delta.`{path}`
INSERT OVERWRITE DIRECTORY '{parent}/elsewhere' USING parquet SELECT * FROM mt
CREATE TABLE other AS SELECT * FROM mt
CREATE TABLE mt (k INT)
CREATE TABLE IF NOT EXISTS mt (k INT)
CREATE TABLE other SHALLOW CLONE mt
CREATE OR REPLACE TABLE p AS SELECT * FROM mt
CREATE OR REPLACE VIEW v AS SELECT * FROM mt
CREATE OR REPLACE TEMPORARY VIEW mt AS SELECT 1
DROP VIEW v
DROP VIEW tv
ALTER VIEW v AS SELECT 1
MERGE INTO p USING mt ON p.k = mt.k WHEN MATCHED THEN DELETE
DELETE FROM p WHERE k IN (SELECT k FROM mt)
UPDATE p SET k = 2
DROP TABLE p
DROP TABLE nowhere
DROP TABLE a.b.c.d
DROP SCHEMA nowhere CASCADE
ALTER TABLE p RENAME TO q
OPTIMIZE p
EXPLAIN INSERT INTO mt VALUES (1, 'x')
EXPLAIN DELETE FROM mt
DESCRIBE mt
DESCRIBE EXTENDED mt
DESCRIBE HISTORY mt
DESCRIBE DETAIL delta.`{path}`
SHOW TBLPROPERTIES mt
SHOW COLUMNS IN mt
SHOW CREATE TABLE p
REFRESH TABLE mt
CACHE TABLE mt
UNCACHE TABLE mt
ANALYZE TABLE p COMPUTE STATISTICS
SET x = 1
EXECUTE IMMEDIATE 'DELETE FROM p WHERE k = :k' USING 1 AS k
BEGIN DECLARE s STRING DEFAULT 'mt'; SELECT * FROM IDENTIFIER(s); END
BEGIN DECLARE n INT DEFAULT 1; INSERT INTO p VALUES (n, 'x'); END
BEGIN EXECUTE IMMEDIATE 'SELECT ?' USING 1; END
USE default
"""


@pytest.fixture(scope="module")
def mt(module_lake: Lake) -> Stored:
    """A materialized table with everything through which one might get at it; nothing does."""
    lake = module_lake
    stored = Stored(lake, "SELECT 1 AS k, 'x' AS v")
    path = lake.path("mt")
    lake.sql(
        "CREATE TABLE p (k INT, v STRING) USING delta",
        "CREATE VIEW v AS SELECT * FROM mt",
        "CREATE TEMPORARY VIEW tv AS SELECT * FROM mt",
        f"CREATE TEMPORARY VIEW placed USING delta OPTIONS (path '{path}')",
        "CREATE VIEW below AS SELECT k, v FROM v",
        "CREATE TEMPORARY VIEW alias AS SELECT * FROM below",
        f"CREATE VIEW shown TBLPROPERTIES ('tidegate.id' = '{stored.id}') AS SELECT * FROM p",
        "DECLARE OR REPLACE VARIABLE chosen STRING DEFAULT 'mt'",
        "DECLARE OR REPLACE VARIABLE statement STRING DEFAULT 'DELETE FROM mt'",
    )
    return stored


def statements_in(lake: Lake, text: str) -> list[str]:
    """Return the statements of a list with the places of this test."""
    path = lake.path("mt")
    lines = text.strip().replace("\n    ", "\f").split("\n")
    return [
        line.replace("\f", "\n").format(schema=lake.schema, path=path, parent=path.parent)
        for line in lines
    ]


def refusal(lake: Lake, sql: str) -> ServerError | None:
    try:
        guard(lake.session, sql)
    except ServerError as refused:
        return refused
    return None


def test_no_statement_changes_a_materialized_table(mt: Stored) -> None:
    answers = {sql: refusal(mt.lake, sql) for sql in statements_in(mt.lake, REFUSED)}
    passed = [sql for sql, answer in answers.items() if answer is None]
    assert passed == []
    others = {sql: str(a) for sql, a in answers.items() if a and a.code != "MT_WRONG_KIND"}
    assert others == {}
    assert {a.sqlstate for a in answers.values() if a} == {"42809"}


def test_statements_on_other_tables_pass(mt: Stored) -> None:
    answers = {sql: refusal(mt.lake, sql) for sql in statements_in(mt.lake, ALLOWED)}
    assert {sql: str(answer) for sql, answer in answers.items() if answer} == {}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("INSERT INTO mt VALUES (1)", "ALTER MATERIALIZED TABLE {mt} REFRESH"),
        ("DROP TABLE mt", "Use DROP MATERIALIZED TABLE {mt}."),
        ("ALTER TABLE mt ADD COLUMN x INT", "ALTER MATERIALIZED TABLE {mt} AS query"),
        ("ALTER TABLE mt ADD COLUMNS (x INT, y INT)", "ALTER MATERIALIZED TABLE {mt} AS query"),
        ("ALTER TABLE mt DROP COLUMN v", "ALTER MATERIALIZED TABLE {mt} DROP column"),
        ("ALTER TABLE mt ALTER COLUMN k TYPE BIGINT", "Use ALTER MATERIALIZED TABLE {mt} MODIFY"),
        ("ALTER TABLE mt SET TBLPROPERTIES ('a' = 'b')", "{mt} SET ('key' = 'value')."),
        ("ALTER TABLE mt UNSET TBLPROPERTIES ('a')", "{mt} RESET ('key')."),
        ("ALTER TABLE mt RENAME TO other", "Use ALTER MATERIALIZED TABLE {mt} RENAME TO name."),
        ("ALTER TABLE mt ADD CONSTRAINT c CHECK (k > 0)", "CONSTRAINT name EXPECT (condition)"),
        ("ALTER TABLE mt CLUSTER BY (k)", "ADD DISTRIBUTION BY (column)"),
        ("ALTER TABLE mt SET LOCATION '/elsewhere'", "Use ALTER MATERIALIZED TABLE {mt}."),
        ("COMMENT ON TABLE mt IS 'x'", "CREATE OR ALTER MATERIALIZED TABLE {mt} with the COMMENT"),
        ("RESTORE TABLE mt TO VERSION AS OF 0", "{mt} ROLLBACK TO VERSION n."),
        ("OPTIMIZE mt", "materialized-table.upkeep.small-files says when"),
        ("VACUUM mt RETAIN 0 HOURS", "materialized-table.upkeep.retention says how long"),
        ("SHOW CREATE TABLE mt", "Use SHOW CREATE MATERIALIZED TABLE {mt}."),
        ("DROP SCHEMA {schema} CASCADE", "Drop them first: {mt}"),
    ],
)
def test_the_refusal_names_the_statement_to_use(mt: Stored, sql: str, hint: str) -> None:
    refused = refusal(mt.lake, sql.format(schema=mt.lake.schema))
    assert refused is not None
    assert hint.format(mt=mt.name) in refused.hint


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("-- gone\n DROP TABLE mt", (2, 2)),
        ("INSERT INTO mt VALUES (1, 'x')", (1, 13)),
        ("/* '🎉' */ DELETE FROM mt", (1, 23)),
        ("ALTER TABLE mt ADD COLUMN x INT", (1, 13)),
        ("CREATE OR REPLACE TABLE mt (a INT) USING delta", (1, 25)),
        ("BEGIN SELECT 1; TRUNCATE TABLE mt; END", (1, 32)),
        ("EXECUTE IMMEDIATE 'DROP TABLE mt'", (None, None)),
    ],
)
def test_the_refusal_says_where_the_table_is_named(
    mt: Stored, sql: str, place: tuple[int | None, int | None]
) -> None:
    refused = refusal(mt.lake, sql)
    assert refused is not None
    assert (refused.line, refused.column) == place


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE copy SHALLOW CLONE mt",
        "CREATE TABLE copy SHALLOW CLONE delta.`{path}`",
        "CREATE TABLE copy LIKE mt",
        "CREATE TABLE {schema}.copy LIKE {schema}.mt USING delta",
        "CREATE OR REPLACE TABLE p SHALLOW CLONE mt",
        "BEGIN CREATE TABLE copy LIKE mt; END",
        "EXECUTE IMMEDIATE 'CREATE TABLE copy SHALLOW CLONE mt'",
    ],
)
def test_a_copy_of_a_materialized_table_is_a_plain_table(lake: Lake, sql: str) -> None:
    Stored(lake, "SELECT 1 AS k, 'x' AS v")
    lake.sql("CREATE TABLE p (k INT, v STRING) USING delta")
    text = sql.format(schema=lake.schema, path=lake.path("mt"))
    copies = guard(lake.session, text).copies
    lake.sql(text)
    disown(lake.session, copies)
    name = "p" if " p " in sql else "copy"
    assert copies in ((("copy",),), (("p",),), ((lake.schema, "copy"),))
    for change in (f"INSERT INTO {name} VALUES (1, 'x')", f"DROP TABLE {name}"):
        assert refusal(lake, change) is None
        lake.sql(change)
    assert refusal(lake, "DROP TABLE mt") is not None


def test_a_script_drops_no_schema(lake: Lake) -> None:
    refused = refusal(lake, f"BEGIN DROP SCHEMA {lake.schema}; END")
    assert refused is not None
    assert refused.code == Code.NOT_SUPPORTED.name


def test_a_copy_that_is_not_made_disowns_nothing(mt: Stored) -> None:
    assert guard(mt.lake.session, "CREATE TABLE IF NOT EXISTS mt LIKE mt").copies == ()
    assert guard(mt.lake.session, "CREATE TABLE other LIKE p").copies == ()
    disown(mt.lake.session, (("nowhere",),))


def test_a_storage_is_called_by_the_name_of_its_table(lake: Lake) -> None:
    Stored(lake, "SELECT 1 AS k", table="__tidegate_seen")
    refused = refusal(lake, "DELETE FROM __tidegate_seen")
    assert refused is not None
    assert refused.message.startswith(f"spark_catalog.{lake.schema}.seen is a materialized table")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("BEGIN DECLARE s STRING; EXECUTE IMMEDIATE s; END", "NOT_SUPPORTED"),
        ("BEGIN SET harmless = 'DROP TABLE mt'; EXECUTE IMMEDIATE harmless; END", "NOT_SUPPORTED"),
        ("BEGIN DECLARE n INT; EXECUTE IMMEDIATE 'SELECT ?' USING n; END", "NOT_SUPPORTED"),
        ("EXECUTE IMMEDIATE if(rand() < 0.5, 'SELECT 1', 'DROP TABLE mt')", "NOT_SUPPORTED"),
        ("EXECUTE IMMEDIATE 'SELECT ?' USING rand()", "NOT_SUPPORTED"),
        ("BEGIN SET other = 'mt'; DELETE FROM IDENTIFIER(other); END", "NOT_SUPPORTED"),
        ("BEGIN DECLARE other STRING; DROP TABLE IDENTIFIER(other); END", "NOT_SUPPORTED"),
        (
            "BEGIN DECLARE s STRING; ALTER TABLE IDENTIFIER(s) ADD COLUMN x INT; END",
            "NOT_SUPPORTED",
        ),
    ],
)
def test_what_only_a_script_or_chance_knows_is_refused(mt: Stored, sql: str, code: str) -> None:
    mt.lake.sql(
        "DECLARE OR REPLACE VARIABLE harmless STRING DEFAULT 'SELECT 1'",
        "DECLARE OR REPLACE VARIABLE other STRING DEFAULT 'p'",
    )
    refused = refusal(mt.lake, sql)
    assert refused is not None
    assert refused.code == code
    assert refused.hint


def test_a_setting_in_a_name_is_followed(mt: Stored) -> None:
    mt.lake.sql("SET x.y = mt")
    assert refusal(mt.lake, "DELETE FROM ${x.y}") is not None


def test_targets_are_told_without_looking_them_up(lake: Lake) -> None:
    found = list(targets(lake.session, "INSERT INTO a.b.c SELECT 1"))
    assert found == [TableTarget(action="INSERT", name=("a", "b", "c"), rows=True)]
    found = list(targets(lake.session, "CREATE TABLE x (a INT) USING delta LOCATION '/y'"))
    assert found == [NewTarget(name=("x",)), PathTarget(action="CREATE TABLE", path="/y")]
