"""SHOW REFRESH HISTORY, SHOW VERSIONS, SHOW LAG, SHOW LINEAGE and SHOW ENGINES."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.examples import run, vary
from tests.gateway.command.fakes import NIGHT, NOW, World, name
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.requests import Ping
from tidegate_server.core.model.runs import Rejection, RunMetrics, SourceChange, Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import ColumnOrigin
from tidegate_server.gateway.runs.columns import HISTORY

COLUMNS = (
    ["refresh_id", "catalog", "database", "table", "definition_version", "from_version"]
    + ["to_version", "epoch", "wave_id", "trigger", "requested_action", "action"]
    + ["strategy_reason_code", "strategy_reason_text", "partitions", "schedule_time"]
    + ["data_timestamp", "queued_at", "started_at", "finished_at", "state", "error_class"]
    + ["sqlstate", "error_message", "attempt", "sources", "rows_read", "rows_written"]
    + ["rows_inserted", "rows_updated", "rows_deleted", "rows_copied", "bytes", "files"]
    + ["expectations", "spark_job_ids", "executor_ms", "peak_memory", "requested_by"]
    + [
        "server_id",
        "execution_target",
        "affected_keys",
        "seconds",
        "predicted_seconds",
        "predicted_full_seconds",
    ]
)


def history(world: World, text: str) -> list[dict[str, object]]:
    result = world.execute(text)
    return [row for batch in result.batches(0) for row in batch.to_pylist()]


def test_the_columns_of_the_history_are_fixed(world: World) -> None:
    assert list(world.execute("SHOW REFRESH HISTORY").schema.names()) == COLUMNS
    assert [column.name for column in HISTORY] == COLUMNS


def test_the_newest_run_comes_first(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    table = world.table("m")
    for number in range(3):
        world.ledger.history.append(
            run(refresh_id=f"r{number}", table_id=table.id, table=table.name)
        )
    world.ledger.history.append(run(refresh_id="other"))
    rows, here = world.rows("SHOW REFRESH HISTORY FOR m LIMIT 2"), ("spark_catalog", "d", "m")
    assert [row[:4] for row in rows] == [("r2", *here), ("r1", *here)]


def test_a_row_tells_what_was_read_written_and_refused(world: World) -> None:
    world.ledger.history.append(
        run(
            reason_text="few keys changed",
            rejected=(
                Rejection(strategy="FULL", reason_code="COSTLIER", reason_text="dear", cost=9.25),
                Rejection(strategy="PARTITION", reason_code="NOT_PARTITIONED", reason_text="no"),
            ),
            changes=(
                SourceChange(
                    source="spark_catalog.d.t1", before=3, after=4, method="APPENDED", rows=2
                ),
                SourceChange(source="spark_catalog.d.t2", before=None, after=1, method="WHOLE"),
            ),
            partitions=({"ds": "1"},),
            metrics=RunMetrics(
                rows_read=10,
                rows_inserted=2,
                bytes_written=99,
                files_written=1,
                expectations={"positive": 3},
                spark_job_ids=(4, 5),
                affected_keys=7,
                predicted_seconds=1.5,
                full_seconds=9.25,
            ),
            started_at=NOW,
            finished_at=NOW + timedelta(milliseconds=1750),
        )
    )
    [row] = history(world, "SHOW REFRESH HISTORY")
    assert row["strategy_reason_text"] == (
        "few keys changed; not FULL (COSTLIER): dear, about 9.2 s; "
        "not PARTITION (NOT_PARTITIONED): no"
    )
    assert json.loads(str(row["sources"])) == [
        {"source": "spark_catalog.d.t1", "before": 3, "after": 4, "method": "APPENDED", "rows": 2},
        {"source": "spark_catalog.d.t2", "before": None, "after": 1, "method": "WHOLE"},
    ]
    assert json.loads(str(row["partitions"])) == [{"ds": "1"}]
    assert json.loads(str(row["expectations"])) == {"positive": 3}
    assert json.loads(str(row["spark_job_ids"])) == [4, 5]
    assert (row["rows_read"], row["rows_inserted"], row["bytes"], row["files"]) == (10, 2, 99, 1)
    predicted = (row["predicted_seconds"], row["predicted_full_seconds"])
    assert (row["affected_keys"], row["seconds"], *predicted) == (7, 1.75, 1.5, 9.25)


@pytest.mark.parametrize(
    ("chosen", "rejected", "told"),
    [
        ("it was dear: 3.0 s", "it was dear: 3.0 s", "it was dear: 3.0 s; not X (CODE)"),
        ("it pays", "that takes 3.0 s", "it pays; not X (CODE): that takes 3.0 s"),
        ("it pays", "that is dear", "it pays; not X (CODE): that is dear, about 3.0 s"),
    ],
)
def test_nothing_is_said_twice(world: World, chosen: str, rejected: str, told: str) -> None:
    against = Rejection(strategy="X", reason_code="CODE", reason_text=rejected, cost=3.0)
    world.ledger.history.append(run(reason_text=chosen, rejected=(against,)))
    assert history(world, "SHOW REFRESH HISTORY")[0]["strategy_reason_text"] == told


def test_versions_that_were_read_stand_for_changes_that_are_not_known(world: World) -> None:
    world.ledger.history.append(run(sources={"id-1": 7}))
    [row] = history(world, "SHOW REFRESH HISTORY")
    assert json.loads(str(row["sources"])) == [{"source": "id-1", "after": 7}]


def test_errors_are_the_runs_that_failed_however_long_ago(world: World) -> None:
    world.ledger.history += [
        run(refresh_id="lost", state=RunState.ABANDONED),
        run(refresh_id="failed", state=RunState.FAILED),
        run(refresh_id="starved", state=RunState.UPSTREAM_FAILED),
        *(run(refresh_id=f"r{n}", state=RunState.SUCCEEDED) for n in range(2000)),
    ]
    failed = [row["refresh_id"] for row in history(world, "SHOW REFRESH HISTORY ERRORS")]
    assert failed == ["starved", "failed", "lost"]
    assert len(history(world, "SHOW REFRESH HISTORY LIMIT 2 ERRORS")) == 2


def test_versions_are_the_commits_of_refreshes(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    mine = run(table_id=world.table("m").id, state=RunState.SUCCEEDED, finished_at=NOW)
    full = {"action": Strategy.FULL, "metrics": RunMetrics(rows_written=5)}
    world.ledger.history += [
        replace(mine, refresh_id="r1", to_version=1, epoch=1, **full),
        replace(mine, refresh_id="r2", to_version=1, epoch=2, action=Strategy.NO_DATA),
        replace(mine, refresh_id="r3", state=RunState.FAILED, epoch=3),
        replace(mine, refresh_id="r4", to_version=2, epoch=4, definition_version=2, **full),
    ]
    rows = history(world, "SHOW VERSIONS m")
    assert [(r["version"], r["epoch"], r["definition_version"], r["rows"]) for r in rows] == [
        (2, 4, 2, 5),
        (1, 1, 1, 5),
    ]
    assert rows[0]["timestamp"] == NOW


def test_lag_is_listed_for_every_table_in_order(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    world.execute("CREATE MATERIALIZED TABLE a FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t1")
    read = NOW - timedelta(hours=3)
    world.ledger.history.append(
        run(
            table_id=world.table("a").id,
            state=RunState.SUCCEEDED,
            action=Strategy.FULL,
            queued_at=read,
            started_at=read,
            finished_at=read,
        )
    )
    first, second = history(world, "SHOW LAG")
    assert (first["table"], first["target_seconds"], first["lag_seconds"]) == ("a", 3600.0, 10800.0)
    assert (first["breached"], first["cause"], first["exact"]) == (True, "SCHEDULE", False)
    assert json.loads(str(first["causes"])) == {"SCHEDULE": 10800.0}
    assert (second["table"], second["lag_seconds"], second["breached"]) == ("m", None, False)


def test_a_table_that_fails_again_and_again_still_has_its_lag(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    then = NOW - timedelta(days=2)
    mine = run(table_id=world.table("m").id, queued_at=then, started_at=then, finished_at=then)
    world.ledger.history.append(replace(mine, state=RunState.SUCCEEDED, action=Strategy.FULL))
    for number in range(600):
        later = then + timedelta(minutes=4 * number + 1)
        world.ledger.history.append(
            replace(
                mine,
                refresh_id=f"f{number}",
                state=RunState.FAILED,
                queued_at=later,
                started_at=later,
                finished_at=later,
            )
        )
    [row] = history(world, "SHOW LAG")
    assert (row["lag_seconds"], row["cause"], row["breached"]) == (172800.0, "FAILING", True)
    facts = {fact[0]: fact[1] for fact in world.rows("DESCRIBE EXTENDED m")}
    assert facts["actual_lag"] == "at most 172800 s"


def test_lineage_lists_both_directions(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    assert world.rows("SHOW LINEAGE m") == [("spark_catalog.d.m", "spark_catalog.d.t1", "TABLE")]


def test_lineage_of_columns_says_what_is_passed_through(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    origins = (
        ColumnOrigin(column="a", source=name("t1"), source_column="a", unchanged=True),
        ColumnOrigin(column="b", source=name("t1"), source_column="c", unchanged=False),
    )
    world.catalog.replace(vary(world.table("m"), lineage=origins))
    assert world.rows("SHOW LINEAGE m COLUMNS") == [
        ("spark_catalog.d.m", "a", "spark_catalog.d.t1", "a", "UNCHANGED"),
        ("spark_catalog.d.m", "b", "spark_catalog.d.t1", "c", "COMPUTED"),
    ]


@pytest.mark.parametrize(("seconds", "status"), [(0.0, "UP"), (20.0, "WAITING")])
def test_an_engine_that_waits_for_executors_says_so(
    world: World, seconds: float, status: str
) -> None:
    world.config = Config(engines=NIGHT)  # type: ignore[arg-type]
    world.waiting["night"] = seconds
    [_, row] = world.rows("SHOW ENGINES")
    assert (row[0], row[4]) == ("night", status)
    assert (row[7] is None) == (status == "UP")


def test_the_gateway_s_own_engine_says_why_it_is_not_up(world: World) -> None:
    world.engine.ready = False
    world.engine.failures[Ping] = error(Code.ENGINE_UNAVAILABLE, reason="its image is missing")
    [row] = world.rows("SHOW ENGINES")
    assert row[4] == "STARTING"
    assert row[7] == "The Spark engine is not available: its image is missing."


def test_engines_are_listed_with_their_tables(world: World) -> None:
    head = "k8s://https://head:6443"
    world.config = Config(
        engines={  # type: ignore[arg-type]
            "night": {"master": "spark://head:7077"},
            "pods": {"master": head, "application": True},
        }
    )
    create = "CREATE MATERIALIZED TABLE {} AS SELECT * FROM t1"
    world.execute(create.format("a"))
    world.execute("SET 'execution.mode' = 'remote'")
    world.execute(create.format("b"))
    world.execute("SET 'execution.mode' = 'kubernetes-application'")
    world.execute("SET 'kubernetes.cluster-id' = 'pod-1'")
    world.execute(create.format("c"))
    assert world.table("c").execution_target == "kubernetes-application/pods/pod-1"
    assert world.rows("SHOW ENGINES") == [
        ("", None, "embedded", "local[*]", "UP", 1, 0, None),
        ("night", None, "remote", "spark://head:7077", "DOWN", 1, 0, None),
        ("pods", "pod-1", "kubernetes-application", head, "DOWN", 1, 0, None),
    ]
