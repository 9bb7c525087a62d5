"""SUSPEND CASCADE and RESUME CASCADE: the whole chain in its order, or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import T1, World
from tests.gateway.command.tables import ALTER, produces, refusal
from tests.gateway.command.test_atomicity import Saboteur, picture
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.gateway.command.dispatch import prepare

CREATE = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' DAY AS {}"
CHAIN = ("m", "z", "a", "last")
"""``z`` and ``a`` read ``m``; ``last`` reads both of them; ``other`` reads none."""


@pytest.fixture
def chain(world: World) -> World:
    return create_chain(world)


def create_chain(world: World) -> World:
    world.execute(CREATE.format("m", "SELECT * FROM t1"))
    for table in ("z", "a"):
        world.execute(CREATE.format(table, produces(world, "SELECT * FROM m", *T1, source="m")))
    both = produces(world, "SELECT * FROM a, z", *T1, source="a")
    found = world.engine.analyses[both]
    second = replace(found.sources[0], name=world.table("z").name, table_id="id-z")
    world.engine.analyses[both] = replace(found, sources=(*found.sources, second))
    world.execute(CREATE.format("last", both))
    world.execute(CREATE.format("other", "SELECT * FROM t1"))
    return world


def statuses(world: World) -> dict[str, str]:
    return {t.name.table: t.state.status.value for t in world.catalog.tables()}


def test_everything_downstream_is_suspended_in_its_order(chain: World) -> None:
    rows = chain.rows(f"{ALTER} m SUSPEND CASCADE")
    order = [str(row[0]).removeprefix("spark_catalog.d.") for row in rows]
    assert (order[0], sorted(order[1:3]), order[3]) == ("m", ["a", "z"], "last")
    assert {row[1] for row in rows} == {"SUSPENDED"}
    assert statuses(chain) == {**dict.fromkeys(CHAIN, "SUSPENDED"), "other": "ACTIVATED"}
    assert not any(chain.workflow(table).active for table in CHAIN)
    assert chain.workflow("other").active
    assert "spark_catalog.d.last: SUSPENDED" in chain.logged


def test_a_table_in_the_middle_leaves_what_it_reads_alone(chain: World) -> None:
    chain.execute(f"{ALTER} z SUSPEND CASCADE")
    assert [t for t, status in statuses(chain).items() if status == "SUSPENDED"] == ["last", "z"]


def test_what_is_suspended_already_is_left_alone_and_said_so(chain: World) -> None:
    table = chain.table("a")
    chain.catalog.move(table.id, RefreshStatus.ACTIVATED, RefreshStatus.SUSPENDED, "BY_HAND")
    told = dict(chain.rows(f"{ALTER} m SUSPEND CASCADE"))  # type: ignore[arg-type]
    assert (told["spark_catalog.d.m"], told["spark_catalog.d.a"]) == (
        "SUSPENDED",
        "ALREADY_SUSPENDED",
    )
    assert chain.table("a").state.status_reason == "BY_HAND"
    assert refusal(chain, f"{ALTER} m SUSPEND CASCADE").code == Code.MT_STATE.name


def test_resume_takes_the_whole_chain_and_its_options_hold_for_it(chain: World) -> None:
    chain.execute(f"{ALTER} m SUSPEND CASCADE")
    chain.execute(f"{ALTER} z RESUME")
    rows = chain.rows(f"{ALTER} m RESUME WITH ('k' = 'v') CASCADE")
    assert dict(rows)["spark_catalog.d.z"] == "ALREADY_ACTIVATED"  # type: ignore[arg-type]
    assert set(statuses(chain).values()) == {"ACTIVATED"}
    assert all(chain.workflow(table).active for table in CHAIN)
    held = {table: dict(chain.table(table).state.resume_options) for table in CHAIN}
    assert held == {"m": {"k": "v"}, "z": {}, "a": {"k": "v"}, "last": {"k": "v"}}
    assert refusal(chain, f"{ALTER} m RESUME CASCADE").code == Code.MT_STATE.name


def test_resume_checks_its_options_first(chain: World) -> None:
    chain.execute(f"{ALTER} m SUSPEND CASCADE")
    wrong = f"{ALTER} m RESUME WITH ('materialized-table.nonsense' = 'v') CASCADE"
    assert refusal(chain, wrong).code == Code.MT_OPTION_UNKNOWN.name


@pytest.mark.parametrize("action", ["SUSPEND", "RESUME"])
def test_a_table_that_is_being_created_stops_all_of_it(chain: World, action: str) -> None:
    table = chain.table("last")
    chain.catalog.drop(table.id)
    chain.catalog.create(vary(table, status=RefreshStatus.INITIALIZING))
    problem = refusal(chain, f"{ALTER} m {action} CASCADE")
    assert problem.code == Code.MT_STATE.name
    assert "spark_catalog.d.last is INITIALIZING" in problem.message


def test_unknown_names_are_refused_and_no_engine_is_needed(chain: World) -> None:
    assert refusal(chain, f"{ALTER} nope SUSPEND CASCADE").code == Code.MT_NOT_FOUND.name
    chain.engine.ready = False
    chain.engine.requests.clear()
    chain.execute(f"{ALTER} m SUSPEND CASCADE")
    chain.execute(f"{ALTER} m RESUME CASCADE")
    assert chain.engine.requests == []


def test_clients_are_told_to_fetch() -> None:
    assert prepare(f"{ALTER} m SUSPEND CASCADE").returns_rows
    assert prepare(f"{ALTER} m RESUME CASCADE").returns_rows
    assert not prepare(f"{ALTER} m SUSPEND").returns_rows


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("action", ["SUSPEND", "RESUME WITH ('k' = 'v')"])
def test_a_failure_anywhere_leaves_the_whole_chain_as_it_was(action: str, done: bool) -> None:
    counting = _prepare(action)
    saboteur = Saboteur(counting, 0, done=done)
    counting.execute(f"{ALTER} m {action} CASCADE")
    assert len(saboteur.calls) >= 8
    for at in range(1, len(saboteur.calls) + 1):
        world = _prepare(action)
        before = picture(world)
        Saboteur(world, at, done=done)
        with pytest.raises(ServerError):
            world.execute(f"{ALTER} m {action} CASCADE")
        assert picture(world) == before, saboteur.calls[at - 1]


def _prepare(action: str) -> World:
    world = create_chain(World())
    if action.startswith("RESUME"):
        world.execute(f"{ALTER} m SUSPEND CASCADE")
    return world
