"""Real clients of other projects, unchanged, against the server over fakes."""

# ruff: noqa: DTZ001  (moments without a zone are what timestamp_ntz holds)

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import impala.dbapi
import pyarrow as pa
import pytest
from pyhive import hive

from tests.gateway.protocol.gateway import BatchResult, Gateway, eventually
from tidegate_server.core.model.result import RowsResult
from tidegate_server.core.model.types import Column, Schema

# impyla leaves a socket to the garbage collector when it closes a connection.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

COLUMNS: list[tuple[str, pa.Array]] = [
    ("boolean", pa.array([True, None])),
    ("tinyint", pa.array([-1, None], pa.int8())),
    ("smallint", pa.array([-2, None], pa.int16())),
    ("int", pa.array([-3, None], pa.int32())),
    ("bigint", pa.array([2**62, None], pa.int64())),
    ("float", pa.array([0.1, None], pa.float32())),
    ("double", pa.array([0.1, None], pa.float64())),
    ("decimal(10,3)", pa.array([Decimal("-1.500"), None], pa.decimal128(10, 3))),
    ("string", pa.array(["grün", None])),
    ("binary", pa.array([b"ab", None])),
    ("date", pa.array([date(2026, 2, 3), None])),
    (
        "timestamp",
        pa.array([datetime(2026, 2, 3, 4, 5, 6, 500_000, UTC), None], pa.timestamp("us", "UTC")),
    ),
    ("timestamp_ntz", pa.array([datetime(2026, 2, 3, 4, 5, 6), None], pa.timestamp("us"))),
    ("interval day to second", pa.array(["1 02:03:04.000000000", None])),
    ("array<int>", pa.array(["[1,2]", None])),
    ("map<string,int>", pa.array(['{"a":1}', None])),
    ("struct<a:int>", pa.array(['{"a":1}', None])),
]


def every_type(_: Any) -> BatchResult:
    names = [f"c{n}" for n in range(len(COLUMNS))]
    schema = Schema(tuple(Column(name=n, type=t) for n, (t, _) in zip(names, COLUMNS, strict=True)))
    batch = pa.RecordBatch.from_arrays([array for _, array in COLUMNS], names=names)
    return BatchResult(schema, [batch])


def no_rows(_: Any) -> RowsResult:
    return RowsResult(Schema((Column(name="n", type="int"),)), [], types=(pa.int32(),))


def many_rows(_: Any) -> BatchResult:
    values = pa.array(range(25_000), pa.int64())
    batch = pa.RecordBatch.from_arrays([values], names=["n"])
    return BatchResult(Schema((Column(name="n", type="bigint"),)), [batch])


@pytest.fixture(scope="module", autouse=True)
def answers(gateway: Gateway) -> Iterator[None]:
    gateway.answers["SELECT everything"] = every_type
    gateway.answers["SELECT nothing"] = no_rows
    gateway.answers["SELECT many"] = many_rows
    yield
    gc.collect()


# ---- PyHive --------------------------------------------------------------------------------


@pytest.fixture
def pyhive(gateway: Gateway) -> Iterator[Any]:
    connection = hive.connect(gateway.host, port=gateway.port, username="eva")
    yield connection.cursor()
    connection.close()


def test_pyhive_reads_every_type(pyhive: Any) -> None:
    pyhive.execute("SELECT everything")
    first, second = pyhive.fetchall()
    assert first[:9] == (True, -1, -2, -3, 2**62, 0.1, 0.1, Decimal("-1.500"), "grün")
    assert first[9:11] == (b"ab", "2026-02-03")
    assert first[11:13] == (
        datetime(2026, 2, 3, 4, 5, 6, 500_000),
        datetime(2026, 2, 3, 4, 5, 6),
    )
    assert first[13:] == ("1 02:03:04.000000000", "[1,2]", '{"a":1}', '{"a":1}')
    assert second == (None,) * len(COLUMNS)


def test_pyhive_reads_many_rows_in_order(pyhive: Any) -> None:
    pyhive.execute("SELECT many")
    assert [row[0] for row in pyhive.fetchall()] == list(range(25_000))


def test_pyhive_reads_an_empty_result(pyhive: Any) -> None:
    pyhive.execute("SELECT nothing")
    assert pyhive.fetchall() == []
    assert pyhive.description[0][:2] == ("n", "INT_TYPE")


def test_pyhive_knows_a_statement_without_a_result(pyhive: Any) -> None:
    pyhive.execute("USE default")
    assert pyhive.description is None


def test_pyhive_raises_the_servers_sentence(pyhive: Any) -> None:
    with pytest.raises(hive.OperationalError, match="TABLE_OR_VIEW_NOT_FOUND"):
        pyhive.execute("SELECT nope")


def test_pyhive_polls_reads_logs_and_cancels(gateway: Gateway, pyhive: Any) -> None:
    pyhive.execute("WAIT FOR CANCEL", async_=True)
    canceling = threading.Timer(0.2, pyhive.cancel)
    assert eventually(lambda: bool(gateway.engine.canceled))
    canceling.start()
    canceling.join()
    assert pyhive.poll().operationState == hive.ttypes.TOperationState.CANCELED_STATE


