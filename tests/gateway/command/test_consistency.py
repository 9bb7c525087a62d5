"""Versions that agree are chosen before a query on several tables is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from tests.contract.examples import run
from tests.gateway.command.fakes import NOW, World, analysis
from tests.gateway.command.guarded import SurveyingEngine
from tidegate_server.core.config import Config
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Reading, Surveyed
from tidegate_server.core.messages.requests import Execute, PinnedVersions, Survey, TableVersion
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.states import RunState

KEY = "materialized-table.read.consistency"
BOUND = "materialized-table.read.max-staleness"
BOTH = "SELECT * FROM m, n"


def name(table: str) -> TableName:
    return TableName("spark_catalog", "d", table)


def reading(*tables: str, travelled: bool = False) -> Surveyed:
    found = (Reading(name=name(table), travelled=travelled) for table in tables)
    return Surveyed(readings=tuple(found))


@dataclass
class Torn(World):
    """m reads t1, and n reads m; m was refreshed once more than n, a minute ago."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.engine: SurveyingEngine = SurveyingEngine()
        self.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
        self.engine.analyses["SELECT 2"] = analysis(analysis().schema, "m")
        self.execute("CREATE MATERIALIZED TABLE n AS SELECT 2")
        self.engine.surveys.update(
            {
                BOTH: reading("m", "n"),
                "SELECT * FROM m": reading("m"),
                "SELECT * FROM m a, m b": reading("m", "m"),
                "SELECT * FROM n, t1": reading("n", "t1"),
                "SELECT * FROM n, other": reading("n", "other"),
                "SELECT * FROM n, m VERSION AS OF 3": Surveyed(
                    readings=(
                        *reading("n").readings,
                        *reading("m", travelled=True).readings,
                    )
                ),
            }
        )
        self.refreshed_to("m", 3, {"id-t1": 6}, hours=2)
        self.refreshed_to("n", 8, {"id-m": 3}, hours=2)
        self.refreshed_to("m", 4, {"id-t1": 7}, hours=0)
        self.execute(f"SET '{KEY}' = 'SNAPSHOT'")

    def refreshed_to(self, table: str, version: int, read: dict[str, int], *, hours: int) -> None:
        past, found = NOW - timedelta(hours=hours), self.table(table)
        done = run(
            refresh_id=f"r-{table}-{version}",
            table_id=found.id,
            table=found.name,
            state=RunState.SUCCEEDED,
            queued_at=past,
            data_timestamp=past,
            requested_by="ann",
            action=Strategy.FULL,
            sources=read,
            to_version=version,
        )
        self.ledger.history.append(done)

    def pinned_versions(self) -> PinnedVersions | None:
        return self.engine.requests_of(Execute)[-1].pinned


@pytest.fixture
def torn() -> Torn:
    return Torn()


def code(world: Torn, text: str) -> str:
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    return caught.value.code


def test_a_query_on_several_tables_reads_versions_that_agree(torn: Torn) -> None:
    torn.execute(BOTH)
    assert torn.pinned_versions() == PinnedVersions(
        tables=(
            TableVersion(name=name("m"), version=3),
            TableVersion(name=name("n"), version=8),
        ),
        sources={"id-t1": 6},
    )
    assert torn.logged == ["Reading version 3 of spark_catalog.d.m, version 8 of spark_catalog.d.n"]
    torn.refreshed_to("n", 9, {"id-m": 4}, hours=0)
    torn.execute(BOTH)
    assert (
        torn.logged[-1] == "Reading version 4 of spark_catalog.d.m, version 9 of spark_catalog.d.n"
    )


def test_a_source_beside_its_consumer_is_read_as_that_knows_it(torn: Torn) -> None:
    torn.execute("SELECT * FROM n, t1")
    assert torn.pinned_versions() == PinnedVersions(
        tables=(TableVersion(name=name("n"), version=8),), sources={"id-t1": 6}
    )


@pytest.mark.parametrize(
    "text", ["SELECT * FROM m", "SELECT * FROM n, other", "SELECT * FROM n, m VERSION AS OF 3"]
)
def test_a_table_alone_is_read_at_its_newest(torn: Torn, text: str) -> None:
    torn.execute(text)
    assert torn.pinned_versions() is None


def test_every_mention_of_one_table_reads_one_version(torn: Torn) -> None:
    torn.execute("SELECT * FROM m a, m b")
    assert torn.pinned_versions() == PinnedVersions(tables=(TableVersion(name=name("m")),))


