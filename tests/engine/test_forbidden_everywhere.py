"""Each forbidden thing, in each place of the grammar where one of its kind can be."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import product

import pytest

from tests.engine.conftest import Session
from tests.support.full_run import FULL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import Survey
from tidegate_server.core.model.access import Access, Act, Admission, Features, ObjectKind

pytestmark = pytest.mark.spark

HOME = "'java.lang.System', 'getProperty', 'user.home'"
EXPRESSIONS = {
    "reflection": f"reflect({HOME})",
    "computed name": f"IDENTIFIER('ref' || 'lect')({HOME})",
    "schema of XML": "schema_of_xml('<a/>', map('rowValidationXSDPath', '/etc/passwd'))",
    "foreign table": "(SELECT max(s) FROM secret)",
    "computed table": "(SELECT max(s) FROM IDENTIFIER('sec' || 'ret'))",
    "foreign view": "(SELECT max(s) FROM secret_view)",
    "foreign function": "secret_function()",
}
"""All have the type STRING."""
QUERIES = {
    "foreign table": "SELECT s FROM secret",
    "computed table": "SELECT s FROM IDENTIFIER('sec' || 'ret')",
    "foreign view": "SELECT s FROM secret_view",
    "foreign changes": "SELECT s FROM table_changes('secret', 0)",
    "program": "SELECT TRANSFORM(s) USING 'cat' AS (s STRING) FROM own",
    "path": "SELECT _c0 AS s FROM csv.`/etc/passwd`",
    "computed path": "SELECT value AS s FROM IDENTIFIER('text.`/etc' || '/passwd`')",
    "options": "SELECT s FROM own WITH ('fs.file.impl' = 'a.B')",
}
"""All have one column s of the type STRING."""
INVENTORY = "1L AS length, false AS isDir, 1L AS modificationTime"
IN_EXPRESSION = (
    "SELECT {}",
    "SELECT * FROM own WHERE s = {}",
    "SELECT count(*) FROM own GROUP BY s = {}",
    "SELECT s FROM own GROUP BY s HAVING max(s) = {}",
    "SELECT s FROM own ORDER BY concat(s, {})",
    "SELECT count(*) OVER (PARTITION BY concat(s, {})) FROM own",
    "SELECT count(*) OVER w FROM own WINDOW w AS (ORDER BY concat(s, {}))",
    "SELECT count(*) FILTER (WHERE s = {}) FROM own",
    "SELECT * FROM own a JOIN own b ON a.s = concat(b.s, {})",
    "SELECT * FROM VALUES ({}) AS v(s)",
    "SELECT * FROM range(length({}))",
    "SELECT * FROM own, LATERAL (SELECT {})",
    "SELECT explode(array({}))",
    "SELECT * FROM own LATERAL VIEW explode(array({})) e AS x",
    "SELECT transform(array(s), x -> concat(x, {})) FROM own",
    "SELECT CASE WHEN s = {} THEN 1 END FROM own",
    "SELECT * FROM own LIMIT length({})",
    "SELECT own_function({})",
    "EXPLAIN SELECT {}",
    "DESCRIBE QUERY SELECT {} AS x",
    "CREATE TABLE made AS SELECT {} AS s",
    "CREATE OR REPLACE TABLE made USING parquet AS SELECT {} AS s",
    "CREATE VIEW made AS SELECT {} AS s",
    "CREATE TEMPORARY VIEW made AS SELECT {} AS s",
    "CACHE TABLE made AS SELECT {} AS s",
    "INSERT INTO own SELECT {}",
    "INSERT INTO own VALUES ({})",
    "INSERT OVERWRITE own SELECT {}",
    "UPDATE own SET s = {}",
    "UPDATE own SET s = 'x' WHERE s = {}",
    "DELETE FROM own WHERE s = {}",
    "MERGE INTO own USING own o ON own.s = {} WHEN MATCHED THEN DELETE",
    "MERGE INTO own USING own o ON own.s = o.s WHEN MATCHED AND o.s = {} THEN DELETE",
    "MERGE INTO own USING own o ON own.s = o.s WHEN MATCHED THEN UPDATE SET s = {}",
    "MERGE INTO own USING own o ON own.s = o.s WHEN NOT MATCHED THEN INSERT (s) VALUES ({})",
    "CREATE FUNCTION made() RETURNS STRING RETURN {}",
    "CREATE FUNCTION made(x STRING) RETURNS STRING RETURN concat(x, {})",
    "CREATE FUNCTION made(x STRING DEFAULT {}) RETURNS STRING RETURN x",
    "CREATE TEMPORARY FUNCTION made() RETURNS STRING RETURN {}",
    "CREATE FUNCTION made() RETURNS TABLE (s STRING) RETURN SELECT {}",
    "DECLARE VARIABLE made STRING DEFAULT {}",
    "SET VARIABLE own_variable = {}",
    'EXECUTE IMMEDIATE "SELECT {}"',
    "EXECUTE IMMEDIATE {}",
    "BEGIN SELECT {}; END",
    "BEGIN DECLARE x STRING DEFAULT {}; SELECT x; END",
    "BEGIN IF {} = 'x' THEN SELECT 1; END IF; END",
    f"VACUUM own USING INVENTORY (SELECT {{}} AS path, {INVENTORY})",
)
IN_QUERY = (
    "{}",
    "SELECT * FROM ({})",
    "WITH q AS ({}) SELECT * FROM q",
    "SELECT s FROM own UNION ALL {}",
    "SELECT s FROM own EXCEPT {}",
    "SELECT * FROM own WHERE s IN ({})",
    "SELECT * FROM own WHERE EXISTS ({})",
    "SELECT ({} LIMIT 1)",
    "SELECT * FROM own, LATERAL ({})",
    "SELECT * FROM ({}) PIVOT (count(*) FOR s IN ('x'))",
    "EXPLAIN EXTENDED {}",
    "DESCRIBE QUERY {}",
    "CREATE TABLE made AS {}",
    "CREATE TABLE made USING parquet AS {}",
    "CREATE VIEW made AS {}",
    "CREATE TEMPORARY VIEW made AS {}",
    "ALTER VIEW own_view AS {}",
    "CACHE TABLE made AS {}",
    "INSERT INTO own {}",
    "INSERT OVERWRITE own {}",
    "WITH q AS ({}) INSERT INTO own SELECT * FROM q",
    "DELETE FROM own WHERE s IN ({})",
    "MERGE INTO own USING ({}) o ON own.s = o.s WHEN MATCHED THEN DELETE",
    "CREATE FUNCTION made() RETURNS TABLE (s STRING) RETURN {}",
    "CREATE FUNCTION made() RETURNS STRING RETURN ({} LIMIT 1)",
    "SET VARIABLE own_variable = ({} LIMIT 1)",
    'EXECUTE IMMEDIATE "{}"',
    "BEGIN {}; END",
    "BEGIN FOR x AS {} DO SELECT x.s; END FOR; END",
)
_SAMPLED = 7
"""Of so many combinations one is tried, unless all are: in each place one thing, since neither
number of places is divisible by it."""
OWNED = ("own", "own_view", "own_function", "made")


@pytest.fixture
def objects(session: Session, schema: str) -> str:
    session.execute(
        "CREATE TABLE secret USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true) "
        "AS SELECT 'hush' AS s"
    )
    session.execute("CREATE VIEW secret_view AS SELECT s FROM secret")
    session.execute("CREATE FUNCTION secret_function() RETURNS STRING RETURN 'hush'")
    session.execute("CREATE TABLE own USING delta AS SELECT 'x' AS s")
    session.execute("CREATE VIEW own_view AS SELECT s FROM own")
    session.execute("CREATE FUNCTION own_function(x STRING) RETURNS STRING RETURN x")
    session.execute("DECLARE VARIABLE own_variable STRING")
    return schema


def own(schema: str) -> Admission:
    """Admit everything with what the user owns, and nothing else."""
    schemas = [Access(act=Act.CREATE, kind=ObjectKind.SCHEMA, catalog="spark_catalog", name=schema)]
    named = [
        Access(act=Act.OWN, kind=kind, catalog="spark_catalog", schema=schema, name=name)
        for kind in (ObjectKind.TABLE, ObjectKind.VIEW, ObjectKind.FUNCTION)
        for name in OWNED
    ]
    return Admission(accesses=(*schemas, *named))


def is_forbidden(access: Access) -> bool:
    if access.kind is ObjectKind.SCHEMA:
        return False
    return access.kind is not ObjectKind.SETTING and access.name not in OWNED


@pytest.mark.parametrize("kind", ["expression", "query"])
def test_what_is_forbidden_is_seen_and_refused_everywhere(
    session: Session, objects: str, kind: str
) -> None:
    things, places = (EXPRESSIONS, IN_EXPRESSION) if kind == "expression" else (QUERIES, IN_QUERY)
    admission, outcomes = own(objects), Counter[str]()
    unseen, done = [], []
    chosen = list(product(things.items(), places))
    for (name, thing), place in chosen if FULL else chosen[::_SAMPLED]:
        text = place.replace("{}", thing)
        asked = Survey(session_id=session.id, sql=text, user="bob", features=Features())
        accesses = session.client.call(asked).accesses
        seen = any(map(is_forbidden, accesses))
        if name == "options":  # Delta hides them in the plan that runs
            assert seen, text
            outcomes["denied before it runs"] += 1
            continue
        try:
            session.execute(text, admission=admission, user="bob")
        except ServerError as problem:
            outcomes[problem.code] += 1
            if not seen and problem.code != "ACCESS_DENIED":
                unseen.append((name, text, problem.code))  # not valid in this place at all
        else:
            outcomes["denied before it runs" if seen else "done"] += 1
            if not seen:
                done.append((name, text))
    sys.stdout.write(f"{kind}: {len(things)} things, {len(places)} places: {dict(outcomes)}\n")
    assert not done
    assert session.rows("SELECT * FROM own") == [("x",)]
    sys.stdout.write("".join(f"not seen: {each}\n" for each in unseen))
