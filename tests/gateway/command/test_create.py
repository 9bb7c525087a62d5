"""CREATE MATERIALIZED TABLE: what is stored, in which order, and what a failure leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gateway.command.fakes import NOW, T1, Column, Schema, World, analysis, engine_lost, name
from tests.gateway.command.tables import column, produces, refusal
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import Analyze, CreateTable, DropTable, OpenSession
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.model.states import RefreshStatus
from tidegate_server.core.model.table import PrimaryKey
from tidegate_server.gateway.definition.build import definition_properties
from tidegate_server.gateway.definition.columns import castable
from tidegate_server.gateway.store.stored_table import decode_definition

CREATE = "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t1"


def test_a_created_table_is_activated_with_its_definition(world: World) -> None:
    world.execute(
        "CREATE MATERIALIZED TABLE m (PRIMARY KEY (a) NOT ENFORCED) COMMENT 'x' "
        "PARTITIONED BY (D) WITH ('format'='json') FRESHNESS = INTERVAL '1' DAY "
        "AS -- why\n SELECT * FROM t1"
    )
    table = world.table("m")
    assert table.state.status is RefreshStatus.ACTIVATED
    assert table.definition.original_query == "-- why\n SELECT * FROM t1"
    assert table.definition.expanded_query == "SELECT * FROM spark_catalog.d.t1"
    assert table.definition.schema == T1
    assert table.definition.partition_keys == ("d",)
    assert table.definition.primary_key == PrimaryKey(name="PK_a", columns=("a",))
    assert (table.owner, table.definition.comment, table.created_at) == ("ann", "x", NOW)
    assert table.location == f"/warehouse/m-{table.id}"
    assert table.definition.options == {"format": "json"}


def test_names_are_folded_and_completed_by_the_session(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE D2.Mixed AS SELECT * FROM t1")
    assert world.catalog.find(TableName("spark_catalog", "d2", "mixed")) is not None


def test_the_definition_stands_in_the_table_properties(world: World) -> None:
    world.execute(CREATE)
    [request] = world.engine.requests_of(CreateTable)
    assert isinstance(request, CreateTable)
    table = world.table("m")
    assert request.properties["tidegate.id"] == table.id
    kept = decode_definition(request.properties["tidegate.definition"])
    assert kept == replace(table, location="")
    assert definition_properties(table)["tidegate.id"] == table.id


def test_the_query_is_analyzed_in_the_sessions_own_child_session(world: World) -> None:
    world.execute("SET spark.sql.ansi.enabled=false")
    world.engine.generation = 2
    world.engine.requests.clear()
    world.execute(CREATE)
    first, second = world.engine.requests[:2]
    assert first == OpenSession(
        session_id="s1",
        settings={"spark.sql.ansi.enabled": "false"},
        schema="d",
        catalog="spark_catalog",
    )
    assert isinstance(second, Analyze)
    assert (second.session_id, second.sql) == ("s1", "SELECT * FROM t1")


def test_what_was_canceled_while_the_engine_came_up_asks_it_nothing(world: World) -> None:
    def refuse() -> None:
        raise error(Code.OPERATION_CANCELED, by="")

    world.require_wanted = refuse
    world.engine.generation = 2
    world.engine.requests.clear()
    for statement in (CREATE, "SELECT 1", "INSERT INTO t1 VALUES (1)"):
        with pytest.raises(ServerError, match="OPERATION_CANCELED"):
            world.execute(statement)
    assert {type(request) for request in world.engine.requests} == {OpenSession}


def test_session_settings_are_stored_without_the_schedulers(world: World) -> None:
    world.execute("SET spark.sql.shuffle.partitions=7")
    world.execute("SET workflow-scheduler.type=embedded")
    world.execute("SET execution.mode=embedded")
    world.execute(CREATE)
    assert world.definition("m").settings == {"spark.sql.shuffle.partitions": "7"}
    assert world.table("m").execution_target == "embedded"


def test_the_execution_mode_of_the_session_stays_with_the_table(world: World) -> None:
    world.execute("SET 'execution.mode' = 'Remote'")
    world.execute("SET 'kubernetes.cluster-id' = 'c1'")
    world.execute(CREATE)
    world.execute("RESET 'execution.mode'")
    world.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    assert world.table("m").execution_target == "remote"


@pytest.mark.parametrize(
    ("mode", "master"),
    [
        ("yarn-session", "yarn"),
        ("yarn-application", "yarn"),
        ("Kubernetes-Session", "k8s://https://cluster:6443"),
        ("kubernetes-application", "k8s://https://cluster:6443"),
    ],
)
def test_a_cluster_is_an_execution_mode_where_the_engine_works_on_it(
    world: World, mode: str, master: str
) -> None:
    world.config = Config(engine={"master": master})  # type: ignore[arg-type]
    world.execute(f"SET 'execution.mode' = '{mode}'")
    world.execute(CREATE)
    assert world.table("m").execution_target == mode.lower()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("workflow-scheduler.type", "server's configuration"),
        ("table.catalog-store.kind", "server's configuration"),
        ("table.materialized-table.conversion-from-table.enabled", "server's configuration"),
        ("kubernetes.cluster-id", "engines.NAME"),
        ("yarn.application.id", "engines.NAME"),
        ("execution.checkpointing.savepoint-dir", "each commit"),
        ("execution.attached", "no such setting"),
        ("sql-client.execution.result-mode", "client"),
        ("pipeline.jars", "SHOW REFRESH HISTORY"),
        ("parallelism.default", "spark.sql.shuffle.partitions"),
        ("execution.runtime-mode", "REFRESH_MODE"),
        ("table.exec.mini-batch.enabled", "spark.sql."),
        ("restart-strategy.type", "materialized-table.refresh.retries"),
        ("state.backend.type", "each commit"),
        ("spark.master", "when the engine starts"),
    ],
)
def test_a_setting_that_changes_nothing_is_taken_with_a_warning(
    world: World, key: str, told: str
) -> None:
    world.execute(f"SET '{key}' = 'x'")
    assert [told in line for line in world.logged] == [True]


def test_sources_that_are_materialized_tables_are_marked(world: World) -> None:
    world.execute(CREATE)
    world.engine.analyses["SELECT * FROM m, t1"] = analysis(T1, "m", "t1")
    world.execute("CREATE MATERIALIZED TABLE n AS SELECT * FROM m, t1")
    assert [s.materialized_table for s in world.definition("n").sources] == [True, False]
    assert [t.name for t in world.catalog.consumers(name("m"))] == [name("n")]


def test_a_query_that_reads_its_own_table_is_a_cycle(world: World) -> None:
    world.engine.analyses["SELECT * FROM m"] = analysis(T1, "m")
    with pytest.raises(ServerError, match="itself") as caught:
        world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM m")
    assert caught.value.code == Code.MT_CYCLE.name


def test_temporary_objects_in_the_query_are_refused_by_name(world: World) -> None:
    found = analysis()
    world.engine.analyses["SELECT * FROM v"] = type(found)(
        schema=T1, expanded_query="", sources=(), temporary_objects=("view v",)
    )
    with pytest.raises(ServerError, match="temporary view v") as caught:
        world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM v")
    assert caught.value.code == Code.MT_TEMPORARY_DEPENDENCY.name


def test_if_not_exists_leaves_the_first_and_warns(world: World) -> None:
    world.execute(CREATE)
    before = world.table("m")
    world.execute("CREATE MATERIALIZED TABLE IF NOT EXISTS m AS SELECT 2 AS x")
    assert world.table("m") == before
    assert "exists already" in world.logged[-1]


def test_a_plain_table_of_the_name_leaves_nothing_behind(world: World) -> None:
    world.engine.failures[CreateTable] = ServerError(
        code="TABLE_OR_VIEW_ALREADY_EXISTS", sqlstate="42P07", message="exists"
    )
    with pytest.raises(ServerError) as caught:
        world.execute(CREATE)
    assert caught.value.code == Code.MT_ALREADY_EXISTS.name
    assert world.catalog.tables() == ()


def test_a_scheduler_that_cannot_register_leaves_nothing_behind(world: World) -> None:
    world.scheduler.broken = error(Code.INTERNAL, reason="no scheduler today")
    with pytest.raises(ServerError, match="no scheduler today"):
        world.execute(CREATE)
    assert world.catalog.tables() == ()
    assert len(world.engine.requests_of(DropTable)) == 1


def test_an_engine_lost_while_it_makes_the_storage_leaves_nothing_behind(world: World) -> None:
    world.engine.failures[CreateTable] = engine_lost()
    with pytest.raises(ServerError) as caught:
        world.execute(CREATE)
    assert caught.value.code == Code.ENGINE_LOST.name
    assert world.catalog.tables() == ()
    assert len(world.engine.requests_of(DropTable)) == 1


def test_an_entry_whose_storage_cannot_be_removed_waits_for_recovery(world: World) -> None:
    world.engine.failures[CreateTable] = engine_lost()
    world.engine.failures[DropTable] = engine_lost()
    with pytest.raises(ServerError):
        world.execute(CREATE)
    assert [t.state.status for t in world.catalog.tables()] == [RefreshStatus.INITIALIZING]


def test_on_create_loads_before_the_statement_returns(world: World) -> None:
    world.execute(
        "CREATE MATERIALIZED TABLE m WITH ('materialized-table.initialize'='ON_CREATE') "
        "REFRESH_MODE = FULL AS SELECT * FROM t1"
    )
    assert [run.trigger for run in world.refreshed] == [Trigger.INITIAL]


def test_without_on_create_nothing_is_loaded(world: World) -> None:
    world.execute(CREATE)
    assert world.refreshed == []


def test_a_failed_first_load_removes_the_table(world: World) -> None:
    world.refresh_failure = error(Code.INTERNAL, reason="division by zero")
    world.execute("SET 'materialized-table.initialize'='ON_CREATE'")
    with pytest.raises(ServerError, match="division by zero"):
        world.execute(CREATE)
    assert world.catalog.tables() == ()
    assert world.scheduler.workflows == {}


def test_full_mode_needs_a_scheduler(world: World) -> None:
    world.config = type(world.config)(scheduler={"type": "none"})
    with pytest.raises(ServerError) as caught:
        world.execute(CREATE)
    assert caught.value.code == Code.MT_NO_SCHEDULER.name


def test_a_list_of_names_reorders_by_name(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m (d, c, b, a) AS SELECT * FROM t1")
    table = world.table("m")
    assert table.definition.schema.names() == ("d", "c", "b", "a")
    assert (
        table.definition.expanded_query
        == "SELECT `d`, `c`, `b`, `a` FROM (\nSELECT * FROM spark_catalog.d.t1\n)"
    )


def test_declared_types_cast_in_the_querys_order(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m (c BIGINT, a BIGINT) AS SELECT * FROM t1")
    table = world.table("m")
    assert [(c.name, c.type, c.nullable) for c in table.definition.schema] == [
        ("a", "bigint", True),
        ("b", "string", True),
        ("c", "bigint", True),
        ("d", "string", True),
    ]
    assert "CAST(`c` AS bigint) AS `c`" in table.definition.expanded_query


def test_declared_columns_of_the_same_types_leave_the_query_alone(world: World) -> None:
    world.execute("CREATE MATERIALIZED TABLE m (c INT COMMENT 'count') AS SELECT * FROM t1")
    table = world.table("m")
    assert table.definition.expanded_query == "SELECT * FROM spark_catalog.d.t1"
    assert table.definition.schema.columns[2].comment == "count"


def test_repeated_output_names_get_a_number(world: World) -> None:
    twice = Schema((Column(name="a", type="int"), Column(name="A", type="int")))
    world.engine.analyses["SELECT a, A FROM t1"] = analysis(twice, expanded="SELECT a, A FROM t")
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT a, A FROM t1")
    assert world.definition("m").schema.names() == ("a", "A0")
    assert world.definition("m").expanded_query == (
        "SELECT `a`, `A0` FROM (\nSELECT a, A FROM t\n) AS query(`a`, `A0`)"
    )


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("int", "bigint", True),
        ("int", "INTEGER", True),
        ("bigint", "int", False),
        ("int", "double", True),
        ("int", "decimal(10,2)", True),
        ("decimal(10,2)", "double", True),
        ("int", "string", False),
        ("string", "int", False),
        ("varchar(5)", "string", True),
        ("string", "varchar(5)", False),
        ("date", "timestamp", True),
        ("timestamp", "date", False),
        ("void", "string", True),
        ("array<int>", "ARRAY<INT>", True),
        ("array<int>", "array<bigint>", False),
        ("struct<a:int>", "struct<a: int>", True),
        ("boolean", "int", False),
        ("binary", "string", False),
    ],
)
def test_only_widening_casts_are_implicit(source: str, target: str, expected: bool) -> None:
    assert castable(source, target) is expected


@pytest.mark.parametrize(
    ("type", "told"),
    [
        ("interval day to second", "is INTERVAL DAY TO SECOND, which a table cannot store; CAST"),
        ("map<string,array<interval year>>", "is MAP<STRING, ARRAY<INTERVAL YEAR>>, which"),
        ("array<void>", "is ARRAY<VOID>, which a table cannot store; CAST what is NULL"),
        ("struct<a:void>", "is STRUCT<a: VOID>, which"),
    ],
)
def test_columns_that_no_table_can_store_are_refused(world: World, type: str, told: str) -> None:
    world.execute(CREATE)
    schema = Schema((*T1.columns, Column(name="span", type=type)))
    world.engine.analyses["SELECT spans"] = analysis(schema)
    for statement in ("CREATE MATERIALIZED TABLE n", "ALTER MATERIALIZED TABLE m"):
        with pytest.raises(ServerError) as caught:
            world.execute(f"{statement} AS SELECT spans")
        assert caught.value.code == "MT_QUERY_UNSUPPORTED"
        assert f"column span {told}" in caught.value.message


@pytest.mark.parametrize("type", ["void", "struct<interval:int,void:string>"])
def test_columns_that_are_named_as_those_are_stored(world: World, type: str) -> None:
    world.engine.analyses["SELECT a"] = analysis(Schema((Column(name="a", type=type),)))
    world.execute("CREATE MATERIALIZED TABLE n AS SELECT a")
    assert world.definition("n").schema.columns[0].type == type


def test_explain_create_plans_and_creates_nothing(world: World) -> None:
    world.execute("EXPLAIN " + CREATE)
    assert world.catalog.tables() == ()
    assert world.engine.requests_of(CreateTable) == []


def test_an_analysis_error_is_placed_in_the_whole_statement(world: World) -> None:
    world.engine.failures[Analyze] = ServerError(
        code="UNRESOLVED_COLUMN", sqlstate="42703", message="nope", line=1, column=8
    )
    with pytest.raises(ServerError) as caught:
        world.execute("CREATE MATERIALIZED TABLE bad\nAS SELECT nope\nFROM t1")
    assert (caught.value.line, caught.value.column) == (2, 11)
    world.engine.failures[Analyze] = ServerError(
        code="UNRESOLVED_COLUMN", sqlstate="42703", message="nope", line=2, column=6
    )
    with pytest.raises(ServerError) as caught:
        world.execute("CREATE MATERIALIZED TABLE bad\nAS SELECT nope\nFROM t1")
    assert (caught.value.line, caught.value.column) == (3, 6)


UNSTABLE = ("D1 current_date", "D2 row_number", "D3 rand")


def test_strict_mode_lists_the_functions_that_are_not_stable(world: World) -> None:
    query = "SELECT rand() AS r, current_date() AS d FROM t1"
    world.engine.analyses[query] = replace(analysis(), unstable=UNSTABLE)
    with pytest.raises(ServerError, match="it uses current_date, rand") as caught:
        world.execute(f"CREATE MATERIALIZED TABLE m REFRESH_MODE = INCREMENTAL STRICT AS {query}")
    assert caught.value.code == Code.MT_NOT_INCREMENTAL.name
    world.execute(f"CREATE MATERIALIZED TABLE m REFRESH_MODE = INCREMENTAL AS {query}")
    expanded = world.definition("m").expanded_query
    world.engine.analyses[expanded] = replace(analysis(), unstable=UNSTABLE[2:])
    with pytest.raises(ServerError, match="it uses rand") as caught:
        world.execute("ALTER MATERIALIZED TABLE m SET REFRESH_MODE = INCREMENTAL STRICT")
    assert caught.value.code == Code.MT_NOT_INCREMENTAL.name


@pytest.mark.parametrize(
    ("type", "remedy"),
    [
        ("binary", "Partition by hex(`p`)"),
        ("string collate UTF8_LCASE", "Partition by `p` COLLATE UTF8_BINARY"),
        ("variant", "to_json(`p`)"),
        ("struct<a:int>", "to_json(`p`)"),
        ("time(6)", "Partition by CAST(`p` AS STRING)"),
    ],
)
def test_types_that_no_table_can_be_partitioned_by_are_refused(
    world: World, type: str, remedy: str
) -> None:
    produces(world, "SELECT a, p FROM t1", T1.columns[0], column("p", type), source="t1")
    statement = "CREATE MATERIALIZED TABLE m PARTITIONED BY (a, p) AS SELECT a, p FROM t1"
    problem = refusal(world, statement)
    assert (problem.code, problem.sqlstate) == ("MT_PARTITION_UNSUPPORTED", "0A000")
    assert f"p is {type.upper()}" in problem.message
    assert remedy in problem.hint
    assert (problem.line, problem.column) == (1, statement.index("p) AS") + 1)


@pytest.mark.parametrize(
    "type",
    ["char(3)", "varchar(3)", "boolean", "decimal(38,18)", "double", "date", "timestamp_ntz"],
)
def test_types_that_a_table_can_be_partitioned_by(world: World, type: str) -> None:
    produces(world, "SELECT a, p FROM t1", T1.columns[0], column("p", type), source="t1")
    world.execute("CREATE MATERIALIZED TABLE m PARTITIONED BY (p) AS SELECT a, p FROM t1")
    assert world.definition("m").partition_keys == ("p",)
