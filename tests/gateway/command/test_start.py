"""START_MODE: what is accepted for which mode, and which partitions a first load covers."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import World
from tests.gateway.command.tables import refusal
from tidegate_server.core.errors import Code
from tidegate_server.core.model.clauses import StartKind

CREATE = (
    "CREATE MATERIALIZED TABLE m PARTITIONED BY (d) "
    "WITH ('partition.fields.d.date-formatter'='yyyy-MM-dd') START_MODE = {} "
    "REFRESH_MODE = FULL AS SELECT * FROM t1"
)
PLAIN = "CREATE MATERIALIZED TABLE m START_MODE = {} {} AS SELECT * FROM t1"


@pytest.fixture
def loading(world: World) -> World:
    """A world at noon of 2024-01-02 in which tables are loaded at once."""
    world.execute("SET 'materialized-table.initialize' = 'ON_CREATE'")
    return world


@pytest.mark.parametrize(
    ("start", "days"),
    [
        ("FROM_BEGINNING", []),
        ("FROM_NOW", ["2024-01-02"]),
        ("FROM_NOW(INTERVAL '1' HOUR)", ["2024-01-02"]),
        ("FROM_NOW(INTERVAL '1' DAY)", ["2024-01-01", "2024-01-02"]),
        (
            "FROM_TIMESTAMP(TIMESTAMP '2023-12-31 21:37:58')",
            ["2023-12-31", "2024-01-01", "2024-01-02"],
        ),
        ("FROM_TIMESTAMP(TIMESTAMP '2025-01-01 00:00:00')", ["2024-01-02"]),
    ],
)
def test_a_start_limits_the_first_load(loading: World, start: str, days: list[str]) -> None:
    loading.execute(CREATE.format(start))
    [request] = loading.refreshed
    assert [spec["d"] for spec in request.recompute.partitions] == days


def test_the_start_mode_is_stored(world: World) -> None:
    world.execute(CREATE.format("FROM_NOW(INTERVAL '1' HOUR)"))
    mode = world.definition("m").start_mode
    assert mode is not None
    assert (mode.kind, str(mode.interval)) == (StartKind.FROM_NOW, "INTERVAL '1' HOUR")


@pytest.mark.parametrize(
    ("start", "mode"),
    [
        ("FROM_NOW", "REFRESH_MODE = CONTINUOUS"),
        ("FROM_TIMESTAMP(TIMESTAMP '2024-01-01 00:00:00')", "REFRESH_MODE = CONTINUOUS"),
        ("FROM_NOW", "REFRESH_MODE = FULL"),
    ],
)
def test_starts_that_cannot_be_kept_are_refused(world: World, start: str, mode: str) -> None:
    problem = refusal(world, PLAIN.format(start, mode))
    assert problem.code == Code.MT_START_MODE_UNSUPPORTED.name


def test_a_start_too_long_ago_is_refused_and_leaves_nothing(loading: World) -> None:
    problem = refusal(loading, CREATE.format("FROM_TIMESTAMP(TIMESTAMP '1990-01-01 00:00:00')"))
    assert problem.code == Code.MT_START_MODE_UNSUPPORTED.name
    assert "1000 partitions" in problem.message


def test_resuming_needs_or_alter(world: World) -> None:
    statement = PLAIN.format("RESUME_OR_FROM_BEGINNING", "REFRESH_MODE = CONTINUOUS")
    assert refusal(world, statement).code == Code.MT_START_MODE_CREATE.name
    world.execute(statement.replace("CREATE", "CREATE OR ALTER"))
    mode = world.definition("m").start_mode
    assert mode is not None
    assert mode.kind is StartKind.RESUME_OR_FROM_BEGINNING


def test_the_default_start_mode_comes_from_the_settings(world: World) -> None:
    world.execute("SET materialized-table.default-start-mode=RESUME_OR_FROM_NOW")
    world.execute(CREATE.replace("START_MODE = {} ", ""))
    mode = world.definition("m").start_mode
    assert mode is not None
    assert mode.kind is StartKind.FROM_NOW
