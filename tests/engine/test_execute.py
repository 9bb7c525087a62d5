"""Statements over the real Flight socket: types, sizes, commands, errors, cancel."""

from __future__ import annotations

import threading
import time
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.flight
import pytest

from tests.engine.conftest import Client, EngineProcess, Session
from tests.support.full_run import FULL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import (
    Done,
    EngineInfo,
    FunctionList,
    NameList,
    SchemaNames,
    TableList,
)
from tidegate_server.core.messages.requests import (
    Cancel,
    CloseResult,
    CloseSession,
    Execute,
    ListFunctions,
    ListNames,
    ListTables,
    ListTemporaryFunctions,
    ListTemporaryViews,
    Ping,
    RegisterSystemTables,
    SystemTable,
)
from tidegate_server.core.model.names import FunctionName

pytestmark = [pytest.mark.spark, pytest.mark.thorough]


def spool(engine: EngineProcess) -> list[str]:
    return [path.name for path in (engine.data / "spool").iterdir()]


def test_ping_tells_who_the_engine_is(client: Client, engine: EngineProcess) -> None:
    answer = client.call(Ping())
    assert isinstance(answer, EngineInfo)
    assert answer.pid == engine.process.pid
    assert answer.spark_version.startswith("4.1.")


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT 1 AS n, array(NULL, 'x') AS a", [(1, '[null,"x"]')]),
        ("SELECT * FROM VALUES (1, 'a'), (2, NULL) AS t(n, s)", [(1, "a"), (2, None)]),
        ("SELECT 1 AS n WHERE false", []),
        ("SHOW TABLES IN nothing_here", []),
        ("SHOW SCHEMAS LIKE 'nothing*'", [("nothing_here",)]),
        ("SET spark.sql.ansi.enabled", [("spark.sql.ansi.enabled", "true")]),
    ],
)
def test_what_the_optimizer_knows_comes_without_a_job(
    session: Session, sql: str, rows: list[tuple[object, ...]]
) -> None:
    session.execute("CREATE SCHEMA IF NOT EXISTS nothing_here")
    table = session.table(session.execute(sql))
    assert [tuple(row.values()) for row in table.to_pylist()] == rows


def test_natural_types_keep_their_arrow_types(session: Session) -> None:
    answer = session.execute(
        "SELECT true a, 1Y b, 2S c, 3 d, 4L e, 1.5F f, 2.5D g, 1.50BD h, 's' i, X'00FF' j, "
        "DATE'2020-01-02' k, TIMESTAMP'2020-01-02 03:04:05Z' l, TIMESTAMP_NTZ'2020-01-02 03:04:05'"
    )
    table = session.table(answer)
    assert [str(kind) for kind in table.schema.types[:11]] == [
        "bool", "int8", "int16", "int32", "int64", "float", "double", "decimal128(3, 2)",
        "string", "binary", "date32[day]",
    ]  # fmt: skip
    row = tuple(table.to_pylist()[0].values())
    assert row[:7] == (True, 1, 2, 3, 4, 1.5, 2.5)
    assert row[7:11] == (Decimal("1.50"), "s", b"\x00\xff", date(2020, 1, 2))
    assert row[11].timestamp() == 1577934245
    assert row[12] == datetime.fromisoformat("2020-01-02 03:04:05")


def test_timestamps_carry_the_zone_of_the_session(session: Session) -> None:
    session.execute("SET spark.sql.session.timeZone = Europe/Berlin")
    table = session.table(session.execute("SELECT TIMESTAMP'2020-01-02 03:04:05'"))
    assert table.schema.types[0] == pa.timestamp("us", tz="Europe/Berlin")
    assert table.to_pylist()[0]["c0"].hour == 3


@pytest.mark.parametrize(
    ("given", "zone"),
    [
        ("GMT+8", "+08:00"),
        ("UTC+08:00", "+08:00"),
        ("+8", "+08:00"),
        ("PST", "America/Los_Angeles"),
        ("-08:30:15", "-08:30:15"),
        ("GMT", "UTC"),
    ],
)
@pytest.mark.parametrize("source", ["VALUES 1", "range(3)"])
def test_zones_are_spelled_as_arrow_knows_them(
    session: Session, given: str, zone: str, source: str
) -> None:
    session.execute(f"SET spark.sql.session.timeZone = {given}")
    moment = "TIMESTAMP'2020-01-02 03:04:05'"
    query = f"SELECT {moment}, unix_micros({moment}) FROM {source} ORDER BY 1 LIMIT 1"
    table = session.table(session.execute(query))
    assert table.schema.types[0] == pa.timestamp("us", tz=zone)
    assert table.column(0).cast(pa.int64()) == table.column(1)


