"""ALTER ... REFRESH: requests, cascades and what a failed run answers."""

from __future__ import annotations

import json

import pytest

from tests.contract.examples import NOON, vary
from tests.contract.examples import run as finished
from tests.gateway.command.fake_storage import Stored
from tests.gateway.command.fakes import T1, World, analysis, name
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Execute, ExplainRefresh, SourceVersions
from tidegate_server.core.model.runs import Rejection, SourceChange, Strategy, Trigger
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import ColumnOrigin
from tidegate_server.core.refresh.request import RefreshPlan, RefreshPolicy, RefreshRequest
from tidegate_server.core.refresh.steps import ComputeQuery, Recording, ReplaceRows

PLAN = RefreshPlan(
    strategy=Strategy.FULL,
    reason_code="CHANGE_TOO_LARGE",
    reason_text="90 rows",
    vector={"t1-id": 7},
    predicted_seconds=2.5,
    affected_keys=3,
    changes=(
        SourceChange(source="spark_catalog.d.t1", before=5, after=7, method="CHANGE_FEED", rows=90),
    ),
    rejected=(
        Rejection(
            strategy="INCREMENTAL", reason_code="CHANGE_TOO_LARGE", reason_text="90 rows", cost=7.5
        ),
        Rejection(strategy="PARTITION", reason_code="NOT_PARTITIONED", reason_text="no keys"),
    ),
    steps=(ComputeQuery(recording=Recording.AGGREGATES), ReplaceRows()),
)
SUCCEEDED = {"state": RunState.SUCCEEDED, "started_at": NOON, "finished_at": NOON}
CHANGED = json.dumps(
    [{"source": "spark_catalog.d.t1", "before": 5, "after": 7, "method": "CHANGE_FEED", "rows": 90}]
)


def make(
    world: World, table: str, *sources: str, partitioned: str = "", formatter: str = ""
) -> None:
    """Create a table that passes the columns of all its sources through."""
    query = f"SELECT * FROM {', '.join(sources)}"
    world.engine.analyses[query] = analysis(T1, *sources)
    by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
    if formatter:
        by += f" WITH ('partition.fields.{partitioned}.date-formatter' = '{formatter}')"
    world.execute(f"CREATE MATERIALIZED TABLE {table} {by} REFRESH_MODE = FULL AS {query}")
    lineage = tuple(
        ColumnOrigin(column=c.name, source=name(s), source_column=c.name, unchanged=True)
        for c in T1
        for s in sources
    )
    world.catalog.replace(vary(world.table(table), lineage=lineage))


def refreshes(world: World) -> list[tuple[str, list[dict[str, str]]]]:
    found = []
    for request in world.refreshed:
        table = world.catalog.by_id(request.table_id)
        assert table is not None
        found.append((table.name.table, [dict(spec) for spec in request.recompute.partitions]))
    return found


def test_refresh_answers_job_id_and_cluster_info(world: World) -> None:
    make(world, "m", "t1")
    [(job, info)] = world.rows("ALTER MATERIALIZED TABLE m REFRESH")
    assert job == f"op{world.operations}"
    assert json.loads(str(info))["table"] == "spark_catalog.d.m"
    assert not world.refreshed[0].recompute.force
    assert world.refreshed[0].trigger is Trigger.MANUAL


def test_refresh_full_is_forced(world: World) -> None:
    make(world, "m", "t1")
    world.execute("ALTER MATERIALIZED TABLE m REFRESH FULL")
    assert world.refreshed[0].recompute.force


def test_partition_values_travel_as_data(world: World) -> None:
    make(world, "m", "t1", partitioned="d")
    world.execute("ALTER MATERIALIZED TABLE m REFRESH PARTITION (D = 'x'' OR 1=1')")
    assert refreshes(world) == [("m", [{"d": "x' OR 1=1"}])]


def test_a_partition_column_that_is_no_string_is_refused(world: World) -> None:
    make(world, "m", "t1", partitioned="c")
    with pytest.raises(ServerError) as caught:
        world.execute("ALTER MATERIALIZED TABLE m REFRESH PARTITION (c = 1)")
    assert caught.value.code == Code.MT_PARTITION_TYPE.name


def test_cascade_goes_down_in_topological_order(world: World) -> None:
    make(world, "base", "t1", partitioned="d")
    make(world, "a", "base", partitioned="d")
    make(world, "z", "base")
    make(world, "top", "a", "z", partitioned="b, d")
    make(world, "elsewhere", "t1")
    rows = world.rows("ALTER MATERIALIZED TABLE base REFRESH PARTITION (d = '1') CASCADE")
    order = refreshes(world)
    assert len(rows) == 4
    assert order[0] == ("base", [{"d": "1"}])
    assert sorted(order[1:3]) == [("a", [{"d": "1"}]), ("z", [])]
    assert order[3] == ("top", [])  # since z, which it reads too, was refreshed as a whole
    assert [request.trigger for request in world.refreshed[1:]] == [Trigger.CASCADE] * 3


