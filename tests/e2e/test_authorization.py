"""Two users and one table: what one owns the other sees only when it is granted."""

from __future__ import annotations

from contextlib import closing

import httpx2 as httpx
import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as
from tidegate.cli.live_query import parse_query

pytestmark = pytest.mark.faults  # another server

SECRET = "sum(salary)"
HUSH = "hush-of-"


def denial(server: Server, user: str, *statements: str) -> str:
    """Run statements; the last one must be denied. Return its message."""
    with pytest.raises(tidegate.Error) as caught:
        run_as(server, user, *statements)
    assert caught.value.sqlstate == "42501", caught.value
    assert SECRET not in str(caught.value)
    return str(caught.value)


def visible_tables(server: Server, user: str) -> set[str]:
    """Return every table that a user can find out about in any list."""
    found = {row[0] for row in run_as(server, user, "SHOW MATERIALIZED TABLES IN wages")}
    found |= {row[1] for row in run_as(server, user, "SHOW TABLES IN wages")}
    for listed in ("materialized_tables", "materialized_table_refresh_history"):
        system = f"SELECT table_schema, table_name FROM information_schema.{listed} h"
        found |= {row[1] for row in run_as(server, user, system) if row[0] == "wages"}
    with closing(server.connect(user=user)) as connection, closing(connection.cursor()) as cursor:
        found |= {row[2] for row in cursor.tables(schema="wages").fetchall()}
        found |= {row[2] for row in cursor.columns(schema="wages").fetchall()}
    return found - {"salaries"}


def rest(server: Server, method: str, path: str) -> int:
    return httpx.request(
        method, f"http://127.0.0.1:{server.ready_info()['http_port']}{path}"
    ).status_code


def test_refreshes_with_a_users_privileges_are_incremental_and_can_be_verified(
    guarded_server: Server,
) -> None:
    rows = run_as(
        guarded_server,
        "carl",
        "CREATE SCHEMA carl",
        "CREATE TABLE carl.source AS SELECT id % 3 AS k, id AS n FROM range(9)",
        "CREATE MATERIALIZED TABLE carl.sums FRESHNESS = INTERVAL '1' DAY "
        "REFRESH_MODE = INCREMENTAL AS SELECT k, sum(n) AS n FROM carl.source GROUP BY k",
        "INSERT INTO carl.source VALUES (1, 100)",
        "ALTER MATERIALIZED TABLE carl.sums REFRESH",
    )
    assert rows[0][1]["action"] == "INCREMENTAL"
    [verified] = run_as(guarded_server, "carl", "VERIFY MATERIALIZED TABLE carl.sums")
    assert True in verified
    run_as(
        guarded_server,
        "carl",
        "DROP MATERIALIZED TABLE carl.sums",
        "DROP TABLE carl.source",
        "DROP SCHEMA carl",
    )


def test_what_one_user_owns_another_sees_only_when_it_is_granted(guarded_server: Server) -> None:
    run_as(
        guarded_server,
        "ann",
        "CREATE SCHEMA wages",
        "CREATE TABLE wages.salaries (team STRING, salary INT) USING delta",
        "INSERT INTO wages.salaries VALUES ('a', 1), ('a', 2), ('b', 3)",
        f"CREATE MATERIALIZED TABLE wages.totals FRESHNESS = INTERVAL '1' DAY "
        f"AS SELECT team, {SECRET} AS total FROM wages.salaries GROUP BY team",
        "CREATE VIEW wages.peek AS SELECT * FROM wages.totals",
    )
    run_as(
        guarded_server,
        "root",
        "ALTER VIEW wages.peek SET OWNER TO USER ann",
        "GRANT CREATE ON SCHEMA wages TO USER bob",
    )
    [location] = [
        row[1]
        for row in run_as(guarded_server, "ann", "DESCRIBE EXTENDED wages.totals")
        if row[0] == "location"
    ]

    assert visible_tables(guarded_server, "ann") == {"totals", "peek"}
    assert visible_tables(guarded_server, "bob") == set()
    told = denial(guarded_server, "bob", "SELECT * FROM wages.totals")
    assert "User bob needs SELECT on materialized table spark_catalog.wages.totals." in told
    for statement in (
        "SELECT * FROM wages.peek",
        "SELECT nope FROM wages.totals",
        f"SELECT * FROM delta.`{location}`",
        "DESCRIBE wages.totals",
        "SHOW CREATE MATERIALIZED TABLE wages.totals",
        "SHOW TBLPROPERTIES wages.totals",
        "DESCRIBE DETAIL wages.totals",
        "DESCRIBE HISTORY wages.totals",
        "SELECT * FROM wages.totals VERSION AS OF 0",
        "SELECT * FROM table_changes('wages.totals', 0)",
        "EXPLAIN EXTENDED SELECT * FROM wages.peek",
        "CREATE TABLE wages.copy AS SELECT * FROM wages.peek",
        "CREATE MATERIALIZED TABLE wages.mine AS SELECT * FROM wages.totals",
        "ALTER MATERIALIZED TABLE wages.totals REFRESH",
        "ALTER MATERIALIZED TABLE wages.totals SUSPEND",
        "DROP MATERIALIZED TABLE wages.totals",
        "GRANT SELECT ON MATERIALIZED TABLE wages.totals TO USER bob",
        "EXPLAIN SELECT * FROM information_schema.materialized_tables",
    ):
        denial(guarded_server, "bob", statement)
    assert rest(guarded_server, "GET", "/v1/materialized-tables/wages.totals") == 403
    assert rest(guarded_server, "POST", "/v1/materialized-tables/wages.totals/refresh") == 403

    run_as(
        guarded_server,
        "ann",
        "GRANT SELECT ON MATERIALIZED TABLE wages.totals TO USER bob",
        "GRANT SELECT ON VIEW wages.peek TO USER bob",
        "GRANT REFRESH ON MATERIALIZED TABLE wages.totals TO USER rest",
    )
    assert sorted(run_as(guarded_server, "bob", "SELECT * FROM wages.peek")) == [("a", 3), ("b", 3)]
    assert visible_tables(guarded_server, "bob") == {"totals", "peek"}
    live = parse_query("SELECT total FROM wages.totals")
    version = int(run_as(guarded_server, "bob", live.version_sql())[0][0])
    present = run_as(guarded_server, "bob", live.rows_sql(version))
    changes = run_as(guarded_server, "bob", live.changes_sql((0, version), -1, ["total"]))
    assert sorted(changes) == sorted(present) == [("+I", 3), ("+I", 3)]
    denial(guarded_server, "bob", "ALTER MATERIALIZED TABLE wages.totals REFRESH")
    assert rest(guarded_server, "POST", "/v1/materialized-tables/wages.totals/refresh") == 202
    create = (
        "CREATE MATERIALIZED TABLE wages.mine FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT sum(total) AS total FROM wages.totals"
    )
    assert run_as(guarded_server, "bob", create, "SELECT * FROM wages.mine") == [(6,)]

    run_as(guarded_server, "ann", "REVOKE ALL ON MATERIALIZED TABLE wages.totals FROM USER bob")
    denial(guarded_server, "bob", "SELECT * FROM wages.totals")
    assert run_as(guarded_server, "bob", "SELECT * FROM wages.mine") == [(6,)]
    denial(guarded_server, "root", "ALTER MATERIALIZED TABLE wages.mine REFRESH FULL")