def test_nested_values_are_valid_json_with_nulls_kept(session: Session) -> None:
    answer = session.execute(
        "SELECT array(1, null) a, map(1, 'x') b, named_struct('x', 1, 'y', cast(null AS int)) c, "
        "parse_json('{\"k\": [1]}') d, cast(null AS array<int>) e"
    )
    assert [column.type for column in answer.schema] == [
        "array<int>", "map<int,string>", "struct<x:int,y:int>", "variant", "array<int>",
    ]  # fmt: skip
    assert tuple(session.table(answer).to_pylist()[0].values()) == (
        "[1,null]", '{"1":"x"}', '{"x":1,"y":null}', '{"k":[1]}', None,
    )  # fmt: skip


def test_nested_values_keep_their_digits_and_keys(session: Session) -> None:
    moment = "TIMESTAMP_NTZ'2020-01-02 03:04:05.000006'"
    session.execute("SET spark.sql.session.timeZone = Europe/Berlin")
    assert session.rows(
        f"SELECT array({moment}, NULL), named_struct('a', {moment}, 'b', INTERVAL '1' DAY), "
        f"map(DATE'2020-01-02', array(INTERVAL '1-2' YEAR TO MONTH)), map({moment}, 1.5), "
        "map(TIMESTAMP'2020-01-02 03:04:05', X'00FF'), map(X'00FF', 1), "
        "map(named_struct('a', 1), 2), array(named_struct('a', TIMESTAMP'2020-01-02 03:04:05')), "
        f"cast(NULL AS struct<a: timestamp>), map(3, {moment})"
    ) == [
        (
            '["2020-01-02 03:04:05.000006",null]',
            '{"a":"2020-01-02 03:04:05.000006","b":"1 00:00:00.000000000"}',
            '{"2020-01-02":["1-2"]}',
            '{"2020-01-02 03:04:05.000006":1.5}',
            '{"2020-01-02 03:04:05.000000+01:00":"AP8="}',
            '{"AP8=":1}',
            '{"{\\"a\\":1}":2}',
            '[{"a":"2020-01-02 03:04:05"}]',
            None,
            '{"3":"2020-01-02 03:04:05.000006"}',
        )
    ]


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("INTERVAL '1 02' DAY TO HOUR", "1 02:00:00.000000000"),
        ("INTERVAL '-1 02:03:04.5' DAY TO SECOND", "-1 02:03:04.500000000"),
        ("INTERVAL '90' SECOND", "0 00:01:30.000000000"),
        ("INTERVAL '1-2' YEAR TO MONTH", "1-2"),
        ("INTERVAL '-14' MONTH", "-1-2"),
        ("make_interval(1, 2, 3)", "1 years 2 months 21 days"),
        ("cast(null AS INTERVAL DAY TO SECOND)", None),
        ("null", None),
    ],
)
def test_intervals_are_text_as_hive_prints_it(
    session: Session, literal: str, text: str | None
) -> None:
    assert session.rows(f"SELECT {literal}") == [(text,)]


def test_char_and_varchar_keep_their_declared_types(session: Session, schema: str) -> None:
    session.execute("CREATE TABLE c (a CHAR(5) COMMENT 'five', b VARCHAR(7)) USING parquet")
    columns = session.execute("SELECT * FROM c").schema.columns
    assert [(c.type, c.comment) for c in columns] == [("char(5)", "five"), ("varchar(7)", None)]


def test_names_may_repeat_and_keep_their_case(session: Session) -> None:
    answer = session.execute("SELECT 1 AS Ab, 2 AS ab, 3 AS `a b`")
    assert answer.schema.names() == ("Ab", "ab", "a b")
    assert list(session.table(answer).to_pylist()[0].values()) == [1, 2, 3]


def test_an_empty_result_still_has_its_schema(session: Session) -> None:
    answer = session.execute("SELECT id, array(id) FROM range(3) WHERE id > 5")
    assert (answer.rows, answer.has_result_set) == (0, True)
    assert [str(t) for t in session.table(answer).schema.types] == ["int64", "string"]


def test_a_medium_result_comes_in_one_chunk_and_goes_when_closed(
    session: Session, engine: EngineProcess
) -> None:
    answer = session.execute("SELECT id FROM range(50000)", inline_bytes=1000)
    assert (answer.inline, answer.chunks, answer.rows) == (None, 1, 50000)
    assert session.table(answer).column(0).to_pylist() == list(range(50000))
    assert session.client.call(CloseResult(result_id=answer.result_id)) == Done()
    assert answer.result_id not in spool(engine)