def test_a_failed_run_raises_its_own_error_and_ends_the_cascade(world: World) -> None:
    make(world, "m", "t1")
    make(world, "n", "m")
    world.refresh_failure = error(Code.MT_DATA_LOST, table="spark_catalog.d.m", reason="gone")
    with pytest.raises(ServerError, match="gone") as caught:
        world.execute("ALTER MATERIALIZED TABLE m REFRESH CASCADE")
    assert caught.value.code == Code.MT_DATA_LOST.name
    assert len(world.refreshed) == 1


def test_explain_refresh_answers_the_plan_and_runs_nothing(world: World) -> None:
    make(world, "m", "t1")
    world.engine.plan = PLAN
    assert world.rows("EXPLAIN REFRESH m") == [
        ("spark_catalog.d.m", "CHOSEN", "FULL", "CHANGE_TOO_LARGE", "90 rows", 2.5, 3, CHANGED),
        (
            "spark_catalog.d.m",
            "REJECTED",
            "INCREMENTAL",
            "CHANGE_TOO_LARGE",
            "90 rows",
            7.5,
            None,
            None,
        ),
        (
            "spark_catalog.d.m",
            "REJECTED",
            "PARTITION",
            "NOT_PARTITIONED",
            "no keys",
            None,
            None,
            None,
        ),
        *(
            ("spark_catalog.d.m", "STEP", "", code, text, None, None, None)
            for code, text in (
                ("COMPUTE_QUERY", "compute the query; record the aggregates of each group"),
                ("REPLACE_ROWS", "replace all rows in one commit"),
            )
        ),
    ]
    assert world.refreshed == []


def test_explain_plans_with_what_a_run_plans_with(world: World) -> None:
    make(world, "m", "t1")
    make(world, "n", "m")
    for table in ("m", "n"):
        id_ = world.table(table).id
        ended = finished(table_id=id_, action=Strategy.FULL, to_version=1, **SUCCEEDED)
        world.ledger.history.append(ended)
        idle = finished(table_id=id_, action=Strategy.NO_DATA, to_version=1, **SUCCEEDED)
        world.ledger.history.append(idle)
    world.execute("EXPLAIN REFRESH m")
    [asked] = world.engine.requests_of(ExplainRefresh)
    assert isinstance(asked, ExplainRefresh)
    assert [past.strategy for past in asked.order.history] == [Strategy.FULL]
    assert [past.strategy for past in asked.order.elsewhere] == [Strategy.FULL]
    assert asked.order.has_consumers


def test_explain_tells_each_step_of_a_wave(world: World) -> None:
    make(world, "m", "t1", partitioned="d", formatter="yyyy-MM-dd")
    make(world, "n", "m", partitioned="d")
    make(world, "o", "n")
    rows = world.rows(
        "EXPLAIN REFRESH m PARTITION FROM (d='2024-01-01') TO (d='2024-01-02') CASCADE"
    )
    assert [row[:4] for row in rows] == [
        ("spark_catalog.d.m", "CHOSEN", "FULL", "FORCED"),
        ("spark_catalog.d.n", "LATER", "", "AFTER_UPSTREAM"),
        ("spark_catalog.d.o", "LATER", "", "AFTER_UPSTREAM"),
    ]
    assert rows[1][4] == "2 partitions, decided when spark_catalog.d.m is refreshed"
    assert rows[2][4] == "the table, decided when spark_catalog.d.n is refreshed"
    assert world.refreshed == []


# ---- forms -------------------------------------------------------------------------------------


def test_incremental_and_full_are_policies(world: World) -> None:
    make(world, "m", "t1")
    for word in ("INCREMENTAL", "FULL"):
        world.execute(f"ALTER MATERIALIZED TABLE m REFRESH {word}")
    assert [r.policy for r in world.refreshed] == [RefreshPolicy.INCREMENTAL, RefreshPolicy.FULL]


def test_a_predicate_is_passed_on_as_written(world: World) -> None:
    make(world, "m", "t1")
    world.execute("ALTER MATERIALIZED TABLE m REFRESH WHERE a > 5 AND b = 'x'")
    assert world.refreshed[0].recompute.predicate == "a > 5 AND b = 'x'"


