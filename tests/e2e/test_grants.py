"""Owners and grants of plain objects, from one user to another, through Spark and back."""

from __future__ import annotations

from contextlib import closing

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as

pytestmark = pytest.mark.faults  # another server


@pytest.fixture(scope="module")
def shop(guarded_server: Server) -> Server:
    """The server with a schema of ann, in which there are a table, a view and a function."""
    run_as(guarded_server, "root", "CREATE SCHEMA shop", "ALTER SCHEMA shop SET OWNER TO USER ann")
    run_as(
        guarded_server,
        "ann",
        "CREATE TABLE shop.orders (amount INT) USING delta",
        "CREATE VIEW shop.large AS SELECT * FROM shop.orders WHERE amount > 9",
        "CREATE FUNCTION shop.vat(x INT) RETURNS INT RETURN x / 5",
    )
    run_as(guarded_server, "root", "ALTER VIEW shop.large SET OWNER TO USER ann")
    return guarded_server


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