def test_a_large_result_is_spooled_and_streams_in_order(
    session: Session, engine: EngineProcess
) -> None:
    answer = session.execute(
        "SELECT id, cast(id AS string) s, TIMESTAMP'2020-01-01 00:00:00' t, id * 1.5BD d "
        "FROM range(1500000) ORDER BY id DESC"
    )
    assert answer.rows == 1_500_000
    assert answer.chunks > 1
    last = 1_500_000
    for chunk in range(answer.chunks):
        ids = session.client.read(answer.result_id, chunk).column(0).to_numpy()
        assert ids[0] == last - 1
        assert (ids[:-1] > ids[1:]).all()
        last = int(ids[-1])
    assert last == 0
    session.client.call(CloseResult(result_id=answer.result_id))
    assert answer.result_id not in spool(engine)


def test_a_result_beyond_the_limit_of_the_driver_falls_back_to_the_spool(session: Session) -> None:
    sql = "SELECT explode(sequence(1, 3000000)) n, repeat('x', 50) s"
    answer = session.execute(sql)
    assert answer.rows == 3_000_000
    assert answer.chunks > 1


def test_closing_a_session_deletes_its_results(client: Client, engine: EngineProcess) -> None:
    session = Session(client)
    answer = session.execute("SELECT id FROM range(50000)", inline_bytes=0)
    assert answer.result_id in spool(engine)
    client.call(CloseSession(session_id=session.id))
    assert answer.result_id not in spool(engine)
    assert session.failure("SELECT 1").code == "INVALID_SESSION_HANDLE"


def test_a_chunk_that_does_not_exist_is_an_error(client: Client) -> None:
    with pytest.raises(pa.flight.FlightError, match="no chunk 3"):
        client.read("nothing", 3)


def test_commands_run_exactly_once(session: Session, schema: str) -> None:
    assert not session.execute("CREATE TABLE t (a INT) USING delta").has_result_set
    inserted = session.execute("INSERT INTO t VALUES (1), (2), (3)")
    assert (inserted.has_result_set, inserted.modified_rows) == (False, 3)
    assert session.rows("SELECT count(*) FROM t") == [(3,)]
    assert session.execute("UPDATE t SET a = a + 1 WHERE a < 3").modified_rows == 2
    assert session.execute("DELETE FROM t WHERE a = 3").modified_rows == 2
    assert [row[4] for row in session.rows("DESCRIBE HISTORY t")] == [
        "DELETE", "UPDATE", "WRITE", "CREATE TABLE",
    ]  # fmt: skip


def test_an_answer_tells_the_current_schema(session: Session, schema: str) -> None:
    answer = session.execute("SELECT 1")
    assert (answer.current_catalog, answer.current_schema) == ("spark_catalog", schema)


def test_sessions_do_not_see_each_others_temporary_views(client: Client) -> None:
    first, second = Session(client), Session(client)
    first.execute("CREATE TEMPORARY VIEW mine AS SELECT 1 a")
    assert first.rows("SELECT * FROM mine") == [(1,)]
    assert second.failure("SELECT * FROM mine").code == "TABLE_OR_VIEW_NOT_FOUND"


def test_settings_of_a_statement_hold_for_it_alone(session: Session) -> None:
    key = "spark.sql.ansi.enabled"
    assert session.rows("SELECT 1/0", settings={key: "false"}) == [(None,)]
    assert session.failure("SELECT 1/0").code == "DIVIDE_BY_ZERO"


def test_errors_name_condition_state_and_position(session: Session) -> None:
    failed = session.failure("SELECT\n  nope FROM range(3)")
    assert failed.code == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert (failed.sqlstate, failed.line, failed.column) == ("42703", 2, 3)
    assert "\n" not in failed.message
    assert "SQLSTATE" not in failed.message


def test_a_failing_task_reports_its_own_condition(session: Session) -> None:
    failed = session.failure("SELECT raise_error(concat('boom', id)) FROM range(1)")
    assert (failed.code, failed.sqlstate) == ("USER_RAISED_EXCEPTION", "P0001")
    assert failed.message == "boom0"


