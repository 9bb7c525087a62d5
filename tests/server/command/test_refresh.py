"""ALTER ... REFRESH: requests, cascades and what a failed run answers."""

from __future__ import annotations

import json

import pytest

from tests.server.command.fakes import T1, World, analysis
from tidegate_server.errors import Code, ServerError, error
from tidegate_server.model.runs import Trigger


def make(world: World, table: str, *sources: str, partitioned: str = "") -> None:
    query = f"SELECT * FROM {', '.join(sources)}"
    world.engine.analyses[query] = analysis(T1, *sources)
    by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
    world.execute(f"CREATE MATERIALIZED TABLE {table} {by} REFRESH_MODE = FULL AS {query}")


def refreshed(world: World) -> list[tuple[str, list[dict[str, str]]]]:
    found = []
    for request in world.refreshed:
        table = world.catalog.by_id(request.table_id)
        assert table is not None
        found.append((table.name.table, [dict(spec) for spec in request.partitions]))
    return found


def test_refresh_answers_job_id_and_cluster_info(world: World) -> None:
    make(world, "m", "t1")
    [(job, info)] = world.rows("ALTER MATERIALIZED TABLE m REFRESH")
    assert job == f"op{world.operations}"
    assert json.loads(str(info))["table"] == "c.d.m"
    assert not world.refreshed[0].force
    assert world.refreshed[0].trigger is Trigger.MANUAL


def test_refresh_full_is_forced(world: World) -> None:
    make(world, "m", "t1")
    world.execute("ALTER MATERIALIZED TABLE m REFRESH FULL")
    assert world.refreshed[0].force


def test_partition_values_travel_as_data(world: World) -> None:
    make(world, "m", "t1", partitioned="d")
    world.execute("ALTER MATERIALIZED TABLE m REFRESH PARTITION (D = 'x'' OR 1=1')")
    assert refreshed(world) == [("m", [{"d": "x' OR 1=1"}])]


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
    order = refreshed(world)
    assert len(rows) == 4
    assert order[0] == ("base", [{"d": "1"}])
    assert sorted(order[1:3]) == [("a", [{"d": "1"}]), ("z", [])]
    assert order[3] == ("top", [{"d": "1"}])
    assert [request.trigger for request in world.refreshed[1:]] == [Trigger.CASCADE] * 3


def test_a_failed_run_raises_its_own_error_and_ends_the_cascade(world: World) -> None:
    make(world, "m", "t1")
    make(world, "n", "m")
    world.refresh_failure = error(Code.MT_DATA_LOST, table="c.d.m", reason="gone")
    with pytest.raises(ServerError, match="gone") as caught:
        world.execute("ALTER MATERIALIZED TABLE m REFRESH CASCADE")
    assert caught.value.code == Code.MT_DATA_LOST.name
    assert len(world.refreshed) == 1


def test_explain_refresh_answers_the_plan_and_runs_nothing(world: World) -> None:
    make(world, "m", "t1")
    assert world.rows("EXPLAIN REFRESH m") == [("c.d.m", "FULL", "FORCED", "why")]
    assert world.refreshed == []
