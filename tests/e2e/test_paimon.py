"""Paimon tables by pypaimon on a real server: grants, and what refreshes of them do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as

pytest.importorskip("pypaimon")
pytestmark = pytest.mark.faults  # the server with authorization

ELSEWHERE = "TBLPROPERTIES ('data-file.external-paths' = 'file:///tmp/elsewhere')"
KEYED = "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"


@pytest.fixture(scope="module")
def server(guarded_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the catalog ``pai``, which bob may read and ann may change."""
    place = tmp_path_factory.mktemp("paimon")
    run_as(
        guarded_server,
        "root",
        f"CREATE CATALOG pai WITH ('type' = 'paimon', 'warehouse' = '{place}', "
        "'default-database' = 'db')",
        "GRANT USE CATALOG ON CATALOG pai TO USER bob",
        "GRANT ALL ON CATALOG pai TO USER ann",
    )
    run_as(
        guarded_server,
        "ann",
        "CREATE SCHEMA pai.db",
        f"CREATE TABLE pai.db.orders (id INT, k STRING, n INT) {KEYED}",
        "INSERT INTO pai.db.orders VALUES (1, 'a', 1), (2, 'b', 2)",
    )
    run_as(guarded_server, "bob", "CREATE SCHEMA bob")
    yield guarded_server
    dropped = ("TABLE pai.db.orders", "SCHEMA pai.db", "SCHEMA bob CASCADE", "CATALOG pai")
    run_as(guarded_server, "root", *(f"DROP {each}" for each in dropped))


def refused(server: Server, user: str, text: str) -> str:
    """Return the message and the hint of the error with which a statement must end."""
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, text)
    return f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("user", "text", "reason"),
    [
        ("eve", "SELECT * FROM pai.db.orders", "USE CATALOG on catalog pai"),
        ("eve", "SELECT * FROM pai.db.orders VERSION AS OF 1", "USE CATALOG on catalog pai"),
        ("bob", "INSERT INTO pai.db.orders VALUES (3, 'c', 3)", "MODIFY on catalog pai"),
        ("bob", "INSERT OVERWRITE pai.db.orders VALUES (3, 'c', 3)", "MODIFY on catalog pai"),
        ("bob", "CREATE TABLE pai.db.more (a INT)", "MODIFY on catalog pai"),
        ("bob", "DROP TABLE pai.db.orders", "MODIFY on catalog pai"),
        ("ann", "CREATE TABLE pai.db.x (a INT) LOCATION '/tmp/elsewhere'", "external location"),
        ("ann", f"CREATE TABLE pai.db.x (a INT) {ELSEWHERE}", "data-file.external-paths"),
        ("ann", "SELECT * FROM pai.db.`../db.db/orders`", ""),
        ("ann", "DELETE FROM pai.db.orders WHERE id = 1", ""),
        ("ann", "CREATE MATERIALIZED TABLE pai.db.m AS SELECT 1 AS a", "of the type iceberg"),
        (
            "ann",
            "CREATE CATALOG more WITH ('type' = 'paimon', 'warehouse' = '/')",
            "administration",
        ),
    ],
)
def test_what_grants_do_not_allow_is_refused(
    server: Server, user: str, text: str, reason: str
) -> None:
    assert reason in refused(server, user, text)


def test_materialized_tables_follow_snapshots(server: Server) -> None:
    query = "SELECT k, sum(n) AS n FROM orders GROUP BY k"
    run_as(
        server,
        "bob",
        "USE CATALOG pai",
        "CREATE MATERIALIZED TABLE spark_catalog.bob.m FRESHNESS = INTERVAL '1' DAY "
        f"REFRESH_MODE = INCREMENTAL AS {query}",
    )
    refresh = "ALTER MATERIALIZED TABLE bob.m REFRESH"
    history = "SHOW REFRESH HISTORY FOR bob.m LIMIT 1"
    assert "NO_DATA" in str(run_as(server, "bob", refresh, history))
    run_as(server, "ann", "INSERT INTO pai.db.orders VALUES (2, 'b', 20), (3, 'a', 3)")
    [verified] = run_as(server, "bob", "VERIFY MATERIALIZED TABLE bob.m")
    assert verified[3] is True
    assert "INCREMENTAL" in str(run_as(server, "bob", refresh, history))
    assert run_as(server, "bob", "SELECT * FROM bob.m ORDER BY k") == [("a", 4), ("b", 20)]
    [verified] = run_as(server, "bob", "VERIFY MATERIALIZED TABLE bob.m")
    assert verified[3] is True
    assert run_as(server, "bob", "SHOW TABLES IN pai.db") == [("db", "orders", False)]
    run_as(server, "bob", "DROP MATERIALIZED TABLE bob.m")