def test_a_running_statement_reports_progress_and_can_be_canceled(
    session: Session, engine: EngineProcess
) -> None:
    def cancel() -> None:
        other = engine.client()
        while not session.client.progress:
            time.sleep(0.05)
        other.call(Cancel(operation_id="long"))
        other.close()

    session.client.progress.clear()  # opening the session may have taken long enough for some
    canceler = threading.Thread(target=cancel)
    canceler.start()
    sql = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.id % 7 = b.id % 11"
    failed = session.failure(sql, operation_id="long")
    canceler.join()
    assert failed.code == "OPERATION_CANCELED"
    assert session.client.progress[0].tasks_total > 0
    assert session.rows("SELECT 1") == [(1,)]


def test_canceling_what_does_not_run_is_harmless(client: Client) -> None:
    assert client.call(Cancel(operation_id="nothing")) == Done()


def test_tables_are_listed_with_columns_and_kinds(
    session: Session, client: Client, schema: str
) -> None:
    session.execute("CREATE TABLE d (a INT COMMENT 'first', b STRING) USING delta COMMENT 'it''s'")
    session.execute("CREATE VIEW v AS SELECT a FROM d")
    listed = client.call(ListTables(schema=schema, with_columns=True))
    assert isinstance(listed, TableList)
    assert schema in listed.schemas
    table, view = listed.tables
    assert (table.name.table, table.type, table.comment) == ("d", "TABLE", "it's")
    assert [(c.name, c.type, c.comment) for c in table.columns] == [
        ("a", "int", "first"),
        ("b", "string", None),
    ]
    assert (view.name.table, view.type, view.columns[0].name) == ("v", "VIEW", "a")
    some = client.call(ListTables(schema=schema, names=("V", "nothing")))
    assert isinstance(some, TableList)
    assert [(info.name.table, info.columns) for info in some.tables] == [("v", ())]
    assert client.call(ListTables(schema="nowhere", names=("v",))) == TableList(
        schemas=(), tables=()
    )
    names = client.call(ListNames())
    assert isinstance(names, NameList)
    assert SchemaNames(schema=schema, tables=("d",), views=("v",)) in names.schemas


def test_temporary_views_are_those_of_the_session_and_the_global_ones(
    session: Session, schema: str
) -> None:
    session.execute("CREATE TEMP VIEW mine AS SELECT 1 AS one")
    session.execute(f"CREATE GLOBAL TEMP VIEW {schema} AS SELECT 'x' AS two")
    try:
        listed = session.client.call(ListTemporaryViews(session_id=session.id))
        assert isinstance(listed, TableList)
        found = [(v.name.schema, v.name.table, v.columns[0].name) for v in listed.tables]
        assert found == [("global_temp", schema, "two"), ("", "mine", "one")]
    finally:
        session.execute(f"DROP VIEW global_temp.{schema}")


def test_functions_are_listed(session: Session) -> None:
    session.execute("CREATE OR REPLACE FUNCTION default.listed(x INT) RETURNS INT RETURN x")
    session.execute("CREATE TEMPORARY FUNCTION mine(x INT) RETURNS INT RETURN x + 1")
    try:
        answer = session.client.call(ListFunctions())
        assert isinstance(answer, FunctionList)
        shared = set(answer.functions)
        assert {FunctionName("count"), FunctionName("to_json")} <= shared
        assert FunctionName("listed", "default") in shared
        assert not {each for each in shared if each.name in ("mine", "listed") and not each.schema}
        own = session.client.call(ListTemporaryFunctions(session_id=session.id))
        assert isinstance(own, FunctionList)
        assert FunctionName("mine") in own.functions
        assert FunctionName("count") not in own.functions
    finally:
        session.execute("DROP FUNCTION default.listed")


def test_delta_directories_become_system_tables(
    session: Session, client: Client, schema: str, engine: EngineProcess
) -> None:
    tables = []
    for number in (7, 8, 9):
        place = engine.data / f"system-{schema}-{number}"
        session.execute(f"CREATE TABLE delta.`{place}` (a{number} INT) USING delta")
        session.execute(f"INSERT INTO delta.`{place}` VALUES ({number})")
        name = f"t{number}_{schema}"
        tables.append(SystemTable(name=name, location=str(place), comment=f"it's {number}"))
    for known in (1, 1, 3):
        request = RegisterSystemTables(schema="information_schema", tables=tuple(tables[:known]))
        assert client.call(request) == Done()
    listed = client.call(ListTables(schema="information_schema"))
    assert isinstance(listed, TableList)
    comments = {table.name.table: table.comment for table in listed.tables}
    for number, table in zip((7, 8, 9), tables, strict=True):
        query = f"SELECT a{number} FROM information_schema.{table.name}"
        assert session.rows(query) == [(number,)]
        assert comments[table.name] == table.comment


