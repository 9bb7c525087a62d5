"""Arrow Flight SQL with ADBC's driver, over a gateway without Spark."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import duckdb
import polars
import pyarrow as pa
import pytest
import trustme
from adbc_driver_flightsql import DatabaseOptions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import flight

from tests.gateway.protocol.certificates import Authority
from tests.gateway.protocol.gateway import BatchResult, Gateway, rows_of, running_gateway
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import LoginSection, ServerSection, TlsSection
from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clock import SystemClock
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.auth.access import build_access
from tidegate_server.gateway.auth.passwords import set_password
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.flight.messages import encode
from tidegate_server.gateway.flight.port import FlightPort

BASIC = {"username": "ada", "password": "secret"}


@contextmanager
def listening(gateway: Gateway) -> Iterator[str]:
    """Yield the URL of Flight SQL beside a gateway's Thrift port."""
    access = build_access(gateway.config, SystemClock())
    port = FlightPort(gateway.config, gateway.sessions, access, gateway.sessions.metrics)
    number = port.start()
    try:
        yield f"grpc://127.0.0.1:{number}"
    finally:
        port.stop()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with running_gateway(Config(server=ServerSection(port=0, flight_port=0))) as gateway:
        gateway.answers["SELECT many"] = lambda context: rows_of(
            "n", "bigint", pa.array(range(200_000), pa.int64())
        )
        gateway.answers["SELECT user"] = lambda context: rows_of(
            "user", "string", pa.array([f"{context.session.user} {context.session.session_id}"])
        )
        yield gateway


@pytest.fixture(scope="module")
def url(gateway: Gateway) -> Iterator[str]:
    with listening(gateway) as url:
        yield url


@pytest.fixture
def cursor(url: str) -> Iterator[Any]:
    with adbc.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        yield cursor


def test_rows_arrive_as_arrow(cursor: Any) -> None:
    cursor.execute("SELECT many")
    table = cursor.fetch_arrow_table()
    assert table.schema == pa.schema([("n", pa.int64())])
    assert table.column(0).to_pylist() == list(range(200_000))
    cursor.execute("SELECT many")
    assert cursor.fetchone() == (0,)
    assert duckdb.from_arrow(table).sum("n").fetchall() == [(19999900000,)]
    cursor.execute("SELECT many")
    assert cursor.fetch_polars()["n"].sum() == 19999900000
    assert polars.from_arrow(table).height == 200_000


