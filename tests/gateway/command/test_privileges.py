"""The privilege that each statement needs."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.gateway.command.fakes import analysis, name
from tests.gateway.command.guarded import GIVEN, READS_M, Guarded, of_system, selecting
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Reading, Surveyed
from tidegate_server.core.messages.requests import Survey
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.privileges import (
    Privilege,
)
from tidegate_server.gateway.authorization.rights import (
    Action,
)

NEEDED = {
    "SHOW CREATE MATERIALIZED TABLE m": Action.SEE,
    "SHOW LINEAGE m": Action.SEE,
    "SHOW REFRESH HISTORY FOR m": Action.SEE,
    "SHOW VERSIONS m": Action.SEE,
    "SHOW VERSIONS m DEFINITION": Action.SEE,
    "SHOW GRANTS ON MATERIALIZED TABLE m": Action.SEE,
    "DESCRIBE m": Action.SEE,
    "DESCRIBE EXTENDED spark_catalog.d.m AS JSON": Action.SEE,
    "SELECT * FROM m": Action.SELECT,
    "SELECT * FROM a_view_of_m": Action.SELECT,
    "CREATE MATERIALIZED TABLE p FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM m": Action.SELECT,
    "EXPLAIN CREATE MATERIALIZED TABLE p AS SELECT * FROM m": Action.SELECT,
    "VERIFY MATERIALIZED TABLE m": Action.SELECT,
    "ALTER MATERIALIZED TABLE m REFRESH": Action.REFRESH,
    "ALTER MATERIALIZED TABLE m REFRESH FULL": Action.REFRESH,
    "ALTER MATERIALIZED TABLE m CANCEL REFRESH": Action.REFRESH,
    "EXPLAIN REFRESH MATERIALIZED TABLE m": Action.REFRESH,
    "ALTER MATERIALIZED TABLE m SUSPEND": Action.ALTER,
    "ALTER MATERIALIZED TABLE m RESUME": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET ('k' = 'v')": Action.ALTER,
    "ALTER MATERIALIZED TABLE m RESET ('k')": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '2' HOUR": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET REFRESH_MODE = FULL": Action.ALTER,
    "ALTER MATERIALIZED TABLE m AS SELECT 1": Action.ALTER,
    "EXPLAIN ALTER MATERIALIZED TABLE m AS SELECT 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ADD (x INT)": Action.ALTER,
    "ALTER MATERIALIZED TABLE m MODIFY (a BIGINT COMMENT 'x')": Action.ALTER,
    "ALTER MATERIALIZED TABLE m DROP PRIMARY KEY": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ROLLBACK TO VERSION 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ROLLBACK DEFINITION TO VERSION 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m ROLLBACK TO VERSION 1 BOTH": Action.ALTER,
    "ALTER MATERIALIZED TABLE m PUBLISH HELD VERSION": Action.ALTER,
    "ALTER MATERIALIZED TABLE m DISCARD HELD VERSION": Action.ALTER,
    "EXPLAIN ALTER MATERIALIZED TABLE m ROLLBACK DEFINITION TO VERSION 1": Action.ALTER,
    "CREATE OR ALTER MATERIALIZED TABLE m AS SELECT 1": Action.ALTER,
    "ALTER MATERIALIZED TABLE m SET EXECUTE AS OWNER": Action.OWN,
    "ALTER MATERIALIZED TABLE m RENAME TO q": Action.OWN,
    "ALTER MATERIALIZED TABLE m SWAP WITH q": Action.OWN,
    "ALTER MATERIALIZED TABLE q SWAP WITH m": Action.OWN,
    "ALTER MATERIALIZED TABLE m CONVERT TO TABLE": Action.OWN,
    "DROP MATERIALIZED TABLE m": Action.OWN,
    "DROP MATERIALIZED TABLE IF EXISTS m": Action.OWN,
    "GRANT SELECT ON MATERIALIZED TABLE m TO USER eve": Action.OWN,
    "REVOKE SELECT ON MATERIALIZED TABLE m FROM USER eve": Action.OWN,
}
HELD: tuple[frozenset[Privilege], ...] = tuple(
    frozenset(chosen) for size in range(4) for chosen in combinations(GIVEN, size)
)


@pytest.mark.parametrize("held", HELD, ids=lambda held: "+".join(sorted(p.value for p in held)))
@pytest.mark.parametrize("text", NEEDED)
def test_a_statement_needs_its_privilege(
    guarded_world: Guarded, text: str, held: frozenset[Privilege]
) -> None:
    guarded_world.engine.surveys["SELECT * FROM m"] = READS_M
    guarded_world.engine.surveys["SELECT * FROM a_view_of_m"] = READS_M
    guarded_world.may(*held)
    guarded_world.be("bob")
    allowed = any(NEEDED[text] in GIVEN[privilege] for privilege in held)
    assert (guarded_world.outcome(text) != "ACCESS_DENIED") is allowed


@pytest.mark.parametrize("user", ["ann", "root"])
@pytest.mark.parametrize("text", NEEDED)
def test_owner_and_administrator_are_never_denied(
    guarded_world: Guarded, text: str, user: str
) -> None:
    guarded_world.engine.surveys["SELECT * FROM m"] = READS_M
    guarded_world.be(user)
    assert guarded_world.outcome(text) != "ACCESS_DENIED"


def test_a_denial_names_user_privilege_and_table_and_nothing_of_the_definition(
    guarded_world: Guarded,
) -> None:
    guarded_world.be("bob")
    with pytest.raises(ServerError) as caught:
        guarded_world.execute("SHOW CREATE MATERIALIZED TABLE m")
    assert caught.value.sqlstate == "42501"
    assert (
        caught.value.message
        == "User bob needs a privilege on materialized table spark_catalog.d.m."
    )
    counted = guarded_world._services().metrics
    assert b"tidegate_access_denials_total" in counted.text()


def test_nothing_of_a_denied_statement_reaches_spark(guarded_world: Guarded) -> None:
    guarded_world.engine.surveys["SELECT * FROM m"] = READS_M
    guarded_world.engine.requests.clear()
    guarded_world.be("bob")
    assert guarded_world.outcome("SELECT * FROM m") == "ACCESS_DENIED"
    assert {type(request).__name__ for request in guarded_world.engine.requests} <= {
        "OpenSession",
        "Survey",
    }


@pytest.mark.parametrize(
    ("kind", "name", "location"),
    [
        (ObjectKind.TABLE, "m", ""),
        (ObjectKind.PATH, "file:{place}", ""),
        (ObjectKind.PATH, "{place}/part=1", ""),
        (ObjectKind.TABLE, "a_copy", "file://{place}"),
    ],
    ids=["name", "path", "partition", "external table"],
)
def test_a_table_is_recognised_however_it_is_read(
    guarded_world: Guarded, kind: ObjectKind, name: str, location: str
) -> None:
    place = guarded_world.table("m").location
    section = AuthorizationSection(enabled=True, allow=("paths",))
    guarded_world.config = guarded_world.config.model_copy(update={"authorization": section})
    access = Access(
        act=Act.READ if kind is ObjectKind.PATH else Act.SELECT,
        kind=kind,
        catalog="spark_catalog",
        schema="d",
        name=name.format(place=place),
        owner="bob",
        location=location.format(place=place),
    )
    guarded_world.engine.surveys["SELECT 7"] = Surveyed(accesses=(access,))
    guarded_world.be("bob")
    assert "needs SELECT on materialized table spark_catalog.d.m" in guarded_world.message(
        "SELECT 7"
    )


@pytest.mark.parametrize("statement", ["DESCRIBE", "SHOW CREATE TABLE"])
def test_a_description_is_analyzed_as_spark_reads_it(
    guarded_world: Guarded, statement: str
) -> None:
    guarded_world.be("bob")
    guarded_world.engine.requests.clear()
    assert guarded_world.outcome(f"{statement} plain // why") == ""
    sent = [each.sql for each in guarded_world.engine.requests_of(Survey)]
    assert sent == [f"{statement} plain -- why"]


def test_reading_a_table_needs_nothing_on_those_it_is_made_of(guarded_world: Guarded) -> None:
    guarded_world.engine.surveys["SELECT * FROM n"] = Surveyed(readings=(Reading(name=name("n")),))
    guarded_world.may(Privilege.SELECT, table="n")
    guarded_world.be("bob")
    assert guarded_world.outcome("SELECT * FROM n") == ""


def test_a_cascade_needs_every_table_it_refreshes(guarded_world: Guarded) -> None:
    guarded_world.may(Privilege.REFRESH)
    guarded_world.be("bob")
    assert guarded_world.outcome("ALTER MATERIALIZED TABLE m REFRESH CASCADE") == "ACCESS_DENIED"
    guarded_world.may(Privilege.REFRESH, table="n")
    assert guarded_world.outcome("ALTER MATERIALIZED TABLE m REFRESH CASCADE") != "ACCESS_DENIED"


@pytest.mark.parametrize("action", ["SUSPEND", "RESUME"])
def test_a_cascade_needs_every_table_it_suspends(guarded_world: Guarded, action: str) -> None:
    text = f"ALTER MATERIALIZED TABLE m {action} CASCADE"
    guarded_world.may(Privilege.ALTER)
    guarded_world.be("bob")
    assert guarded_world.outcome(text) == "ACCESS_DENIED"
    guarded_world.may(Privilege.ALTER, table="n")
    assert guarded_world.outcome(text) != "ACCESS_DENIED"


@pytest.mark.parametrize(
    "form",
    [
        "ALTER MATERIALIZED TABLE n REFRESH CASCADE UPSTREAM",
        "ALTER MATERIALIZED TABLE n REFRESH FULL CASCADE UPSTREAM ASYNC",
        "EXPLAIN REFRESH n CASCADE UPSTREAM",
    ],
)
def test_so_does_one_upwards(guarded_world: Guarded, form: str) -> None:
    guarded_world.may(Privilege.REFRESH, table="n")
    guarded_world.be("bob")
    assert guarded_world.outcome(form) == "ACCESS_DENIED"
    guarded_world.may(Privilege.REFRESH)
    assert guarded_world.outcome(form) != "ACCESS_DENIED"


def test_a_condition_reads_under_its_users_name(guarded_world: Guarded) -> None:
    query = "SELECT 1 FROM `spark_catalog`.`d`.`n` WHERE a IN (SELECT a FROM m)"
    guarded_world.engine.surveys[query] = Surveyed(
        accesses=(*selecting(name("n")).accesses, *selecting(name("m")).accesses)
    )
    guarded_world.may(Privilege.REFRESH, table="n")
    guarded_world.be("bob")
    text = "ALTER MATERIALIZED TABLE n REFRESH WHERE a IN (SELECT a FROM m)"
    assert guarded_world.outcome(text) == "ACCESS_DENIED"
    guarded_world.may(Privilege.SELECT)
    assert guarded_world.outcome(text) != "ACCESS_DENIED"


def test_an_earlier_definition_reads_under_its_users_name(guarded_world: Guarded) -> None:
    first = guarded_world.definition("n").expanded_query
    guarded_world.engine.analyses["SELECT 3"] = analysis(expanded="SELECT 3")
    guarded_world.execute("ALTER MATERIALIZED TABLE n AS SELECT 3")
    guarded_world.engine.surveys[first] = READS_M
    guarded_world.may(Privilege.ALTER, table="n")
    guarded_world.be("bob")
    text = "ALTER MATERIALIZED TABLE n ROLLBACK DEFINITION"
    assert guarded_world.outcome(text) == "ACCESS_DENIED"
    guarded_world.may(Privilege.SELECT)
    assert guarded_world.outcome(text) != "ACCESS_DENIED"


def test_expressions_of_a_definition_read_under_their_users_name(guarded_world: Guarded) -> None:
    guarded_world.engine.surveys["SELECT (SELECT max(a) FROM m)"] = READS_M
    guarded_world.may(Privilege.ALTER, table="n")
    guarded_world.be("bob")
    for text in (
        "CREATE MATERIALIZED TABLE p (a BIGINT, x AS (SELECT max(a) FROM m)) AS SELECT 1 AS a",
        "ALTER MATERIALIZED TABLE n ADD (x AS (SELECT max(a) FROM m))",
        "ALTER MATERIALIZED TABLE n MODIFY (WATERMARK FOR t AS (SELECT max(a) FROM m))",
        "ALTER MATERIALIZED TABLE n SET IMMUTABLE WHERE ((SELECT max(a) FROM m))",
    ):
        assert guarded_world.outcome(text) == "ACCESS_DENIED", text


@pytest.mark.parametrize("words", ["", "EXPLAIN "])
def test_a_backfill_needs_the_right_to_read_its_source(guarded_world: Guarded, words: str) -> None:
    guarded_world.engine.surveys["SELECT * FROM `spark_catalog`.`d`.`m`"] = READS_M
    guarded_world.be("bob")
    text = (
        f"{words}CREATE MATERIALIZED TABLE p FRESHNESS = INTERVAL '1' DAY "
        "IMMUTABLE WHERE (a < 5) BACKFILL FROM m AS SELECT * FROM t1"
    )
    assert guarded_world.outcome(text) == "ACCESS_DENIED"
    guarded_world.may(Privilege.SELECT)
    assert guarded_world.outcome(text) == ""


def test_a_definition_does_not_read_information_schema(guarded_world: Guarded) -> None:
    guarded_world.engine.surveys["SELECT 3"] = of_system()
    text = "CREATE MATERIALIZED TABLE p FRESHNESS = INTERVAL '1' DAY AS SELECT 3"
    guarded_world.be("bob")
    assert guarded_world.outcome(text) == "ACCESS_DENIED"
    guarded_world.be("root")
    assert guarded_world.outcome(text) == ""