def test_an_action_that_is_unknown_is_refused(client: Client) -> None:
    answer = list(client._flight.do_action(pa.flight.Action("Nonsense", b"")))
    assert b"INVALID_REQUEST" in answer[0].body.to_pybytes()


def test_a_failure_is_a_server_error(client: Client) -> None:
    with pytest.raises(ServerError):
        client.call(Execute(session_id="none", operation_id="o", sql="SELECT 1"))


# ---- the change feed that new tables have ------------------------------------------------------


FED = ["_change_type", "_commit_version", "_commit_timestamp"]


@pytest.mark.parametrize("name", FED if FULL else FED[:1])
def test_a_table_with_a_column_of_the_change_feed_is_created_without_it(
    session: Session, schema: str, name: str
) -> None:
    session.execute(f"CREATE TABLE t ({name} INT, n INT) USING delta")
    session.execute("INSERT INTO t VALUES (1, 1)")
    session.execute("UPDATE t SET n = 2")
    assert session.rows("SELECT * FROM t") == [(1, 2)]
    session.execute(f"CREATE TABLE u USING delta AS SELECT {name}, n FROM t")
    session.execute(f"CREATE OR REPLACE TABLE t USING delta AS SELECT n AS {name} FROM u")
    assert (session.rows("SELECT * FROM t"), session.rows("SELECT * FROM u")) == ([(2,)], [(1, 2)])
    session.execute("CREATE TABLE other (n INT) USING delta")
    shown = {table: dict(session.rows(f"SHOW TBLPROPERTIES {table}")) for table in ("t", "other")}
    feeds = {table: found["delta.enableChangeDataFeed"] for table, found in shown.items()}
    assert feeds == {"t": "false", "other": "true"}


def test_columns_that_the_change_feed_cannot_have_say_what_to_do(
    session: Session, schema: str
) -> None:
    session.execute("CREATE TABLE t (n INT, `a``b` INT) USING delta")
    session.execute("INSERT INTO t VALUES (1, 1)")
    # Delta finds only names in lower case when it creates a table.
    session.execute("CREATE TABLE cased (_Change_Type INT, n INT) USING delta")
    session.execute("INSERT INTO cased VALUES (1, 1)")
    off = "'delta.enableChangeDataFeed' = 'false'"
    asked = f"TBLPROPERTIES ({off.replace('false', 'true')})"
    for statement, code in (
        ("ALTER TABLE t ADD COLUMNS (_change_type INT)", "RESERVED_CDC_COLUMNS_ON_WRITE"),
        (
            f"CREATE TABLE u (_change_type INT) USING delta {asked}",
            "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
        ),
        ("UPDATE cased SET n = 2", "AMBIGUOUS_REFERENCE_TO_FIELDS"),
        ("UPDATE t SET `a``b` = 2", "INVALID_ATTRIBUTE_NAME_SYNTAX"),
        (
            "MERGE INTO t USING (SELECT 1 AS k) s ON t.n = s.k WHEN MATCHED THEN UPDATE SET n = 2",
            "INVALID_ATTRIBUTE_NAME_SYNTAX",
        ),
    ):
        problem = session.failure(statement)
        assert (problem.code, off in problem.hint) == (code, True)
    session.execute(f"ALTER TABLE t SET TBLPROPERTIES ({off})")
    session.execute("UPDATE t SET `a``b` = 2")
    assert session.rows("SELECT * FROM t") == [(1, 2)]
    problem = session.failure("SELECT n FROM t WHERE struct(n).`a.b IS NULL")
    assert "change feed" not in problem.hint


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT * FROM missing", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT nope FROM range(1)", "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION"),
        ("SELECT repeat('x', 2000000000)", "VALUE_TOO_LARGE"),
    ],
)
@pytest.mark.parametrize("mode", ["", "EXTENDED", "FORMATTED", "COST", "CODEGEN"])
def test_explain_fails_where_the_query_does(
    client: Client, mode: str, query: str, code: str
) -> None:
    failure = Session(client).failure(f"EXPLAIN {mode} {query}")
    assert failure.code.partition(".")[0] == code.partition(".")[0]


def test_explain_shows_the_plan(client: Client) -> None:
    session = Session(client)
    [(plan,)] = session.rows("EXPLAIN SELECT 'Error occurred during query planning' AS plan")
    assert str(plan).startswith("== Physical Plan ==")
    assert session.rows("SELECT 'Error occurred during query planning: ' AS plan") != []
