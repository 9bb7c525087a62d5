"""GRANT, REVOKE and SHOW GRANTS."""

from __future__ import annotations

from tests.gateway.command.guarded import Guarded
from tidegate_server.core.config import Config


def test_a_grant_takes_effect_and_its_end_too(guarded: Guarded) -> None:
    guarded.execute("GRANT SELECT, REFRESH ON MATERIALIZED TABLE m TO USER bob")
    guarded.be("bob")
    assert guarded.outcome("DESCRIBE m") == ""
    assert guarded.outcome("ALTER MATERIALIZED TABLE m REFRESH") == ""
    guarded.be("ann")
    guarded.execute("REVOKE ALL ON MATERIALIZED TABLE m FROM USER bob")
    guarded.be("bob")
    assert guarded.outcome("DESCRIBE m") == "ACCESS_DENIED"


def test_schemas_are_granted_by_administrators_for_tables_to_come(guarded: Guarded) -> None:
    text = "GRANT SELECT ON SCHEMA d TO USER bob"
    assert guarded.outcome(text) == "ACCESS_DENIED"
    guarded.be("root")
    assert guarded.outcome(text) == ""
    guarded.be("ann")
    guarded.execute("CREATE MATERIALIZED TABLE later FRESHNESS = INTERVAL '1' DAY AS SELECT 1")
    guarded.be("bob")
    assert guarded.rows("SHOW MATERIALIZED TABLES") == [("later",), ("m",), ("n",)]


def test_grants_are_listed_to_those_they_concern(guarded: Guarded) -> None:
    guarded.execute("GRANT ALL ON MATERIALIZED TABLE m TO USER bob")
    guarded.execute("GRANT SELECT ON MATERIALIZED TABLE n TO USER carl")
    guarded.be("root")
    guarded.execute("GRANT ALTER ON SCHEMA d TO USER eve")
    listed = [row[:5] for row in guarded.rows("SHOW GRANTS")]
    assert listed == [
        ("eve", "ALTER", "SCHEMA", "c.d", "root"),
        ("bob", "ALTER", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("bob", "REFRESH", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("bob", "SELECT", "MATERIALIZED TABLE", "c.d.m", "ann"),
        ("carl", "SELECT", "MATERIALIZED TABLE", "c.d.n", "ann"),
    ]
    assert len(guarded.rows("SHOW GRANTS FOR USER bob")) == 3
    assert len(guarded.rows("SHOW GRANTS ON MATERIALIZED TABLE n")) == 1
    assert len(guarded.rows("SHOW GRANTS ON SCHEMA c.d")) == 1
    guarded.be("ann")
    assert {row[0] for row in guarded.rows("SHOW GRANTS")} == {"bob", "carl"}
    guarded.be("carl")
    assert {row[0] for row in guarded.rows("SHOW GRANTS")} == {"carl"}


def test_grants_end_with_their_table(guarded: Guarded) -> None:
    guarded.execute("GRANT ALL ON MATERIALIZED TABLE n TO USER bob")
    guarded.execute("DROP MATERIALIZED TABLE n")
    assert guarded.privileges.all() == ()


def test_while_nothing_is_checked_nothing_is_granted(guarded: Guarded) -> None:
    guarded.config = Config()
    assert guarded.outcome("GRANT ALL ON MATERIALIZED TABLE m TO USER bob") == "NOT_SUPPORTED"
    assert guarded.outcome("REVOKE ALL ON SCHEMA d FROM USER bob") == "NOT_SUPPORTED"
    assert guarded.rows("SHOW GRANTS") == []


def test_grants_on_what_is_no_materialized_table_are_refused_or_sparks(guarded: Guarded) -> None:
    assert guarded.outcome("GRANT ALL ON MATERIALIZED TABLE x TO USER bob") == "MT_NOT_FOUND"
    guarded.execute("GRANT SELECT ON TABLE t TO USER bob")
    assert guarded.privileges.all() == ()