def test_pyhive_reads_the_log_by_falling_back_from_getlog(pyhive: Any) -> None:
    pyhive.execute("TALK", async_=True)
    pyhive.poll()
    assert pyhive.fetch_logs()[1] == "INFO  : one line of the log"


def test_pyhive_reads_warnings_in_the_log(pyhive: Any) -> None:
    pyhive.execute("WARN")
    _, *lines, _ = pyhive.fetch_logs()
    assert lines == ["WARN  : the ice is thin", "INFO  : nothing was changed"]
    pyhive.execute("SELECT nothing")
    assert pyhive.fetchall() == []


def test_pyhive_changes_the_schema_of_its_connection(gateway: Gateway) -> None:
    connection = hive.connect(gateway.host, port=gateway.port, username="e", database="other_db")
    states = [session.state for session in gateway.sessions.sessions()]
    assert "other_db" in {state.schema for state in states}
    connection.close()


def test_pyhives_bare_settings_reach_the_session(gateway: Gateway) -> None:
    settings = {"spark.sql.shuffle.partitions": "3"}
    connection = hive.connect(gateway.host, port=gateway.port, username="e", configuration=settings)
    assert settings in [session.state.settings for session in gateway.sessions.sessions()]
    connection.close()


# ---- impyla --------------------------------------------------------------------------------


@pytest.fixture(params=["PLAIN", "NOSASL"])
def impyla(gateway: Gateway, request: pytest.FixtureRequest) -> Iterator[Any]:
    connection = impala.dbapi.connect(
        gateway.host, gateway.port, auth_mechanism=request.param, user="eva", password="x"
    )
    cursor = connection.cursor()
    yield cursor
    # A forgotten cursor closes its session when it is collected, maybe on the server's own thread.
    cursor.close()
    connection.close()


def test_impyla_reads_every_type(impyla: Any) -> None:
    impyla.execute("SELECT everything")
    first, second = impyla.fetchall()
    assert first[:9] == (True, -1, -2, -3, 2**62, 0.1, 0.1, Decimal("-1.500"), "grün")
    assert first[9:13] == (
        b"ab",
        date(2026, 2, 3),
        datetime(2026, 2, 3, 4, 5, 6, 500_000),
        datetime(2026, 2, 3, 4, 5, 6),
    )
    assert second == (None,) * len(COLUMNS)


def test_impyla_describes_decimals(impyla: Any) -> None:
    impyla.execute("SELECT everything")
    assert impyla.description[7][1:6] == ("DECIMAL", None, None, 10, 3)


def test_impyla_reads_many_rows_in_order(impyla: Any) -> None:
    impyla.execute("SELECT many")
    assert [row[0] for row in impyla.fetchall()] == list(range(25_000))


def test_impyla_reads_an_empty_result(impyla: Any) -> None:
    impyla.execute("SELECT nothing")
    assert impyla.fetchall() == []


def test_impyla_raises_the_servers_sentence(impyla: Any) -> None:
    with pytest.raises(impala.dbapi.OperationalError, match="cannot run SELECT nope"):
        impyla.execute("SELECT nope")


def test_impyla_reads_the_log_by_falling_back_from_getlog(impyla: Any) -> None:
    impyla.execute("TALK")
    assert "one line of the log" in impyla.get_log()


def test_impyla_reads_warnings_in_the_log(impyla: Any) -> None:
    impyla.execute("WARN")
    assert "WARN  : the ice is thin" in impyla.get_log()


def test_impyla_cancels(impyla: Any) -> None:
    impyla.execute_async("WAIT FOR CANCEL")
    impyla.cancel_operation(reset_state=False)
    assert impyla.status() == "CANCELED_STATE"


def test_impyla_opens_a_session_per_cursor_on_one_socket(gateway: Gateway) -> None:
    connection = impala.dbapi.connect(gateway.host, gateway.port, auth_mechanism="NOSASL")
    cursors = [connection.cursor(user="per-cursor") for _ in range(3)]
    users = [session.user for session in gateway.sessions.sessions()]
    assert users.count("per-cursor") == 3
    for cursor in cursors:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == [(1,)]
        cursor.close()
    connection.close()


@pytest.mark.parametrize(
    ("call", "first"),
    [
        (lambda c: c.get_databases(), ("default", "spark_catalog")),
        (lambda c: c.get_tables(), ("spark_catalog", "default", "orders")),
        (lambda c: c.get_functions(database_name=".*"), (None, None, "abs")),
        (
            lambda c: c.get_table_schema("orders", "default"),
            ("id", "BIGINT"),
        ),
    ],
)
def test_impyla_lists_what_there_is(
    impyla: Any, call: Callable[[Any], Any], first: tuple[Any, ...]
) -> None:
    rows = call(impyla)
    if rows is None:
        rows = impyla.fetchall()
    assert tuple(rows[0])[: len(first)] == first


def test_impyla_pings(impyla: Any) -> None:
    assert impyla.ping()
