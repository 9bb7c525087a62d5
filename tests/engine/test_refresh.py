"""Refreshes against real Delta tables: strategies, the one commit, fencing, what is pinned."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.engine.conftest import Session
from tests.support.materialized import new_order, task_of
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import (
    Analysis,
    Done,
    LastCommitted,
    Planned,
    Refreshed,
    TableCreated,
    Versions,
)
from tidegate_server.core.messages.requests import (
    Analyze,
    CreateTable,
    DropTable,
    ExplainRefresh,
    LastCommit,
    Refresh,
    SetTableProperties,
    SourceVersions,
)
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import (
    Recompute,
    RefreshOrder,
    RefreshOutcome,
    RefreshPolicy,
)

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

WHOLE = Recompute()


class Materialized:
    """A materialized table as the gateway would drive it."""

    def __init__(
        self, session: Session, schema: str, query: str, partition_keys: tuple[str, ...] = ()
    ) -> None:
        self.session = session
        self.id = str(uuid.uuid4())
        self.name = TableName("spark_catalog", schema, "mt")
        self.keys = partition_keys
        analysis = session.client.call(Analyze(session_id=session.id, sql=query))
        assert isinstance(analysis, Analysis)
        self.analysis = analysis
        self.create = CreateTable(
            name=self.name,
            schema=analysis.schema,
            partition_keys=partition_keys,
            comment="it's \\ here",
            properties={"tidegate.id": self.id, "tidegate.query": query},
        )
        created = session.client.call(self.create)
        assert isinstance(created, TableCreated)
        self.created = created
        self.epoch = 0

    def order(self, **changed: object) -> RefreshOrder:
        self.epoch += 1
        query, columns = self.analysis.expanded_query, self.analysis.schema.names()
        given = {"partition_keys": self.keys, **changed}
        sources = self.analysis.sources
        return new_order(self.id, self.name, query, columns, sources, self.epoch, **given)

    def run(self, order: RefreshOrder, task: Recompute = WHOLE) -> RefreshOutcome:
        answer = self.session.client.call(Refresh(order=order, task=task))
        assert isinstance(answer, Refreshed)
        return answer.outcome

    def refresh(self, **changed: object) -> RefreshOutcome:
        return self.run(self.order(**changed), task_of(changed))

    def rows(self) -> list[tuple[object, ...]]:
        return sorted(self.session.rows("SELECT * FROM mt"), key=repr)

    def last(self) -> LastCommitted:
        answer = self.session.client.call(LastCommit(name=self.name, table_id=self.id))
        assert isinstance(answer, LastCommitted)
        return answer


Make = Callable[..., Materialized]


@pytest.fixture
def make(session: Session, schema: str) -> Make:
    session.execute("CREATE TABLE t (k STRING, n INT) USING delta")
    session.execute("INSERT INTO t VALUES ('a', 1), ('a', 2), ('b', 3)")
    return lambda query, *keys: Materialized(session, schema, query, keys)


def test_the_first_refresh_fills_the_table_in_one_commit(make: Make, session: Session) -> None:
    mt = make("SELECT k, sum(n) AS total FROM t GROUP BY k", "k")
    assert mt.last() == LastCommitted(commit=None, exists=True)
    order = mt.order()
    outcome = mt.run(order)
    assert (outcome.plan.strategy, outcome.plan.reason_code) == (Strategy.FULL, "FIRST_REFRESH")
    assert (outcome.from_version, outcome.to_version, outcome.metrics.rows_written) == (None, 1, 2)
    assert mt.rows() == [("a", 3), ("b", 3)]
    metadata = json.loads(str(session.rows("DESCRIBE HISTORY mt LIMIT 1")[0][13]))
    assert metadata == {
        "mt": mt.id,
        "refresh_id": order.refresh_id,
        "epoch": 1,
        "definition_version": 1,
        "sources": {mt.analysis.sources[0].table_id: 1},
        "trigger": "MANUAL",
        "logical_time": "2026-01-01T00:00:00+00:00",
        "strategy": "FULL",
        "partial": False,
        "filled": True,
        "fingerprint": metadata["fingerprint"],
        "commits": metadata["commits"],
    }
    assert metadata["commits"].keys() == metadata["sources"].keys()
    commit = mt.last().commit
    assert commit is not None
    assert (commit.epoch, commit.version, dict(commit.vector)) == (1, 1, metadata["sources"])


def test_columns_that_cannot_be_null_stay_so_for_tables_downstream(
    make: Make, session: Session
) -> None:
    mt = make("SELECT coalesce(k, '') AS k, count(*) AS n FROM t GROUP BY k", "k")
    mt.refresh()
    below = session.client.call(Analyze(session_id=session.id, sql="SELECT k, n FROM mt"))
    assert isinstance(below, Analysis)
    assert [column.nullable for column in below.schema] == [False, False]


def test_unchanged_sources_make_no_commit(make: Make) -> None:
    mt = make("SELECT k FROM t")
    mt.refresh()
    outcome = mt.refresh()
    assert outcome.plan.strategy is Strategy.NO_DATA
    assert (outcome.to_version, outcome.metrics.rows_written) == (1, 0)
    assert mt.last().commit.version == 1  # type: ignore[union-attr]


def test_maintenance_of_a_source_is_no_change(make: Make, session: Session) -> None:
    mt = make("SELECT k FROM t")
    mt.refresh()
    session.execute("INSERT INTO t VALUES ('c', 4)")
    mt.refresh()
    session.execute("OPTIMIZE t")
    session.execute("ALTER TABLE t SET TBLPROPERTIES ('x' = 'y')")
    assert mt.refresh().plan.strategy is Strategy.NO_DATA


def test_a_changed_source_is_read_anew(make: Make, session: Session) -> None:
    mt = make("SELECT k, n FROM t")
    mt.refresh()
    session.execute("DELETE FROM t WHERE n < 3")
    outcome = mt.refresh(policy=RefreshPolicy.FULL)
    assert (outcome.plan.strategy, outcome.from_version) == (Strategy.FULL, 1)
    assert mt.rows() == [("b", 3)]


def test_a_query_of_the_time_is_refreshed_without_changes(make: Make) -> None:
    mt = make("SELECT k, current_timestamp() AS at FROM t")
    mt.refresh()
    assert mt.refresh().plan.reason_code == "UNSTABLE_QUERY"


def test_only_requested_partitions_are_replaced(make: Make, session: Session) -> None:
    mt = make("SELECT k, sum(n) AS total FROM t GROUP BY k", "k")
    mt.refresh()
    session.execute("INSERT INTO t VALUES ('a', 10), ('b', 10), ('c''\\\\', 10)")
    outcome = mt.refresh(partitions=({"k": "a"}, {"k": "c'\\"}))
    assert (outcome.plan.strategy, outcome.metrics.rows_written) == (Strategy.PARTITION, 2)
    assert set(mt.rows()) == {("a", 13), ("b", 3), ("c'\\", 10)}
    assert mt.last().commit.partial  # type: ignore[union-attr]
    assert mt.refresh().plan.reason_code == "PARTIAL_BEFORE"
    assert set(mt.rows()) == {("a", 13), ("b", 13), ("c'\\", 10)}


def test_a_partial_specification_replaces_all_partitions_under_it(
    make: Make, session: Session
) -> None:
    mt = make("SELECT k, CAST(n AS STRING) AS hh, n FROM t", "k", "hh")
    mt.refresh()
    before = set(mt.rows())
    session.execute("INSERT INTO t VALUES ('a', 10), ('a', 11), ('b', 10)")
    outcome = mt.refresh(partitions=({"k": "a"},))
    assert outcome.plan.strategy is Strategy.PARTITION
    assert set(mt.rows()) == before | {("a", "10", 10), ("a", "11", 11)}


def test_a_table_of_partition_keys_alone_is_refreshed_by_partition(
    make: Make, session: Session
) -> None:
    mt = make("SELECT DISTINCT k FROM t", "k")
    mt.refresh()
    before = set(mt.rows())
    session.execute("INSERT INTO t VALUES ('c', 10), ('d', 10)")
    assert mt.refresh(partitions=({"k": "c"},)).plan.strategy is Strategy.PARTITION
    assert set(mt.rows()) == before | {("c",)}
    mt.refresh()
    assert set(mt.rows()) == before | {("c",), ("d",)}


def test_a_partition_value_is_data(make: Make) -> None:
    mt = make("SELECT k, n FROM t", "k")
    mt.refresh()
    assert mt.refresh(partitions=({"k": "x' OR '1' = '1"},)).metrics.rows_written == 0
    assert len(mt.rows()) == 3


def test_partitions_of_unchanged_sources_leave_the_table_whole(make: Make) -> None:
    mt = make("SELECT k, n FROM t", "k")
    mt.refresh()
    mt.refresh(partitions=({"k": "a"},))
    assert mt.refresh().plan.strategy is Strategy.NO_DATA


def test_typed_partition_columns_are_compared_by_value(make: Make) -> None:
    mt = make("SELECT k, DATE'2026-01-01' + n AS d FROM t", "d")
    mt.refresh()
    assert mt.refresh(partitions=({"d": "2026-01-03"},)).metrics.rows_written == 1
    assert len(mt.rows()) == 3


def test_a_lower_epoch_is_fenced(make: Make) -> None:
    mt = make("SELECT k FROM t")
    mt.refresh(epoch=5)
    with pytest.raises(ServerError) as caught:
        mt.refresh(epoch=4, force=True)
    assert caught.value.code == "MT_REFRESH_FENCED"
    assert "epoch 5" in caught.value.message


def test_the_same_refresh_again_finds_its_own_commit(make: Make) -> None:
    mt = make("SELECT k FROM t")
    order = mt.order()
    assert mt.run(order).to_version == mt.run(order).to_version == 1


def test_a_foreign_commit_makes_the_next_refresh_full(make: Make, session: Session) -> None:
    mt = make("SELECT k FROM t")
    mt.refresh()
    write_deltalake(mt.created.location, pa.table({"k": ["foreign"]}), mode="append")
    assert mt.refresh().plan.reason_code == "FOREIGN_COMMIT"
    assert len(mt.rows()) == 3


def test_tables_behind_views_are_pinned_and_recorded(make: Make, session: Session) -> None:
    session.execute("CREATE VIEW v (key, number) AS SELECT * FROM t -- all")
    mt = make("SELECT v.key, t.n FROM v JOIN t ON v.number = t.n")
    mt.refresh()
    session.execute("INSERT INTO t VALUES ('d', 9)")
    assert mt.refresh().plan.reason_code == "ROWS_APPENDED"
    assert mt.rows() == [("a", 1), ("a", 2), ("b", 3), ("d", 9)]


def test_a_view_that_reads_another_table_by_now_is_followed(make: Make, session: Session) -> None:
    session.execute("CREATE VIEW v AS SELECT k FROM t")
    mt = make("SELECT k FROM v")
    mt.refresh()
    session.execute("CREATE TABLE u (k STRING) USING delta")
    session.execute("ALTER VIEW v AS SELECT k FROM u")
    mt.refresh()
    assert mt.rows() == []


def test_a_source_that_is_gone_is_named(make: Make, session: Session) -> None:
    mt = make("SELECT k FROM t")
    session.execute("DROP TABLE t")
    with pytest.raises(ServerError) as caught:
        mt.refresh()
    assert caught.value.code == "MT_SOURCE_NOT_FOUND"
    assert ".t of " in caught.value.message


def test_versions_of_sources_are_told_by_their_current_id(make: Make, session: Session) -> None:
    mt = make("SELECT k FROM t")
    ask = SourceVersions(sources=mt.analysis.sources)
    (source,) = mt.analysis.sources
    assert session.client.call(ask) == Versions(versions={source.table_id: 1})
    session.execute("DROP TABLE t")
    assert session.client.call(ask) == Versions(versions={})
    session.execute("CREATE TABLE t (k STRING, n INT) USING delta")
    again = session.client.call(ask)
    assert isinstance(again, Versions)
    assert source.table_id not in again.versions
    assert list(again.versions.values()) == [0]


def test_explaining_plans_and_writes_nothing(make: Make, session: Session) -> None:
    mt = make("SELECT k FROM t")
    answer = session.client.call(ExplainRefresh(order=mt.order(), task=Recompute()))
    assert isinstance(answer, Planned)
    assert answer.plan.reason_code == "FIRST_REFRESH"
    assert mt.last().commit is None


def test_a_materialized_table_is_known_as_a_source(make: Make, session: Session) -> None:
    make("SELECT k FROM t")
    answer = session.client.call(Analyze(session_id=session.id, sql="SELECT k FROM mt"))
    assert isinstance(answer, Analysis)
    assert answer.sources[0].materialized_table


def test_creating_again_is_harmless_and_another_id_is_refused(make: Make, session: Session) -> None:
    mt = make("SELECT k AS `a b` FROM t")
    assert session.client.call(mt.create) == mt.created
    with pytest.raises(ServerError) as caught:
        session.client.call(replace(mt.create, properties={"tidegate.id": "other"}))
    assert caught.value.code == "TABLE_OR_VIEW_ALREADY_EXISTS"


def test_properties_are_set_and_a_refresh_does_not_lose_them(make: Make, session: Session) -> None:
    mt = make("SELECT k FROM t")
    properties = {"tidegate.note": "it's \\ ok"}
    assert (
        session.client.call(
            SetTableProperties(name=mt.name, table_id=mt.created.table_id, properties=properties)
        )
        == Done()
    )
    mt.refresh()
    shown = dict(session.rows("SHOW TBLPROPERTIES mt"))
    assert shown["tidegate.note"] == "it's \\ ok"
    assert shown["tidegate.id"] == mt.id
    assert shown["delta.enableChangeDataFeed"] == "true"


def test_only_the_table_of_that_id_is_dropped(make: Make, session: Session) -> None:
    mt = make("SELECT k FROM t")
    session.client.call(DropTable(name=mt.name, table_id="another"))
    assert mt.last().exists
    session.client.call(DropTable(name=mt.name, table_id=mt.id))
    assert not mt.last().exists
    assert session.client.call(DropTable(name=mt.name, table_id=mt.id)) == Done()
