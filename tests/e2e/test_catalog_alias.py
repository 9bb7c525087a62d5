"""An alias of the session catalog: the same tables, with the same rights and guards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, inspect

import tidegate
from tests.support.fixtures.server import Server, run_as

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def aliased(guarded_server: Server) -> Iterator[Server]:
    """A server with the alias ``door``, and a schema of alice through it."""
    run_as(guarded_server, "root", "CREATE CATALOG door WITH ('type' = 'tidegate')")
    run_as(
        guarded_server,
        "alice",
        "CREATE SCHEMA door.alice",
        "CREATE TABLE door.alice.t (a INT) WITH ()",
        "INSERT INTO door.alice.t VALUES (1), (2)",
        "CREATE MATERIALIZED TABLE door.alice.m FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT sum(door.alice.t.a) AS s FROM door.alice.t",
    )
    yield guarded_server
    run_as(
        guarded_server,
        "alice",
        "DROP MATERIALIZED TABLE alice.m",
        "DROP SCHEMA door.alice CASCADE",
    )
    run_as(guarded_server, "root", "DROP CATALOG door")


def test_one_name_is_as_good_as_the_other(aliased: Server) -> None:
    both = "SELECT x.s, y.s FROM door.alice.m x CROSS JOIN spark_catalog.alice.m y"
    assert run_as(aliased, "alice", both) == [(3, 3)]
    assert run_as(aliased, "alice", "SELECT * FROM IDENTIFIER('door.alice.m')") == [(3,)]
    [(created,)] = run_as(aliased, "alice", "SHOW CREATE MATERIALIZED TABLE door.alice.m")
    assert "door" not in created.split("AS SELECT")[0]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM door.alice.t",
        "SELECT * FROM door.alice.m",
        "SELECT (SELECT max(s) FROM door.alice.m)",
        "WITH c AS (SELECT * FROM door.alice.t) SELECT count(*) FROM c",
        "SELECT * FROM IDENTIFIER('door.' || 'alice.t')",
        "INSERT INTO door.alice.t VALUES (3)",
        "UPDATE door.alice.t SET a = 0",
        "TRUNCATE TABLE door.alice.t",
        "DROP TABLE door.alice.t",
        "DROP SCHEMA door.alice CASCADE",
        "CREATE TABLE door.alice.u (a INT) WITH ()",
        "CREATE TABLE door.alice.u AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW v AS SELECT * FROM door.alice.t",
        "ALTER TABLE door.alice.t SET TBLPROPERTIES ('tidegate.id' = 'x')",
        "ALTER MATERIALIZED TABLE door.alice.m REFRESH",
        "DROP MATERIALIZED TABLE door.alice.m",
        "EXPLAIN SELECT * FROM door.alice.t",
    ],
)
def test_others_are_denied_what_they_have_no_right_to(aliased: Server, statement: str) -> None:
    with pytest.raises(tidegate.Error) as caught:
        run_as(aliased, "mallory", statement)
    assert caught.value.code in ("ACCESS_DENIED", "MT_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO door.alice.m VALUES (3)",
        "DROP TABLE door.alice.m",
        "DROP SCHEMA door.alice CASCADE",
        "ALTER TABLE door.alice.m ADD COLUMN b INT",
        "CREATE OR REPLACE TABLE door.alice.m AS SELECT 1 AS s",
    ],
)
def test_materialized_tables_are_guarded_from_their_owner(aliased: Server, statement: str) -> None:
    with pytest.raises(tidegate.Error) as caught:
        run_as(aliased, "alice", statement)
    assert caught.value.code == "MT_WRONG_KIND"


def test_clients_see_the_tables_under_the_alias(aliased: Server) -> None:
    with aliased.connect(user="alice") as connection, connection.cursor() as cursor:
        assert ("door",) in cursor.catalogs().fetchall()
        found = [tuple(row[:3]) for row in cursor.tables("alice", "%", catalog="door").fetchall()]
        assert ("door", "alice", "m") in found
        found = [tuple(row[:4]) for row in cursor.columns("alice", "m", catalog="door").fetchall()]
        assert found == [("door", "alice", "m", "s")]
    url = f"tidegate://alice@{aliased.host}:{aliased.port}/door.alice"
    engine = create_engine(url)
    try:
        assert "m" in inspect(engine).get_table_names()
    finally:
        engine.dispose()


def test_everybody_sees_the_alias_and_only_administrators_make_one(aliased: Server) -> None:
    assert ("door",) in run_as(aliased, "mallory", "SHOW CATALOGS")
    with pytest.raises(tidegate.Error, match="ACCESS_DENIED"):
        run_as(aliased, "mallory", "CREATE CATALOG gate WITH ('type' = 'tidegate')")