def test_every_type_has_its_arrow_type(gateway: Gateway, cursor: Any) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    columns = {
        "b": ("boolean", pa.array([True, None])),
        "t": ("tinyint", pa.array([1, None], pa.int8())),
        "s": ("smallint", pa.array([1, None], pa.int16())),
        "i": ("int", pa.array([1, None], pa.int32())),
        "f": ("float", pa.array([1.5, None], pa.float32())),
        "d": ("double", pa.array([1.5, None])),
        "n": ("decimal(12,2)", pa.array([Decimal("1.50"), None], pa.decimal128(12, 2))),
        "x": ("string", pa.array(["x", None]).dictionary_encode()),
        "y": ("binary", pa.array([b"x", None])),
        "day": ("date", pa.array([noon.date(), None], pa.date32())),
        "at": ("timestamp", pa.array([noon, None], pa.timestamp("us", "Asia/Tokyo"))),
        "local": ("timestamp_ntz", pa.array([noon.replace(tzinfo=None), None])),
        "nested": ("array<int>", pa.array(["[1]", None])),
    }
    schema = Schema(tuple(Column(name=k, type=v) for k, (v, _) in columns.items()))
    arrays = [array for _, array in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    gateway.answers["SELECT types"] = lambda context: BatchResult(schema, [batch])
    gateway.answers["SELECT no types"] = lambda context: BatchResult(schema, [])
    cursor.execute("SELECT types")
    table = cursor.fetch_arrow_table()
    assert [row["at"] for row in table.to_pylist()] == [noon, None]
    assert table.drop_columns("at").to_pylist() == [
        {k: None if row else a[0].as_py() for k, (_, a) in columns.items() if k != "at"}
        for row in range(2)
    ]
    cursor.execute("SELECT no types")
    assert cursor.fetch_arrow_table().schema == table.schema


def test_large_batches_are_divided(gateway: Gateway, cursor: Any) -> None:
    """Clients limit the size of a message to 16 MiB."""
    texts = pa.array([str(n).rjust(100) for n in range(400_000)])
    gateway.answers["SELECT texts"] = lambda context: rows_of("s", "string", texts)
    cursor.execute("SELECT texts")
    assert cursor.fetch_arrow_table().column(0).combine_chunks() == texts


def test_a_connection_is_a_session(url: str) -> None:
    found = []
    for _ in range(2):
        with adbc.connect(url, db_kwargs=BASIC, autocommit=True) as connection:
            for _ in range(2):
                with connection.cursor() as cursor:
                    cursor.execute("SELECT user")
                    found.append(cursor.fetchone()[0])
    assert all(each.startswith("ada ") for each in found)
    assert (found[0], found[2]) == (found[1], found[3])
    assert found[0] != found[2]


def test_a_password_in_each_call_is_a_session_of_its_connection(gateway: Gateway, url: str) -> None:
    encoded = base64.b64encode(b"ada:secret").decode()
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Basic {encoded}".encode())])
    command = flight.FlightDescriptor.for_command(
        encode("CommandStatementQuery", query="SELECT user")
    )
    before = len(list(gateway.sessions.sessions()))
    client, found = flight.connect(url), []
    for _ in range(2):
        [endpoint] = client.get_flight_info(command, options).endpoints
        found.append(client.do_get(endpoint.ticket, options).read_all().column(0)[0].as_py())
    assert found[0] == found[1] and found[0].startswith("ada ")
    assert len(list(gateway.sessions.sessions())) == before + 1


def test_a_token_of_a_closed_session_is_refused(gateway: Gateway, url: str) -> None:
    client = flight.connect(url)
    token = client.authenticate_basic_token("ada", "secret")
    options = flight.FlightCallOptions(headers=[token])
    assert list(client.do_action(flight.Action("CloseSession", b""), options)) == []
    with pytest.raises(flight.FlightUnauthenticatedError, match="session of this token is closed"):
        list(client.do_action(flight.Action("ClosePreparedStatement", b""), options))


def test_statements_that_change_rows_return_their_number(gateway: Gateway, cursor: Any) -> None:
    ran = []

    def changed(context: Context) -> Result:
        ran.append(context.operation_id)
        return RowsResult(Schema(), [], has_result_set=False, modified_rows=3)

    gateway.answers["INSERT"] = changed
    gateway.answers["CREATE"] = lambda context: nothing()
    assert cursor.adbc_statement.set_sql_query("INSERT") is None
    assert cursor.adbc_statement.execute_update() == 3
    cursor.execute("CREATE")
    assert (cursor.fetchall(), len(ran)) == ([], 1)


def test_parameters_are_put_into_the_statement(gateway: Gateway, cursor: Any) -> None:
    texts = (
        "SELECT n FROM t WHERE a = 7 AND b = 'it\\'s ?' AND c <> '?'",
        "INSERT INTO t VALUES (1, 1.50BD)",
        "INSERT INTO t VALUES (2, NULL)",
    )
    one = pa.array([1], pa.int64())
    gateway.answers[texts[0]] = lambda context: rows_of("n", "bigint", one)
    for text in texts[1:]:
        gateway.answers[text] = lambda context: RowsResult(
            Schema(), [], has_result_set=False, modified_rows=1
        )
    query = "SELECT n FROM t WHERE a = ? AND b = ? AND c <> '?'"
    for _ in range(2):
        cursor.execute(query, parameters=(7, "it's ?"))
        assert cursor.fetchall() == [(1,)]
    cursor.executemany("INSERT INTO t VALUES (?, ?)", [(1, Decimal("1.50")), (2, None)])
    assert cursor.rowcount == 2
    for count in (1, 3):
        with pytest.raises(adbc_driver_manager.OperationalError, match="markers .*: 2"):
            cursor.execute(query, parameters=(7,) * count)
    cursor.execute("SELECT user")  # the session goes on


def test_errors_are_those_of_the_statement(gateway: Gateway, cursor: Any) -> None:
    def refused(context: Context) -> Result:
        raise error(Code.ACCESS_DENIED, user="ada", privilege="SELECT", object="table t", hint="")

    def failed(context: Context) -> Result:
        raise ServerError(
            code="PARSE_SYNTAX_ERROR", sqlstate="42601", message="near x", hint="Write y."
        )

    gateway.answers["SELECT refused"] = refused
    gateway.answers["SELECT failed"] = failed
    for text, kind, message in (
        ("SELECT failed", adbc_driver_manager.OperationalError, "PARSE_SYNTAX_ERROR.* near x"),
        ("SELECT refused", adbc_driver_manager.ProgrammingError, "ACCESS_DENIED"),
    ):
        with pytest.raises(kind, match=message) as caught:
            cursor.execute(text)
        assert "Traceback" not in str(caught.value)
    cursor.execute("SELECT user")  # the session goes on


def test_a_result_can_be_left_unread(gateway: Gateway, url: str) -> None:
    before = {session.id for session in gateway.sessions.sessions()}
    with adbc.connect(url, db_kwargs=BASIC, autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT many")
            assert cursor.fetchone() == (0,)
        [own] = [each for each in gateway.sessions.sessions() if each.id not in before]
        assert own.open_operations() == 0
    assert own not in gateway.sessions.sessions()


def test_metadata_is_listed(url: str) -> None:
    with adbc.connect(url, autocommit=True) as connection:
        found = connection.adbc_get_objects(depth="columns").read_all().to_pylist()
        [catalog] = found
        assert catalog["catalog_name"] == "spark_catalog"
        schemas = {each["db_schema_name"]: each for each in catalog["catalog_db_schemas"]}
        tables = {t["table_name"]: t for t in schemas["default"]["db_schema_tables"]}
        assert {name: t["table_type"] for name, t in tables.items()} == {
            "orders": "TABLE",
            "recent": "VIEW",
        }
        columns = [each["column_name"] for each in tables["orders"]["table_columns"]]
        assert columns == ["id", "amount", "tags"]
        assert connection.adbc_get_table_types() == ["MATERIALIZED_TABLE", "TABLE", "VIEW"]
        assert connection.adbc_get_info()["vendor_name"] == "Tidegate"
        schema = connection.adbc_get_table_schema("orders", db_schema_filter="default")
        assert schema.types == [pa.int64(), pa.decimal128(10, 2), pa.string()]


def test_a_canceled_statement_is_canceled_on_the_server(gateway: Gateway, cursor: Any) -> None:
    began, ended = threading.Event(), threading.Event()

    def endless(context: Context) -> Result:
        began.set()
        try:
            while not ended.wait(0.05):
                context.require_wanted()
        finally:
            ended.set()
        return nothing()

    gateway.answers["SELECT endless"] = endless
    threading.Thread(target=lambda: (began.wait(20), cursor.adbc_cancel())).start()
    with pytest.raises(adbc_driver_manager.Error):
        cursor.execute("SELECT endless")
    assert ended.wait(10)


def test_logins_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "users"
    set_password(file, "ada", "secret")
    config = Config(
        server=ServerSection(port=0, flight_port=0, auth="PASSWORD"),
        login=LoginSection(password_file=str(file)),
    )
    with running_gateway(config) as gateway, listening(gateway) as url:
        gateway.answers["SELECT 1"] = lambda context: rows_of("a", "int", pa.array([1], pa.int32()))
        with (
            adbc.connect(url, db_kwargs=BASIC, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == [(1,)]
        for wrong in (
            {},
            {"username": "ada", "password": "wrong"},
            {"adbc.flight.sql.authorization_header": "Bearer guessed"},
        ):
            with (
                pytest.raises(adbc_driver_manager.Error, match=r"(?i)unauthenticated|login"),
                adbc.connect(url, db_kwargs=wrong, autocommit=True) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SELECT 1")


def test_calls_are_encrypted_with_the_servers_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path, trustme.CA())
    authority.made.cert_pem.write_to_path(authority.file)
    authority.issue("localhost")
    config = Config(server=ServerSection(port=0, flight_port=0), tls=TlsSection(**authority.server))
    with running_gateway(config) as gateway, listening(gateway) as url:
        trusted = {DatabaseOptions.TLS_ROOT_CERTS.value: Path(authority.file).read_text()}
        secure = url.replace("grpc://127.0.0.1", "grpc+tls://localhost")
        with adbc.connect(secure, db_kwargs=trusted, autocommit=True) as connection:
            assert connection.adbc_get_table_types() == ["MATERIALIZED_TABLE", "TABLE", "VIEW"]


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=60))
def test_whatever_is_sent_is_answered_with_an_error(url: str, data: bytes) -> None:
    client = flight.connect(url)
    command = flight.FlightDescriptor.for_command(data)
    for call in (
        lambda: client.get_flight_info(command),
        lambda: client.get_schema(command),
        lambda: client.do_get(flight.Ticket(data)).read_all(),
        lambda: list(client.do_action(flight.Action("CreatePreparedStatement", data))),
    ):
        with pytest.raises(
            (flight.FlightServerError, pa.ArrowException)
        ):  # the latter for GetSchema
            call()


def test_a_message_of_another_kind_is_refused(url: str) -> None:
    action = flight.Action("CreatePreparedStatement", encode("CommandGetCatalogs"))
    with pytest.raises(flight.FlightServerError, match="CommandGetCatalogs in CreatePrepared"):
        list(flight.connect(url).do_action(action))


def test_a_result_of_another_session_is_not_found(gateway: Gateway, url: str) -> None:
    one, other = flight.connect(url), flight.connect(url)
    text = flight.FlightDescriptor.for_command(encode("CommandStatementQuery", query="SELECT many"))
    [endpoint] = one.get_flight_info(text).endpoints
    with pytest.raises(flight.FlightServerError, match="INVALID_OPERATION_HANDLE"):
        other.do_get(endpoint.ticket)
    assert one.do_get(endpoint.ticket).read_all().num_rows == 200_000
    with pytest.raises(flight.FlightServerError, match="INVALID_OPERATION_HANDLE"):
        one.do_get(endpoint.ticket)


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"auth": "KERBEROS"}, "server.auth = KERBEROS"),
        ({"socket": "/tmp/tidegate.socket"}, "server.socket"),
    ],
)
def test_what_flights_clients_cannot_use_is_refused(section: dict[str, Any], reason: str) -> None:
    config = Config(server=ServerSection(flight_port=0, **section))
    unused: Any = None
    with pytest.raises(ServerError, match=reason) as refused:
        FlightPort(config, unused, unused, unused)
    assert refused.value.code == "FLIGHT_CONFIGURATION"
