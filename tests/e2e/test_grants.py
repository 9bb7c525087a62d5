"""Owners and grants of plain objects, from one user to another, through Spark and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as

pytestmark = pytest.mark.faults  # the server with authorization


@pytest.fixture(scope="module")
def shop(guarded_server: Server) -> Iterator[Server]:
    """A server with a schema of ann, in which there are a table, a view and a function."""
    server = guarded_server
    run_as(server, "root", "CREATE SCHEMA shop", "ALTER SCHEMA shop SET OWNER TO USER ann")
    run_as(
        server,
        "ann",
        "CREATE TABLE shop.orders (amount INT) USING delta",
        "CREATE VIEW shop.large AS SELECT * FROM shop.orders WHERE amount > 9",
        "CREATE FUNCTION shop.vat(x INT) RETURNS INT RETURN x / 5",
    )
    run_as(server, "root", "ALTER VIEW shop.large SET OWNER TO USER ann")
    yield server
    run_as(server, "root", "DROP SCHEMA shop CASCADE", "DROP ROLE clerks")


def seen(server: Server, user: str) -> set[str]:
    """Return what a user finds in lists; those of SHOW and of metadata calls agree."""
    found = {row[1] for row in run_as(server, user, "SHOW TABLES IN shop")}
    if ("shop",) in run_as(server, user, "SHOW SCHEMAS"):
        found.add("shop")
    functions = [row[0].split(".") for row in run_as(server, user, "SHOW USER FUNCTIONS IN shop")]
    found |= {parts[-1] for parts in functions if "shop" in parts}
    with closing(server.connect(user=user)) as connection, closing(connection.cursor()) as cursor:
        called = {row[2] for row in cursor.tables(schema="shop").fetchall()}
        called |= {row[0] for row in cursor.schemas().fetchall()} & {"shop"}
        called |= {row[2] for row in cursor.functions().fetchall() if row[1] == "shop"}
    assert found == called
    return found


def test_a_list_is_narrowed_however_it_is_written(shop: Server) -> None:
    statement = "SHOW TABLES IN shop LIKE 'orders'"
    quoted = statement.replace("'", "\\'")
    assert run_as(shop, "ann", f"EXECUTE IMMEDIATE '{quoted}'") == [("shop", "orders", False)]
    assert run_as(shop, "zoe", f"EXECUTE IMMEDIATE '{quoted}'") == []
    assert run_as(shop, "zoe", statement) == []
    # The result of a script is that of its last query, never a list.
    for script in (f"BEGIN {statement}; END", f"BEGIN EXECUTE IMMEDIATE '{quoted}'; END"):
        for user in ("root", "zoe"):
            assert run_as(shop, user, script) == []
    script = f"BEGIN SELECT 7 AS seven; {statement}; END"
    assert run_as(shop, "zoe", script) == run_as(shop, "root", script) == [(7,)]


def grants(server: Server, grantee: str) -> list[tuple[str, str]]:
    return [(row[1], row[3]) for row in run_as(server, "root", f"SHOW GRANTS FOR {grantee}")]


def test_lists_show_what_was_granted(shop: Server) -> None:
    assert seen(shop, "ann") == {"shop", "orders", "large", "vat"}
    assert seen(shop, "bob") == set()
    run_as(shop, "ann", "GRANT SELECT ON TABLE shop.orders TO USER bob")
    assert seen(shop, "bob") == {"shop", "orders"}
    run_as(shop, "root", "CREATE ROLE clerks", "GRANT ROLE clerks TO USER bob")
    run_as(shop, "ann", "GRANT EXECUTE ON FUNCTION shop.vat TO ROLE clerks")
    assert seen(shop, "bob") == {"shop", "orders", "vat"}
    run_as(shop, "ann", "GRANT SELECT ON SCHEMA shop TO PUBLIC")
    assert seen(shop, "eve") == {"shop", "orders", "large"}
    run_as(shop, "ann", "REVOKE SELECT ON SCHEMA shop FROM PUBLIC")
    assert seen(shop, "eve") == set()


def test_grants_follow_an_object_and_end_with_it(shop: Server) -> None:
    run_as(
        shop,
        "ann",
        "CREATE TABLE shop.first USING parquet AS SELECT 1 AS x",
        "GRANT SELECT, MODIFY ON TABLE shop.first TO USER carl",
        "ALTER TABLE shop.first RENAME TO shop.second",
    )
    renamed = "spark_catalog.shop.second"
    assert grants(shop, "USER carl") == [("MODIFY", renamed), ("SELECT", renamed)]
    run_as(shop, "root", "ALTER TABLE shop.second SET OWNER TO USER olga")
    assert grants(shop, "USER carl") == [("MODIFY", renamed), ("SELECT", renamed)]
    assert seen(shop, "carl") == {"shop", "second"}
    run_as(shop, "root", "DROP TABLE shop.second")
    assert grants(shop, "USER carl") == []
    run_as(shop, "ann", "CREATE TABLE shop.second USING parquet AS SELECT 1 AS x")
    assert seen(shop, "carl") == set()
    run_as(shop, "ann", "DROP TABLE shop.second")


def test_a_replaced_view_keeps_its_owner_and_grants(shop: Server) -> None:
    run_as(shop, "ann", "GRANT SELECT ON VIEW shop.large TO GROUP staff")
    run_as(shop, "root", "CREATE OR REPLACE VIEW shop.large AS SELECT 1 AS amount")
    assert grants(shop, "GROUP staff") == [("SELECT", "spark_catalog.shop.large")]
    run_as(shop, "ann", "GRANT SELECT ON VIEW shop.large TO USER dan")
    assert seen(shop, "dan") == {"shop", "large"}


def test_what_a_stream_is_taken_in_with_is_judged_in_each_refresh(
    shop: Server, tmp_path: Path
) -> None:
    run_as(shop, "ann", "GRANT EXECUTE ON FUNCTION shop.vat TO USER eric")
    run_as(
        shop,
        "root",
        "GRANT CREATE ON SCHEMA shop TO USER eric",
        f"CREATE EXTERNAL LOCATION arriving URL '{tmp_path}'",
        "GRANT READ FILES ON EXTERNAL LOCATION arriving TO USER eric",
    )
    (tmp_path / "1.json").write_text('{"x": 10}')
    stream = f"STREAM read_files(path => '{tmp_path}', format => 'json')"
    run_as(
        shop,
        "eric",
        "CREATE MATERIALIZED TABLE shop.taken FRESHNESS = INTERVAL '1' DAY REFRESH_MODE = FULL "
        f"AS SELECT shop.vat(x) AS v FROM {stream}",
        "ALTER MATERIALIZED TABLE shop.taken REFRESH",
    )
    assert run_as(shop, "eric", "SELECT * FROM shop.taken") == [(2,)]
    run_as(shop, "ann", "REVOKE EXECUTE ON FUNCTION shop.vat FROM USER eric")
    (tmp_path / "2.json").write_text('{"x": 20}')
    for user in ("eric", "root"):
        with pytest.raises(tidegate.Error, match="EXECUTE on function spark_catalog.shop.vat"):
            run_as(shop, user, "ALTER MATERIALIZED TABLE shop.taken REFRESH")
    assert run_as(shop, "eric", "SELECT * FROM shop.taken") == [(2,)]
    run_as(shop, "eric", "DROP MATERIALIZED TABLE shop.taken")
    run_as(shop, "root", "DROP EXTERNAL LOCATION arriving")


def test_the_owner_of_a_schema_drops_what_others_made_in_it(shop: Server) -> None:
    run_as(
        shop,
        "ann",
        "CREATE SCHEMA stalls",
        "CREATE TABLE stalls.own USING delta AS SELECT 1 AS x",
        "CREATE TABLE stalls.copy SHALLOW CLONE stalls.own",
        "INSERT INTO stalls.copy VALUES (2)",
        "GRANT CREATE ON SCHEMA stalls TO USER finn",
    )
    run_as(shop, "ann", "GRANT MODIFY ON TABLE stalls.own TO USER finn")
    run_as(shop, "finn", "INSERT INTO stalls.own VALUES (3)")
    with pytest.raises(tidegate.Error, match="needs SELECT on table"):
        run_as(shop, "finn", "INSERT INTO stalls.own SELECT * FROM stalls.own")
    run_as(shop, "finn", "CREATE TABLE stalls.his USING delta AS SELECT 1 AS x")
    for user in ("finn", "zoe"):
        with pytest.raises(tidegate.Error, match="needs ownership on schema"):
            run_as(shop, user, "DROP SCHEMA stalls CASCADE")
    assert run_as(shop, "finn", "SELECT * FROM stalls.his") == [(1,)]
    run_as(shop, "ann", "DROP SCHEMA stalls CASCADE")
    assert ("stalls",) not in run_as(shop, "root", "SHOW SCHEMAS")


def test_what_is_not_owned_cannot_be_given_away(shop: Server) -> None:
    for statement in (
        "GRANT SELECT ON TABLE shop.orders TO USER zoe",
        "GRANT USAGE ON SCHEMA shop TO USER zoe",
        "ALTER TABLE shop.orders SET OWNER TO USER zoe",
        "CREATE ROLE thieves",
    ):
        with pytest.raises(tidegate.Error) as caught:
            run_as(shop, "zoe", statement)
        assert caught.value.sqlstate == "42501"


SCRIPTS = [
    (
        """BEGIN
  DECLARE least INT DEFAULT 3;
  INSERT INTO shop.orders VALUES (least), (least * 4);
  SELECT count(*) FROM shop.orders WHERE amount >= least;