def test_a_range_is_refreshed_one_partition_at_a_time_on_one_vector(world: World) -> None:
    make(world, "m", "t1", partitioned="d", formatter="yyyy-MM-dd")
    rows = world.rows(
        "ALTER MATERIALIZED TABLE m REFRESH PARTITION FROM (d='2024-01-01') TO (d='2024-01-03')"
    )
    assert [specs for _, specs in refreshes(world)] == [
        [{"d": f"2024-01-0{day}"}] for day in (1, 2, 3)
    ]
    assert {r.trigger for r in world.refreshed} == {Trigger.BACKFILL}
    assert [dict(r.recompute.vector or {}) for r in world.refreshed] == [{"id-t1": 7}] * 3
    assert len({r.wave_id for r in world.refreshed}) == 1
    assert [job for job, _ in rows] == ["op2", "op2.p2", "op2.p3"]
    assert "Partition 2 of 3 (d = 2024-01-02): SUCCEEDED" in world.logged


def test_an_interrupted_range_goes_on_where_it_was(world: World) -> None:
    make(world, "m", "t1", partitioned="d", formatter="yyyy-MM-dd")
    statement = (
        "ALTER MATERIALIZED TABLE m REFRESH PARTITION FROM (d='2024-01-01') TO (d='2024-01-03')"
    )
    world.failing_partition = {"d": "2024-01-02"}
    with pytest.raises(ServerError, match="1 of 2 refreshes succeeded"):
        world.execute(statement)
    world.failing_partition = None
    world.refreshed.clear()
    world.execute(statement)
    assert [specs for _, specs in refreshes(world)] == [
        [{"d": "2024-01-02"}],
        [{"d": "2024-01-03"}],
    ]
    assert world.queue.waiting == {}
    world.refreshed.clear()
    world.execute(statement)
    assert len(world.refreshed) == 3


def test_a_range_goes_on_below_with_all_its_partitions(world: World) -> None:
    make(world, "m", "t1", partitioned="d", formatter="yyyy-MM-dd")
    make(world, "n", "m", partitioned="d")
    world.execute(
        "ALTER MATERIALIZED TABLE m REFRESH PARTITION FROM (d='2024-01-01') TO (d='2024-01-02') "
        "CASCADE"
    )
    assert refreshes(world)[-1] == ("n", [{"d": "2024-01-01"}, {"d": "2024-01-02"}])


def test_a_range_without_date_pattern_asks_which_partitions_there_are(world: World) -> None:
    make(world, "m", "t1", partitioned="d")
    with pytest.raises(ServerError, match="no partition"):
        world.execute("ALTER MATERIALIZED TABLE m REFRESH PARTITION FROM (d='a') TO (d='b''')")
    [asked] = world.engine.requests_of(Execute)
    assert isinstance(asked, Execute)
    assert "struct(`d`) BETWEEN struct('a') AND struct('b\\'')" in asked.sql


@pytest.mark.parametrize(
    ("ends", "code", "at"),
    [
        ("FROM (d='2024-01-02') TO (d='2024-01-01')", "MT_PARTITION_RANGE", None),
        ("FROM (x='1') TO (x='2')", "MT_PARTITION_UNKNOWN", "x="),
        ("FROM (d='2024-01-01') TO (c='1')", "MT_PARTITION_UNKNOWN", "c="),
    ],
)
def test_a_useless_range_is_refused(world: World, ends: str, code: str, at: str | None) -> None:
    make(world, "m", "t1", partitioned="d", formatter="yyyy-MM-dd")
    text = f"ALTER MATERIALIZED TABLE m REFRESH PARTITION {ends}"
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    assert caught.value.code == code
    assert caught.value.column == (text.index(at) + 1 if at else None)
    assert world.refreshed == []


def test_async_answers_the_job_at_once(world: World) -> None:
    make(world, "m", "t1")
    world.go_on.clear()
    [(job, info)] = world.rows("ALTER MATERIALIZED TABLE m REFRESH ASYNC")
    assert (job, json.loads(str(info))["state"]) == (f"op{world.operations}", "QUEUED")
    assert world.refreshed == []
    world.go_on.set()
    assert world.ran.wait(10)
    assert len(world.refreshed) == 1


# ---- waves -------------------------------------------------------------------------------------


def test_a_wave_reads_one_version_of_every_source(world: World) -> None:
    make(world, "base", "t1")
    make(world, "a", "base", "t2")
    make(world, "top", "a", "t1")
    world.engine.versions = {"id-base": 90, "id-a": 500}
    world.execute("ALTER MATERIALIZED TABLE base REFRESH CASCADE")
    vectors = [dict(request.recompute.vector or {}) for request in world.refreshed]
    assert vectors[0] == {"id-t1": 7, "id-t2": 7}
    assert vectors[1] == {"id-t1": 7, "id-t2": 7, "id-base": 90}
    assert vectors[2] == {"id-t1": 7, "id-t2": 7, "id-a": 102}
    assert {request.wave_id for request in world.refreshed} == {f"op{world.operations}"}


