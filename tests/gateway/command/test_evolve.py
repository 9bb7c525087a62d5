"""ALTER ... AS and CREATE OR ALTER: what changes, what is refused, what a pipeline does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.examples import vary
from tests.gateway.command.fakes import NOW, T1, World, analysis, name
from tests.gateway.command.tables import (
    ALTER,
    BASE,
    CONT,
    META,
    NOPK,
    WM,
    column,
    produces,
    refusal,
    wider_query,
)
from tidegate_server.core.errors import Code
from tidegate_server.core.messages.requests import EvolveTable, ExplainRefresh, SetTableProperties
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RefreshStatus, RunState
from tidegate_server.core.model.table import LogicalRefreshMode, RefreshMode
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.definition.evolution import same_query

OR_ALTER = BASE.replace("CREATE ", "CREATE OR ALTER ")


@pytest.fixture
def base(world: World) -> World:
    world.execute(BASE)
    return world


def test_alter_as_appends_nullable_columns_and_keeps_the_rest(base: World) -> None:
    before, workflow = base.table("base"), base.workflow("base")
    query = wider_query(base)
    base.execute(f"{ALTER} base AS {query}")
    after = base.table("base")
    assert [(c.name, c.nullable) for c in after.definition.schema][4:] == [("e", True), ("f", True)]
    assert after.definition.schema.columns[:4] == before.definition.schema.columns
    assert (after.definition.original_query, after.definition.version) == (query, 2)
    assert after.definition.expanded_query == query.replace("t3", "spark_catalog.d.t3")
    assert [str(source.name) for source in after.definition.sources] == ["spark_catalog.d.t3"]
    assert (after.id, after.state) == (before.id, before.state)
    for kept in ("primary_key", "freshness", "refresh_mode", "options"):
        assert getattr(after.definition, kept) == getattr(before.definition, kept)
    assert base.workflow("base") == workflow
    stored = base.engine.storage.tables[name("base")]
    assert stored.schema == after.definition.schema
    assert '"definition_version":2' in stored.properties["tidegate.definition"]


@pytest.mark.parametrize(
    ("columns", "position", "old", "new"),
    [
        (T1.columns[:2], 3, "c INT", "nothing"),
        ((*T1.columns[:3], column("d", "int")), 4, "d STRING", "d INT"),
        ((*T1.columns[:3], column("d", nullable=False)), 4, "d STRING", "d STRING NOT NULL"),
        ((column("a", "bigint"), *T1.columns[1:]), 1, "a BIGINT NOT NULL", "a BIGINT"),
        ((*T1.columns[:3], column("renamed")), 4, "d STRING", "renamed STRING"),
        ((T1.columns[0], T1.columns[2], T1.columns[1], T1.columns[3]), 2, "b STRING", "c INT"),
    ],
    ids=["dropped", "retyped", "tightened", "loosened", "renamed", "reordered"],
)
def test_changes_of_existing_columns_are_refused_with_their_position(
    base: World, columns: tuple[object, ...], position: int, old: str, new: str
) -> None:
    query = produces(base, "SELECT other FROM t3", *columns)  # type: ignore[arg-type]
    problem = refusal(base, f"{ALTER} base AS {query}")
    assert problem.code == Code.MT_EVOLUTION_UNSUPPORTED.name
    assert f"column {position} of spark_catalog.d.base from {old} to {new} " in problem.message


def test_an_appended_column_may_go_on_being_never_null(base: World) -> None:
    first = wider_query(base)
    base.execute(f"{ALTER} base AS {first}")
    base.engine.analyses[base.definition("base").expanded_query] = base.engine.analyses[first]
    second = produces(
        base,
        "SELECT a, b, c, d, d AS e, '1' AS f, 2 AS g FROM t3",
        *base.engine.analyses[first].schema,
        column("g", "int"),
    )
    base.execute(f"{ALTER} base AS {second}")
    assert base.definition("base").schema.names() == ("a", "b", "c", "d", "e", "f", "g")


def test_columns_not_stored_hinder_another_schema_but_not_another_query(world: World) -> None:
    world.execute(WM)
    problem = refusal(world, f"{ALTER} wm AS {wider_query(world)}")
    assert problem.code == Code.MT_EVOLUTION_NON_PERSISTED.name
    assert "CREATE OR ALTER" in problem.hint
    same = produces(world, "SELECT a, b, c, d FROM t3", *T1)
    world.execute(f"{ALTER} wm AS {same}")
    assert world.definition("wm").original_query == same
    assert [c.name for c in world.definition("wm").derived] == ["t"]


def test_a_declared_type_stays_where_the_query_only_widens_to_it(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m (c BIGINT) AS SELECT * FROM t1")
    query = produces(world, "SELECT a, b, c, d FROM t3", *T1)
    world.execute(f"{ALTER} m AS {query}")
    table = world.table("m")
    assert table.definition.schema.columns[2].type == "bigint"
    assert "CAST(`c` AS bigint) AS `c`" in table.definition.expanded_query


def test_alter_as_of_the_same_query_changes_nothing(base: World) -> None:
    before = base.table("base")
    base.engine.requests.clear()
    base.execute(f"{ALTER} base AS SELECT * FROM t1")
    assert base.table("base") == before
    assert base.engine.requests_of(SetTableProperties) == base.engine.requests_of(EvolveTable) == []


def test_a_full_table_waits_for_its_next_refresh(base: World) -> None:
    base.execute(f"{ALTER} base AS {wider_query(base)}")
    assert base.refreshed == []
    assert base.table("base").state.checkpoint_floor == 0


def running(world: World, table: str, epoch: int) -> RefreshRun:
    found = world.table(table)
    run = RefreshRun(
        refresh_id="r-1",
        table_id=found.id,
        table=found.name,
        definition_version=1,
        trigger=Trigger.UPSTREAM_CHANGE,
        state=RunState.RUNNING,
        queued_at=NOW,
        requested_by="ann",
        server_id="server-1",
        epoch=epoch,
    )
    world.ledger.history.append(run)
    return run


def test_a_continuous_table_starts_from_the_beginning(world: World) -> None:
    world.execute(CONT)
    running(world, "cont", epoch=7)
    world.execute(f"{ALTER} cont AS {wider_query(world)}")
    table = world.table("cont")
    assert (table.definition.version, table.state.checkpoint_floor) == (2, 7)
    assert table.state.status is RefreshStatus.ACTIVATED
    assert world.stopped == ["r-1"]


def test_a_suspended_continuous_table_stays_suspended_without_its_checkpoint(world: World) -> None:
    world.execute(CONT)
    running(world, "cont", epoch=3)
    world.execute(f"{ALTER} cont SUSPEND")
    world.execute(f"{ALTER} cont AS {wider_query(world)}")
    table = world.table("cont")
    assert (table.state.status, table.state.checkpoint_floor) == (RefreshStatus.SUSPENDED, 3)
    assert not world.workflow("cont").active


def test_alter_as_refuses_cycles_over_other_tables(world: World) -> None:
    world.execute(BASE)
    produces(world, "SELECT * FROM base", *T1, source="base")
    world.execute("CREATE MATERIALIZED TABLE n AS SELECT * FROM base")
    query = produces(world, "SELECT a, b, c, d FROM n", *T1, source="n")
    problem = refusal(world, f"{ALTER} base AS {query}")
    assert problem.code == Code.MT_CYCLE.name
    assert "through spark_catalog.d.n" in problem.message


# ---- CREATE OR ALTER -------------------------------------------------------------------------


def test_or_alter_of_a_missing_table_creates_it(world: World) -> None:
    world.execute(OR_ALTER)
    assert world.table("base").state.status is RefreshStatus.ACTIVATED
    assert world.definition("base").version == 1


def test_the_same_statement_again_does_nothing(base: World) -> None:
    before = base.table("base"), base.workflow("base"), dict(base.engine.storage.tables)
    spaced = produces(base, "select *  FROM t1 -- the same", *T1, source="t1")
    base.execute(OR_ALTER)
    base.execute(OR_ALTER.replace("SELECT * FROM t1", spaced))
    assert (base.table("base"), base.workflow("base"), dict(base.engine.storage.tables)) == before


@pytest.mark.parametrize("statement", [BASE, CONT], ids=["full", "continuous"])
def test_a_source_that_was_created_again_changes_no_definition(
    world: World, statement: str
) -> None:
    world.execute(statement)
    name = "base" if statement == BASE else "cont"
    before, workflow = world.table(name), world.workflow(name)
    again = analysis(T1)
    sources = tuple(replace(source, table_id="id-again") for source in again.sources)
    world.engine.analyses["SELECT * FROM t1"] = replace(again, sources=sources)
    words = statement.replace("CREATE ", "CREATE OR ALTER ")
    assert world.rows(f"EXPLAIN {words}") == []
    assert world.table(name) == before
    world.execute(words)
    after = world.table(name)
    assert after == vary(before, sources=sources)
    assert (world.workflow(name), world.stopped) == (workflow, [])
    properties = world.engine.storage.tables[after.name].properties
    assert '"id-again"' in properties["tidegate.definition"]


def test_a_view_that_reads_another_table_changes_the_sources(base: World) -> None:
    changed = analysis(T1, "t2", expanded="SELECT * FROM spark_catalog.d.t1")
    base.engine.analyses["SELECT * FROM t1"] = changed
    rows = base.rows(f"EXPLAIN {OR_ALTER}")
    change = ("SOURCES", "spark_catalog.d.t1", "spark_catalog.d.t2", "NEXT_REFRESH", "")
    assert rows[0] == (*change, None, None)


def test_a_source_that_lost_a_not_null_changes_no_definition(base: World) -> None:
    nullable = Schema((replace(T1.columns[1], nullable=False), *T1.columns[2:]))
    produces(base, "SELECT b, c, d FROM t1", *nullable, source="t1")
    statement = "CREATE OR ALTER MATERIALIZED TABLE m AS SELECT b, c, d FROM t1"
    base.execute(statement)
    before = base.table("m")
    produces(base, "SELECT b, c, d FROM t1", *T1.columns[1:], source="t1")
    assert base.rows(f"EXPLAIN {statement}") == []
    base.execute(statement)
    assert base.table("m") == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("materialized-table.default-freshness.full", "1 d"),
        ("materialized-table.default-freshness.continuous", "7 min"),
        ("materialized-table.refresh-mode.freshness-threshold", "1 s"),
    ],
)
@pytest.mark.parametrize("mode", ["", "REFRESH_MODE = FULL "])
def test_the_defaults_of_another_session_change_no_definition(
    world: World, mode: str, key: str, value: str
) -> None:
    statement = f"CREATE OR ALTER MATERIALIZED TABLE m {mode}AS SELECT * FROM t1"
    world.execute(f"SET '{key}' = '{value}'")
    world.execute(statement)
    before = world.table("m")
    world.execute(f"RESET '{key}'")
    assert world.rows(f"EXPLAIN {statement}") == []
    world.execute(statement)
    assert world.table("m") == before


def test_or_alter_appends_columns_and_replaces_the_query(base: World) -> None:
    query = wider_query(base)
    base.execute(OR_ALTER.replace("SELECT * FROM t1", query))
    table = base.table("base")
    assert table.definition.schema.names() == ("a", "b", "c", "d", "e", "f")
    assert (table.definition.original_query, table.definition.version) == (query, 2)


def test_options_are_exactly_those_of_the_statement(base: World) -> None:
    base.execute(f"{ALTER} base SET ('k1'='v1', 'k2'='v2')")
    base.execute(OR_ALTER.replace("'format'='json'", "'k1'='other', 'k3'='v3'"))
    assert base.definition("base").options == {"k1": "other", "k3": "v3"}


def test_comments_and_freshness_follow_the_statement(base: World) -> None:
    statement = OR_ALTER.replace("COMMENT 'x'", "COMMENT 'y'").replace("'30' SECOND", "'1' HOUR")
    base.execute(statement)
    table = base.table("base")
    assert (table.definition.comment, table.definition.freshness) == (
        "y",
        Freshness(1, TimeUnit.HOUR),
    )
    assert base.workflow("base").cron == "0 0 0/1 * * ? *"
    assert base.engine.storage.tables[name("base")].comment == "y"
    assert table.definition.version == 1


def test_another_mode_and_another_partitioning_are_refused(base: World) -> None:
    problem = refusal(base, OR_ALTER.replace("= FULL", "= CONTINUOUS"))
    assert problem.code == Code.MT_EVOLUTION_REFRESH_MODE.name
    assert "SET REFRESH_MODE = CONTINUOUS" in problem.hint
    problem = refusal(base, OR_ALTER.replace("BY (a, d)", "BY (d)"))
    assert problem.code == Code.MT_EVOLUTION_PARTITIONING.name


def test_without_refresh_mode_the_explicit_one_stays(base: World) -> None:
    base.execute(OR_ALTER.replace("REFRESH_MODE = FULL ", ""))
    assert base.definition("base").logical_refresh_mode is LogicalRefreshMode.FULL


def test_an_automatic_mode_follows_the_freshness(world: World) -> None:
    world.execute("CREATE OR ALTER MATERIALIZED TABLE m AS SELECT * FROM t1")
    statement = "FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t1"
    world.execute(f"CREATE OR ALTER MATERIALIZED TABLE m {statement}")
    assert world.definition("m").refresh_mode is RefreshMode.FULL
    assert world.workflow("m").cron == "0 0 0 * * ? *"


def test_columns_that_are_not_declared_again_are_dropped(world: World) -> None:
    produces(world, "SELECT a, b, c, d, d AS m_p FROM t3", *T1, column("m_p"))
    world.execute(META)
    assert [c.name for c in world.definition("meta").derived] == ["t", "m"]
    kept = META.replace("t AS current_timestamp, m BIGINT METADATA FROM 'file_size' VIRTUAL, ", "")
    world.execute(kept.replace("CREATE", "CREATE OR ALTER"))
    table = world.table("meta")
    assert (table.definition.derived, table.storage_table) == ((), None)
    assert world.engine.storage.views == {}
    assert list(world.engine.storage.tables) == [name("meta")]


def test_a_continuous_table_restarts_for_options_unless_it_resumes(world: World) -> None:
    world.execute(CONT)
    running(world, "cont", epoch=5)
    statement = "CREATE OR ALTER MATERIALIZED TABLE cont WITH ('k'='1') {} AS SELECT * FROM t1"
    world.execute(statement.format("START_MODE = RESUME_OR_FROM_NOW"))
    assert (world.table("cont").state.checkpoint_floor, world.stopped) == (0, [])
    world.execute(statement.replace("'1'", "'2'").format(""))
    assert (world.table("cont").state.checkpoint_floor, world.stopped) == (5, ["r-1"])


def test_a_new_query_takes_the_settings_of_its_session_along(base: World) -> None:
    base.execute("SET spark.sql.ansi.enabled=false")
    base.execute(f"{ALTER} base SET ('k'='v')")
    assert base.definition("base").settings == {}
    base.execute(f"{ALTER} base AS {wider_query(base)}")
    assert base.definition("base").settings == {"spark.sql.ansi.enabled": "false"}


# ---- EXPLAIN ---------------------------------------------------------------------------------


def test_explain_or_alter_lists_every_change_with_its_effect(base: World) -> None:
    before = base.catalog.tables()
    statement = OR_ALTER.replace("SELECT * FROM t1", wider_query(base)).replace("'x'", "'y'")
    rows = base.rows(f"EXPLAIN {statement}")
    effects = {row[0]: row[3] for row in rows[:-1]}
    assert effects == {
        "COLUMN e": "NEXT_REFRESH",
        "COLUMN f": "NEXT_REFRESH",
        "QUERY": "NEXT_REFRESH",
        "COMMENT": "NONE",
    }
    assert rows[-1][0] == "REFRESH"
    assert base.catalog.tables() == before


def test_explain_shows_rejections_instead_of_failing(base: World) -> None:
    rows = base.rows(f"EXPLAIN {OR_ALTER.replace('BY (a, d)', 'BY (d)')}")
    assert [(row[0], row[3]) for row in rows] == [("PARTITIONED BY", "REJECTED")]
    assert "MT_EVOLUTION_PARTITIONING" in str(rows[0][4])


def test_explain_of_a_rebuild_names_the_refresh_that_follows(world: World) -> None:
    world.execute(CONT)
    rows = world.rows(f"EXPLAIN {ALTER} cont AS {wider_query(world)}")
    assert [row[3] for row in rows[:-1]] == ["REBUILD"] * 3
    [request] = world.engine.requests_of(ExplainRefresh)
    assert isinstance(request, ExplainRefresh)
    assert (request.order.definition_version, request.order.trigger) == (2, Trigger.EVOLUTION)


def test_explain_of_nothing_to_do_is_empty(base: World) -> None:
    assert base.rows(f"EXPLAIN {OR_ALTER}") == []


def test_nopk_gains_a_key_and_base_loses_it(world: World) -> None:
    world.execute(NOPK)
    world.execute(OR_ALTER.replace("TABLE base", "TABLE nopk"))
    key = world.definition("nopk").primary_key
    assert key is not None
    assert key.columns == ("a",)
    world.execute(NOPK.replace("CREATE ", "CREATE OR ALTER "))
    assert world.definition("nopk").primary_key is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("SELECT a FROM t", "select  a -- c\nfrom t", True),
        ("SELECT 'a' FROM t", "SELECT 'A' FROM t", False),
        ("SELECT r'a' FROM t", "SELECT r'A' FROM t", False),
        ("SELECT `a` FROM t", "SELECT A x FROM t AS t", False),
        ("SELECT `a` FROM t", "SELECT A FROM t", True),
        ("SELECT `a b` FROM t", "SELECT `A b` FROM t", False),
        ("SELECT `user` FROM t", "SELECT user FROM t", False),
        ("SELECT a FROM t LEFT JOIN u", "SELECT a FROM t `left` JOIN u", False),
        ("SELECT a b FROM t WHERE a <> 1", "SELECT a AS b FROM t WHERE a != 1", True),
        ("SELECT a, b FROM t", "SELECT b, a FROM t", False),
    ],
)
def test_queries_are_compared_by_their_words(one: str, other: str, expected: bool) -> None:
    assert same_query(one, other) is expected