END""",
        [(2,)],
    ),
    (
        """BEGIN
  total: BEGIN
    DECLARE s BIGINT = 0;
    FOR one AS (SELECT amount FROM shop.orders) DO SET s = s + one.amount; END FOR;
    SELECT total.s, shop.vat(CAST(s AS INT));
  END;
END""",
        [(15, 3)],
    ),
    (
        """BEGIN
  DECLARE n INT;
  SET n = (SELECT max(amount) FROM shop.orders);
  WHILE n > 10 DO
    BEGIN
      DECLARE half INT = n DIV 2;
      DELETE FROM shop.orders WHERE amount = n;
      SET n = half;
    END;
  END WHILE;
  SELECT amount, n FROM shop.orders;
END""",
        [(3, 6)],
    ),
    (
        """BEGIN
  DECLARE most INT = 5;
  CREATE TABLE shop.small USING parquet AS SELECT amount FROM shop.orders WHERE amount < most;
  INSERT INTO shop.small SELECT most;
  SELECT sum(amount) FROM shop.small;
  DROP TABLE shop.small;
END""",
        [(8,)],
    ),
    (
        """BEGIN
  DECLARE zero INT = 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    DECLARE c INT = 7;
    INSERT INTO shop.orders VALUES (c);
    SELECT count(*) FROM shop.orders WHERE amount = c;
    TRUNCATE TABLE shop.orders;
  END;
  SELECT 1 / zero;
END""",
        [(1,)],
    ),
    (
        """BEGIN
  EXECUTE IMMEDIATE 'INSERT INTO shop.orders VALUES (?)' USING 40;
  EXECUTE IMMEDIATE 'SELECT shop.vat(amount) FROM shop.orders';
END""",
        [(8,)],
    ),
    (
        """BEGIN
  DECLARE least INT = 9;
  CREATE TEMPORARY VIEW many AS SELECT * FROM shop.orders;
  CREATE VIEW shop.few AS SELECT amount FROM shop.orders WHERE amount > 30;
  SELECT count(*) FROM many JOIN shop.few USING (amount) WHERE amount > least;
  DROP VIEW shop.few;
  DROP VIEW many;
END""",
        [(1,)],
    ),
]


def test_scripts_with_variables(shop: Server) -> None:
    """Each script starts with the rows that the one before left."""
    for script, rows in SCRIPTS:
        with pytest.raises(tidegate.Error, match=r"ACCESS_DENIED.*zoe needs"):
            run_as(shop, "zoe", script)
        assert run_as(shop, "ann", script) == rows
