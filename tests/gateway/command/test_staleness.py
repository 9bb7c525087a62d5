"""The staleness that a session allows for its reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from tests.contract.examples import run
from tests.gateway.command.fakes import NOW, World, analysis
from tests.gateway.command.guarded import SurveyingEngine
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection, ServerSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Reading, Surveyed
from tidegate_server.core.messages.requests import Execute, Survey
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import Grant, Privilege, TableObject, user
from tidegate_server.core.model.runs import Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.store.privileges import MemoryPrivileges, Privileges

SELECT = "SELECT * FROM m"
KEY = "materialized-table.read.max-staleness"


def reading(*tables: str) -> Surveyed:
    return Surveyed(
        readings=tuple(Reading(name=TableName("spark_catalog", "d", table)) for table in tables)
    )


@dataclass
class Stale(World):
    """m reads t1, and n reads m; both were refreshed an hour ago, and t1 has changed since."""

    privileges: Privileges = field(default_factory=MemoryPrivileges)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.engine: SurveyingEngine = SurveyingEngine()
        self.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
        self.engine.analyses["SELECT 2"] = analysis(analysis().schema, "m")
        self.execute("CREATE MATERIALIZED TABLE n AS SELECT 2")
        self.engine.surveys.update(
            {
                SELECT: reading("m"),
                "SELECT * FROM n": reading("n"),
                "SELECT * FROM m, n": reading("m", "n"),
                "SELECT * FROM plain": reading("plain"),
                "INSERT INTO plain SELECT * FROM m": reading("plain", "m"),
                "CREATE TABLE x AS SELECT * FROM v": reading("m"),
            }
        )
        self.refreshed_at("m", "id-t1", 6)
        self.refreshed_at("n", "id-m", 7)

    def refreshed_at(self, table: str, source: str, version: int) -> None:
        past = NOW - timedelta(hours=1)
        found = self.table(table)
        done = run(
            refresh_id=f"r-{table}",
            table_id=found.id,
            table=found.name,
            trigger=Trigger.INITIAL,
            state=RunState.SUCCEEDED,
            queued_at=past,
            data_timestamp=past,
            requested_by="ann",
            action=Strategy.FULL,
            sources={source: version},
            to_version=1,
        )
        self.ledger.history.append(done)

    def allow(self, bound: str) -> None:
        self.execute(f"SET '{KEY}' = '{bound}'")

    def statements(self) -> list[str]:
        return [r.sql for r in self.engine.requests_of(Execute) if "HISTORY" not in r.sql]

    def _services(self) -> Services:
        return replace(super()._services(), privileges=self.privileges)


@pytest.fixture
def stale() -> Stale:
    return Stale()


def names(world: Stale) -> list[str]:
    found = [world.catalog.by_id(request.table_id) for request in world.refreshed]
    return [table.name.table for table in found if table is not None]


def code(world: Stale, text: str) -> str:
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    return caught.value.code


def test_without_the_setting_nothing_is_asked(stale: Stale) -> None:
    stale.execute(SELECT)
    assert stale.engine.requests_of(Survey) == []


@pytest.mark.parametrize(
    "text",
    [
        SELECT,
        "SELECT * FROM n",
        "INSERT INTO plain SELECT * FROM m",
        "CREATE TABLE x AS SELECT * FROM v",
    ],
)
def test_what_reads_older_rows_than_allowed_fails(stale: Stale, text: str) -> None:
    stale.allow("59 min FAIL")
    assert code(stale, text) == "MT_TOO_STALE"
    assert stale.statements() == []
    stale.allow("60 min")
    stale.execute(text)
    assert stale.statements() == [text]


def test_the_error_says_how_old_and_what_to_do(stale: Stale) -> None:
    stale.allow("5 min")
    with pytest.raises(ServerError) as caught:
        stale.execute(SELECT)
    assert "up to 3600 s ago, and 5 MINUTE is allowed" in caught.value.message
    assert f"SET '{KEY}' = '... REFRESH'" in caught.value.hint


def test_tables_whose_sources_have_not_changed_are_fresh(stale: Stale) -> None:
    stale.engine.versions["id-t1"] = 6
    stale.allow("1 s FAIL")
    stale.execute("SELECT * FROM m, n")
    assert stale.refreshed == []


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM plain", "EXPLAIN SELECT * FROM m", "DROP VIEW v", "SHOW TABLES", "USE d"]
    + ["-- why\nCREATE OR REPLACE TEMP VIEW v AS SELECT * FROM m"],
)
def test_what_reads_no_materialized_table_goes_on(stale: Stale, text: str) -> None:
    stale.engine.surveys.setdefault(text, reading("m"))
    stale.allow("1 s FAIL")
    stale.execute(text)
    assert stale.statements() == [text]


def test_serve_reads_and_says_so(stale: Stale) -> None:
    stale.allow("5 min SERVE")
    stale.execute(SELECT)
    assert stale.statements() == [SELECT]
    [line] = stale.logged
    assert line.startswith("Warning: spark_catalog.d.m is stale: it lacks changes")


def test_refresh_refreshes_first_and_sources_before_consumers(stale: Stale) -> None:
    stale.allow("5 min REFRESH")
    stale.execute("SELECT * FROM m, n")
    assert names(stale) == ["m", "n"]
    assert [request.trigger for request in stale.refreshed] == [Trigger.MANUAL] * 2
    assert stale.statements() == ["SELECT * FROM m, n"]
    stale.execute("SELECT * FROM m, n")
    assert names(stale) == ["m", "n"]


def test_refresh_takes_what_makes_a_table_stale_along(stale: Stale) -> None:
    stale.allow("5 min REFRESH")
    stale.execute("SELECT * FROM n")
    assert names(stale) == ["m", "n"]
    ids = {request.refresh_id for request in stale.refreshed}
    assert all(str(refresh_id).startswith(f"op{stale.operations}.") for refresh_id in ids)


def test_inline_reads_the_queries_of_what_is_too_old(stale: Stale) -> None:
    stale.allow("5 min INLINE")
    stale.execute("SELECT * FROM n")
    [request] = [r for r in stale.engine.requests_of(Execute) if "HISTORY" not in r.sql]
    found = {table.name.table: table for table in request.inlined}
    assert {name: table.mentioned for name, table in found.items()} == {"n": True, "m": False}
    assert found["m"].query.startswith("SELECT CAST(`a` AS ")
    assert stale.definition("m").expanded_query in found["m"].query
    stale.allow("2 h INLINE")
    stale.execute("SELECT * FROM n")
    assert stale.engine.requests_of(Execute)[-1].inlined == ()
    assert stale.refreshed == []


@pytest.mark.parametrize(
    "clause",
    [
        "ALTER MATERIALIZED TABLE m SET IMMUTABLE WHERE (a < 1)",
        (
            "CREATE OR ALTER MATERIALIZED TABLE m "
            "(CONSTRAINT p EXPECT (a > 0) ON VIOLATION DROP ROW) AS SELECT * FROM t1"
        ),
    ],
)
def test_rows_that_do_not_follow_from_the_query_alone_are_not_replaced(
    stale: Stale, clause: str
) -> None:
    stale.execute(clause)
    stale.allow("5 min INLINE")
    assert code(stale, SELECT) == "MT_TOO_STALE"
    assert code(stale, "SELECT * FROM n") == "MT_TOO_STALE"


def test_a_refresh_that_fails_fails_the_statement(stale: Stale) -> None:
    stale.allow("5 min REFRESH")
    stale.refresh_failure = ServerError(code="DIVIDE_BY_ZERO", sqlstate="22012", message="no")
    assert code(stale, SELECT) == "DIVIDE_BY_ZERO"
    assert stale.statements() == []


def test_a_table_that_was_never_refreshed_is_too_old(stale: Stale) -> None:
    stale.ledger.history.clear()
    stale.allow("5 min FAIL")
    assert code(stale, SELECT) == "MT_TOO_STALE"
    stale.allow("5 min REFRESH")
    stale.execute(SELECT)
    assert names(stale) == ["m"]


def test_a_statement_that_cannot_be_judged_is_refused(stale: Stale) -> None:
    stale.engine.surveys["EXECUTE IMMEDIATE q"] = Surveyed(opaque=True)
    stale.allow("5 min FAIL")
    assert code(stale, "EXECUTE IMMEDIATE q") == "NOT_SUPPORTED"
    stale.allow("5 min SERVE")
    stale.execute("EXECUTE IMMEDIATE q")


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("soon", "MT_OPTION_VALUE"),
        ("0 min FAIL", "MT_OPTION_VALUE"),
        ("10 min LATER", "MT_OPTION_VALUE"),
    ],
)
def test_an_unusable_bound_is_refused_when_it_is_set(
    stale: Stale, value: str, refused: str
) -> None:
    assert code(stale, f"SET '{KEY}' = '{value}'") == refused
    with pytest.raises(ServerError) as caught:
        stale.execute(SELECT, {KEY: value})
    assert caught.value.code == refused


def test_a_bound_may_come_with_the_statement_or_from_the_server(stale: Stale) -> None:
    with pytest.raises(ServerError, match="MT_TOO_STALE"):
        stale.execute(SELECT, {KEY: "1 min FAIL"})
    stale.config = Config(options={KEY: "1 min FAIL"})
    assert code(stale, SELECT) == "MT_TOO_STALE"
    stale.allow("2 h FAIL")
    stale.execute(SELECT)


def test_refresh_needs_the_privilege_to_refresh(stale: Stale) -> None:
    stale.config = Config(
        server=ServerSection(auth="PASSWORD"), authorization=AuthorizationSection(enabled=True)
    )
    on = {table: TableObject(table_id=stale.table(table).id) for table in ("m", "n")}

    def give(privilege: Privilege, table: str) -> None:
        stale.privileges.grant(
            Grant(
                grantee=user("bob"),
                privilege=privilege,
                object=on[table],
                granted_by="ann",
                granted_at=NOW,
            )
        )

    stale.allow("5 min REFRESH")
    stale.session.user = "bob"
    assert code(stale, "SELECT * FROM n") == "ACCESS_DENIED"
    give(Privilege.SELECT, "n")
    give(Privilege.REFRESH, "n")
    assert code(stale, "SELECT * FROM n") == "ACCESS_DENIED"
    assert stale.refreshed == []
    give(Privilege.REFRESH, "m")
    stale.execute("SELECT * FROM n")
    assert names(stale) == ["m", "n"]