def test_users_set_and_see_only_settings_that_are_free(guarded_server: Server) -> None:
    server = guarded_server
    key, unknown = "spark.hadoop.fs.s3a.secret.key", "spark.hadoop.store.sesame"
    for statement in (
        "SET spark.redaction.regex = zzz",
        f"SET {key}",
        f"SET {unknown}",
        f"RESET {unknown}",
        "SET fs.defaultFS = s3a://elsewhere",
        "SET `hive.metastore.uris` = x",
        "SET spark.sql.analyzer.singlePassResolver.enabled = true",
        "SET spark.sql.debug.maxToStringFields = 1",
        "EXECUTE IMMEDIATE 'SET spark.redaction.regex = zzz'",
        f"BEGIN EXECUTE IMMEDIATE 'SET {unknown}'; END",
    ):
        assert HUSH not in denial(server, "bob", statement)
    view = "CREATE VIEW seven AS SELECT 7"
    property = "ALTER VIEW seven SET TBLPROPERTIES ('view.sqlConfig.{}' = 'true')"
    denial(server, "bob", view, property.format("spark.sql.runSQLOnFiles"))
    run_as(server, "bob", property.format("spark.sql.ansi.enabled"))
    for listing in ("SET", "SET -v"):
        shown = {row[0]: row[1] for row in run_as(server, "bob", "SET day = 1", listing)}
        assert shown.get("day") == ("1" if listing == "SET" else None)  # -v explains known ones
        assert "spark.sql.sources.default" in shown
        assert not [each for each in shown if "hadoop" in each or "warehouse" in each]
        assert HUSH not in repr(shown)
    set_freely = ("SET spark.sql.shuffle.partitions = 3", "SET spark.sql.shuffle.partitions")
    assert run_as(server, "bob", *set_freely) == [("spark.sql.shuffle.partitions", "3")]
    written = f"${{{unknown}}} ${{hiveconf:{key}}}"
    assert run_as(server, "bob", f"SELECT '{written}'") == [(written,)]

    with pytest.raises(tidegate.Error, match="ACCESS_DENIED"):
        server.connect(user="bob", settings={"fs.defaultFS": "s3a://elsewhere"})
    with closing(server.connect(user="bob")) as connection, closing(connection.cursor()) as cursor:
        with pytest.raises(tidegate.Error, match="ACCESS_DENIED"):
            cursor.execute("SELECT 1", settings={"spark.redaction.regex": "zzz"})
        cursor.execute("SELECT 1", settings={"spark.sql.ansi.enabled": "false"})

    ours = "spark.hadoop.fs.azure.account.key.store"  # Spark's own pattern does not know it
    for secret in (key, ours):
        assert run_as(server, "root", f"SET {secret}") == [(secret, "*********(redacted)")]
    assert run_as(server, "root", f"SET {unknown}") == [(unknown, f"{HUSH}the-store")]
    listed = repr(run_as(server, "root", "SET spark.sql.redaction.options.regex = zzz", "SET"))
    assert f"{HUSH}s3a" not in listed
    assert f"{HUSH}azure" not in listed
