"""SHOW, SET and what goes to Spark."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import World
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.answers import TableInfo
from tidegate_server.core.messages.requests import Execute, OpenSession
from tidegate_server.core.model.names import TableName
from tidegate_server.gateway.command.dispatch import prepare
from tidegate_server.gateway.options import OPTIONS

BASE = (
    "CREATE MATERIALIZED TABLE m (a BIGINT COMMENT 'id', CONSTRAINT ct1 PRIMARY KEY(a) NOT "
    "ENFORCED) COMMENT 'it''s' PARTITIONED BY (d) WITH ('z'='1', 'format'='json') AS "
    "SELECT * FROM t1"
)


def test_tables_are_listed_sorted_without_an_engine(world: World) -> None:
    for table in ("users", "orders", "other.hidden", "units"):
        world.execute(f"CREATE MATERIALIZED TABLE {table} AS SELECT * FROM t1")
    world.engine.ready = False
    world.engine.requests.clear()
    assert world.rows("SHOW MATERIALIZED TABLES") == [("orders",), ("units",), ("users",)]
    assert world.rows("SHOW MATERIALIZED TABLES FROM spark_catalog.other") == [("hidden",)]
    assert world.rows("SHOW MATERIALIZED TABLES LIKE 'u%s'") == [("units",), ("users",)]
    assert world.rows("SHOW MATERIALIZED TABLES NOT LIKE 'u%'") == [("orders",)]
    assert world.rows("SHOW MATERIALIZED TABLES ILIKE 'U_ERS'") == [("users",)]
    assert world.rows("SHOW MATERIALIZED TABLES LIKE 'U%'") == []
    assert world.rows("SHOW MATERIALIZED TABLES FROM nosuch") == []
    assert world.engine.requests == []


def test_extended_lists_mode_status_and_last_refresh(world: World) -> None:
    world.execute(BASE)
    world.execute("ALTER MATERIALIZED TABLE m REFRESH")
    assert world.rows("SHOW MATERIALIZED TABLES EXTENDED") == [
        (
            "m",
            "d",
            "CONTINUOUS",
            "ACTIVATED",
            "3 MINUTE",
            "SUCCEEDED at 2024-01-02 12:00:00 UTC",
            "at most 0 s",
            None,
        )
    ]


def test_show_create_table_of_a_materialized_table_prints_its_statement(world: World) -> None:
    world.execute(BASE)
    materialized = world.rows("SHOW CREATE MATERIALIZED TABLE m")
    world.engine.requests.clear()
    assert world.rows("SHOW CREATE TABLE m") == materialized
    assert world.engine.requests == []


def test_show_create_prints_the_clauses_in_order(world: World) -> None:
    world.execute(BASE)
    [(text,)] = world.rows("SHOW CREATE MATERIALIZED TABLE m")
    assert text == (
        "CREATE MATERIALIZED TABLE `spark_catalog`.`d`.`m` (\n"
        "  `a` bigint COMMENT 'id',\n"
        "  `b` string,\n"
        "  `c` int,\n"
        "  `d` string,\n"
        "  CONSTRAINT `ct1` PRIMARY KEY (`a`) NOT ENFORCED\n"
        ")\n"
        "COMMENT 'it\\'s'\n"
        "PARTITIONED BY (`d`)\n"
        "WITH (\n  'format' = 'json',\n  'z' = '1'\n)\n"
        "FRESHNESS = INTERVAL '3' MINUTE\n"
        "REFRESH_MODE = CONTINUOUS\n"
        "AS SELECT * FROM spark_catalog.d.t1"
    ).replace("bigint COMMENT", "bigint NOT NULL COMMENT")


def test_show_create_or_alter_differs_in_its_first_words_alone(world: World) -> None:
    world.execute(BASE)
    [(plain,)] = world.rows("SHOW CREATE MATERIALIZED TABLE m")
    [(alter,)] = world.rows("SHOW CREATE OR ALTER MATERIALIZED TABLE m")
    assert str(alter) == str(plain).replace("CREATE MAT", "CREATE OR ALTER MAT", 1)


def test_tidegates_settings_stay_in_the_session(world: World) -> None:
    assert world.rows("SET 'execution.mode' = 'embedded'") == [("execution.mode", "embedded")]
    assert world.rows("SET execution.mode") == [("execution.mode", "embedded")]
    assert world.engine.requests == []
    world.execute("RESET execution.mode")
    assert world.rows("SET execution.mode") == [("execution.mode", "<undefined>")]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("SET execution.mode=yarn-session", Code.MT_EXECUTION_MODE),
        ("SET materialized-table.initialize=SOON", Code.MT_OPTION_VALUE),
        ("SET materialized-table.no-such-thing=1", Code.MT_OPTION_UNKNOWN),
        ("SET materialized-table.default-freshness.full=soon", Code.MT_OPTION_VALUE),
    ],
)
def test_unusable_settings_are_refused(world: World, statement: str, code: Code) -> None:
    with pytest.raises(ServerError) as caught:
        world.execute(statement)
    assert caught.value.code == code.name
    assert world.session.settings == {}


def test_sparks_settings_are_remembered_and_replayed_to_a_new_engine(world: World) -> None:
    world.execute("SET spark.sql.ansi.enabled = false")
    world.execute("USE other")
    world.engine.generation += 1
    world.engine.requests.clear()
    world.execute("SELECT 1")
    assert world.engine.requests[0] == OpenSession(
        session_id="s1",
        settings={"spark.sql.ansi.enabled": "false"},
        schema="other",
        catalog="spark_catalog",
    )


def test_what_a_new_engine_lacks_is_told_once(world: World) -> None:
    world.execute("CREATE OR REPLACE TEMP VIEW V AS SELECT 1")
    world.execute("DECLARE x INT")
    world.execute("CREATE TEMPORARY VIEW gone AS SELECT 1")
    world.execute("DROP VIEW gone")
    world.engine.generation += 1
    with pytest.raises(ServerError) as caught:
        world.execute("SELECT * FROM v")
    assert caught.value.code == Code.SESSION_OBJECTS_LOST.name
    assert "this session lost variable x, view v" in caught.value.message
    assert len(world.engine.requests_of(OpenSession)) == 2
    world.execute("SELECT 1")
    world.engine.generation += 1
    world.execute("SELECT 1")


def test_the_child_session_is_opened_once(world: World) -> None:
    world.execute("SELECT 1")
    world.execute("SELECT 2")
    assert len(world.engine.requests_of(OpenSession)) == 1


def test_spark_statements_are_sent_byte_for_byte(world: World) -> None:
    text = "select  1 -- it's \n;"
    world.execute(text)
    [request] = world.engine.requests_of(Execute)
    assert isinstance(request, Execute)
    assert (request.sql, request.session_id, request.operation_id) == (text, "s1", "op1")


def test_system_tables_are_published_before_they_are_read(world: World) -> None:
    world.execute("SELECT * FROM Information_Schema.materialized_tables")
    world.execute("SELECT 1")
    assert world.published == 1
    world.session.schema = "information_schema"
    world.execute("SELECT * FROM materialized_tables")
    assert world.published == 2


def test_all_settings_are_tidegates_and_then_sparks(world: World) -> None:
    world.execute("SET 'execution.mode' = 'embedded'")
    world.execute("SET spark.x.y = 1")
    world.engine.requests.clear()
    assert world.rows("SET") == [("execution.mode", "embedded")]
    verbose = {key: rest for key, *rest in world.rows("SET -v")}
    assert verbose["execution.mode"] == ["embedded", OPTIONS["execution.mode"].meaning, None]
    assert verbose["pipeline.name"] == ["<undefined>", "The name of the next job.", None]
    assert "workflow-scheduler.type" not in verbose  # which is not a session's
    assert list(verbose) == sorted(verbose)
    assert [request.sql for request in world.engine.requests_of(Execute)] == ["SET", "SET -v"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ALTER MATERIALIZED TABLE m REFRESH PARTITION (ds='1')", True),
        ("ALTER MATERIALIZED TABLE m SUSPEND", False),
        ("ALTER MATERIALIZED TABLE refresh SUSPEND", False),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1", False),
        ("SHOW MATERIALIZED TABLES", True),
        ("EXPLAIN REFRESH m", True),
        ("DESC m", True),
        ("SET 'a.b'='c'", True),
        ("RESET", False),
        ("SELECT 1", True),
        ("INSERT INTO t SELECT 1", False),
        ("ALTER MATERIALIZED TABLE", False),
        ("", False),
    ],
)
def test_whether_rows_come_is_known_from_the_text(text: str, expected: bool) -> None:
    assert prepare(text).returns_rows is expected


@pytest.mark.parametrize("name", ["SHOW CREATE MATERIALIZED TABLE p", "SHOW VERSIONS p"])
def test_a_plain_table_has_no_definition_to_show(world: World, name: str) -> None:
    world.engine.plain = (TableInfo(name=TableName("spark_catalog", "d", "p"), type="TABLE"),)
    with pytest.raises(ServerError) as caught:
        world.execute(name)
    assert caught.value.code == Code.MT_WRONG_KIND.name
    assert caught.value.hint == "Use the statements for TABLE."
