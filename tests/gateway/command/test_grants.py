"""GRANT, REVOKE and SHOW GRANTS."""

from __future__ import annotations

from tests.gateway.command.guarded import Guarded
from tidegate_server.core.config import Config


def test_a_grant_takes_effect_and_its_end_too(guarded_world: Guarded) -> None:
    guarded_world.execute("GRANT SELECT, REFRESH ON MATERIALIZED TABLE m TO USER bob")
    guarded_world.be("bob")
    assert guarded_world.outcome("DESCRIBE m") == ""
    assert guarded_world.outcome("ALTER MATERIALIZED TABLE m REFRESH") == ""
    guarded_world.be("ann")
    guarded_world.execute("REVOKE ALL ON MATERIALIZED TABLE m FROM USER bob")
    guarded_world.be("bob")
    assert guarded_world.outcome("DESCRIBE m") == "ACCESS_DENIED"


def test_schemas_are_granted_by_administrators_for_tables_to_come(guarded_world: Guarded) -> None:
    text = "GRANT SELECT ON SCHEMA d TO USER bob"
    assert guarded_world.outcome(text) == "ACCESS_DENIED"
    guarded_world.be("root")
    assert guarded_world.outcome(text) == ""
    guarded_world.be("ann")
    guarded_world.execute(
        "CREATE MATERIALIZED TABLE later FRESHNESS = INTERVAL '1' DAY AS SELECT 1"
    )
    guarded_world.be("bob")
    assert guarded_world.rows("SHOW MATERIALIZED TABLES") == [("later",), ("m",), ("n",)]


def test_grants_are_listed_to_those_they_concern(guarded_world: Guarded) -> None:
    guarded_world.execute("GRANT ALL ON MATERIALIZED TABLE m TO USER bob")
    guarded_world.execute("GRANT SELECT ON MATERIALIZED TABLE n TO USER carl")
    guarded_world.be("root")
    guarded_world.execute("GRANT ALTER ON SCHEMA d TO USER eve")
    listed = [row[:5] for row in guarded_world.rows("SHOW GRANTS")]
    assert listed == [
        ("eve", "ALTER", "SCHEMA", "c.d", "root"),
        ("bob", "ALTER", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("bob", "REFRESH", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("bob", "SELECT", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("carl", "SELECT", "MATERIALIZED TABLE", "c.d.n", "ann"),
    ]
    assert len(guarded_world.rows("SHOW GRANTS FOR USER bob")) == 3
    assert len(guarded_world.rows("SHOW GRANTS ON MATERIALIZED TABLE n")) == 1
    assert len(guarded_world.rows("SHOW GRANTS ON SCHEMA c.d")) == 1
    guarded_world.be("ann")
    assert {row[0] for row in guarded_world.rows("SHOW GRANTS")} == {"bob", "carl"}
    guarded_world.be("carl")
    assert {row[0] for row in guarded_world.rows("SHOW GRANTS")} == {"carl"}


def test_grants_end_with_their_table(guarded_world: Guarded) -> None:
    guarded_world.execute("GRANT ALL ON MATERIALIZED TABLE n TO USER bob")
    guarded_world.execute("DROP MATERIALIZED TABLE n")
    assert guarded_world.privileges.all() == ()


def test_while_nothing_is_checked_nothing_is_granted(guarded_world: Guarded) -> None:
    guarded_world.config = Config()
    assert guarded_world.outcome("GRANT ALL ON MATERIALIZED TABLE m TO USER bob") == "NOT_SUPPORTED"
    assert guarded_world.outcome("REVOKE ALL ON SCHEMA d FROM USER bob") == "NOT_SUPPORTED"
    assert guarded_world.rows("SHOW GRANTS") == []


def test_grants_on_what_is_no_materialized_table_are_refused_or_sparks(
    guarded_world: Guarded,
) -> None:
    assert guarded_world.outcome("GRANT ALL ON MATERIALIZED TABLE x TO USER bob") == "MT_NOT_FOUND"
    guarded_world.execute("GRANT SELECT ON TABLE t TO USER bob")
    assert guarded_world.privileges.all() == ()