def test_no_versions_that_agree_is_an_error_with_a_way_out(torn: Torn) -> None:
    torn.ledger.history = [run for run in torn.ledger.history if run.to_version != 3]
    with pytest.raises(ServerError) as caught:
        torn.execute(BOTH)
    assert (caught.value.code, caught.value.sqlstate) == ("MT_SNAPSHOT_UNAVAILABLE", "55000")
    assert caught.value.message.startswith(
        "No consistent versions of spark_catalog.d.m, spark_catalog.d.n can be read: "
    )
    assert "no earlier version of spark_catalog.d.m agrees with the others" in caught.value.message
    assert "REFRESH CASCADE" in caught.value.hint
    assert f"SET '{KEY}' = 'LATEST'" in caught.value.hint
    torn.execute(f"SET '{KEY}' = 'latest'")
    torn.execute(BOTH)
    assert torn.pinned_versions() is None


def test_a_run_without_work_tells_of_a_version_whose_own_run_is_lost(torn: Torn) -> None:
    torn.ledger.history.clear()
    for table, version, read in (("m", 5, {"id-t1": 9}), ("n", 9, {"id-m": 5})):
        torn.refreshed_to(table, version, read, hours=0)
    torn.ledger.history = [_without_work(run) for run in torn.ledger.history]
    torn.execute(BOTH)
    assert torn.logged == ["Reading version 5 of spark_catalog.d.m, version 9 of spark_catalog.d.n"]


def _without_work(run: RefreshRun) -> RefreshRun:
    return replace(run, action=Strategy.NO_DATA)


def test_versions_that_agree_are_as_fresh_as_the_session_asks_for(torn: Torn) -> None:
    torn.engine.versions.update({"id-t1": 7, "id-m": 4})
    torn.execute(f"SET '{BOUND}' = '3 h FAIL'")
    torn.execute(BOTH)
    torn.execute(f"SET '{BOUND}' = '1 h SERVE'")
    torn.execute(BOTH)
    assert any("Warning: spark_catalog.d.m is stale" in line for line in torn.logged)
    torn.refreshed_to("n", 9, {"id-m": 4}, hours=0)
    torn.execute(f"SET '{BOUND}' = '1 h FAIL'")
    torn.execute(BOTH)
    torn.refreshed_to("m", 5, {"id-t1": 7}, hours=0)
    assert torn.engine.requests_of(Execute)[-1].sql == BOTH


def test_versions_that_are_too_old_are_not_read(torn: Torn) -> None:
    torn.engine.versions.update({"id-t1": 7, "id-m": 3})
    torn.execute(f"SET '{BOUND}' = '1 h FAIL'")
    assert code(torn, BOTH) == "MT_TOO_STALE"


def test_inline_and_snapshot_do_not_go_together(torn: Torn) -> None:
    torn.engine.versions.update({"id-t1": 8, "id-m": 4})
    torn.execute(f"SET '{BOUND}' = '1 h INLINE'")
    assert code(torn, BOTH) == "NOT_SUPPORTED"


def test_a_statement_that_cannot_be_judged_is_refused(torn: Torn) -> None:
    torn.engine.surveys["EXECUTE IMMEDIATE q"] = Surveyed(opaque=True)
    assert code(torn, "EXECUTE IMMEDIATE q") == "NOT_SUPPORTED"


@pytest.mark.parametrize("text", ["EXPLAIN SELECT * FROM m, n", "CREATE VIEW v AS SELECT 1"])
def test_what_reads_no_rows_goes_on(torn: Torn, text: str) -> None:
    torn.engine.surveys[text] = reading("m", "n")
    torn.execute(text)
    assert torn.pinned_versions() is None


def test_without_the_option_nothing_is_asked(torn: Torn) -> None:
    torn.execute(f"RESET '{KEY}'")
    torn.execute(BOTH)
    assert torn.engine.requests_of(Survey) == []


def test_the_option_may_come_with_the_statement_or_from_the_server(torn: Torn) -> None:
    torn.execute(f"RESET '{KEY}'")
    torn.execute(BOTH, {KEY: "snapshot"})
    assert torn.pinned_versions() is not None
    torn.config = Config(options={KEY: "SNAPSHOT"})
    torn.execute(BOTH)
    assert torn.pinned_versions() is not None
    assert code(torn, f"SET '{KEY}' = 'SOMETIMES'") == "MT_OPTION_VALUE"