def test_a_failed_step_stops_only_what_reads_it(world: World) -> None:
    make(world, "base", "t1")
    make(world, "bad", "base")
    make(world, "good", "base")
    make(world, "below", "bad")
    make(world, "last", "below", "good")
    world.refresh_failure = error(Code.MT_DATA_LOST, table="spark_catalog.d.bad", reason="gone")
    world.failing = "bad"
    with pytest.raises(ServerError, match="2 of 5 refreshes succeeded") as caught:
        world.execute("ALTER MATERIALIZED TABLE base REFRESH CASCADE")
    assert caught.value.code == Code.MT_DATA_LOST.name
    assert sorted(table for table, _ in refreshes(world)) == ["bad", "base", "good"]
    stopped = [run for run in world.ledger.history if run.state is RunState.UPSTREAM_FAILED]
    assert [run.reason_code for run in stopped] == ["UPSTREAM_FAILED"] * 2
    assert world.queue.waiting == {}


def test_cascade_upstream_refreshes_what_it_reads_first(world: World) -> None:
    make(world, "base", "t1")
    make(world, "left", "base")
    make(world, "right", "base")
    make(world, "top", "left", "right")
    rows = world.rows("ALTER MATERIALIZED TABLE top REFRESH CASCADE UPSTREAM")
    order = [table for table, _ in refreshes(world)]
    assert (order[0], sorted(order[1:3]), order[3]) == ("base", ["left", "right"], "top")
    assert rows[-1][0] == f"op{world.operations}"


def test_without_an_engine_no_step_of_a_wave_is_left_waiting(world: World) -> None:
    make(world, "base", "t1")
    make(world, "a", "base")
    world.engine.failures[SourceVersions] = error(Code.ENGINE_UNAVAILABLE, reason="down")
    with pytest.raises(ServerError):
        world.execute("ALTER MATERIALIZED TABLE base REFRESH CASCADE")
    assert world.queue.waiting == {}
    assert [run.state for run in world.ledger.history[-2:]] == [RunState.CANCELLED] * 2


def test_cancel_refresh_stops_every_run_of_the_table(world: World) -> None:
    make(world, "m", "t1")
    make(world, "n", "t1")
    for number, table in enumerate(("m", "m", "n")):
        request = RefreshRequest(
            table_id=world.table(table).id,
            trigger=Trigger.MANUAL,
            requested_by="ann",
            refresh_id=f"r{number}",
        )
        world.queue.enqueue(request)
    rows = world.rows("ALTER MATERIALIZED TABLE m CANCEL REFRESH")
    assert rows == [("r0", "CANCELLED"), ("r1", "CANCELLED")]
    assert world.ledger.canceled == ["r0", "r1"]
    assert list(world.queue.waiting) == ["r2"]


def test_cancel_refresh_of_an_idle_table_answers_nothing(world: World) -> None:
    make(world, "m", "t1")
    assert world.rows("ALTER MATERIALIZED TABLE m CANCEL REFRESH") == []


def test_a_full_refresh_creates_a_lost_storage_again(world: World) -> None:
    make(world, "m", "t1")
    lost = world.engine.storage.tables.pop(name("m"))
    world.execute("ALTER MATERIALIZED TABLE m REFRESH FULL")
    assert world.engine.storage.tables[name("m")].owner == lost.owner
    assert world.table("m").location == world.engine.storage.tables[name("m")].location
    assert "Note: The storage of spark_catalog.d.m was lost; it was created again." in world.logged


def test_other_refreshes_leave_a_lost_storage_to_that(world: World) -> None:
    make(world, "m", "t1")
    del world.engine.storage.tables[name("m")]
    world.execute("ALTER MATERIALIZED TABLE m REFRESH")
    assert world.engine.storage.tables == {}


def test_a_lost_storage_takes_no_name_of_another_table(world: World) -> None:
    make(world, "m", "t1")
    taken = Stored(schema=T1)
    world.engine.storage.tables[name("m")] = taken
    with pytest.raises(ServerError, match="exists") as caught:
        world.execute("ALTER MATERIALIZED TABLE m REFRESH FULL")
    assert caught.value.code == Code.MT_ALREADY_EXISTS.name
    assert world.engine.storage.tables[name("m")] is taken
