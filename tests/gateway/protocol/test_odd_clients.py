"""Calls as untested tools may make them: nulls, odd numbers, calls out of order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.gateway.protocol.gateway import ORDERS, RECENT, Gateway, rows_of, running_gateway
from tests.gateway.protocol.peer import CODES, STATES, Peer, numbers, open_peer
from tidegate.wire.service import TApplicationException, ttypes
from tidegate_server.core.config import Config
from tidegate_server.core.model.names import TableName


def strings(peer: Peer, reply: Any, column: int) -> list[str]:
    """Fetch a metadata call's result and return one column of text."""
    assert reply.status.statusCode == CODES.SUCCESS_STATUS, reply.status.errorMessage
    fetched = peer.fetch(reply.operationHandle).results.columns
    return [value.decode() for value in fetched[column].stringVal.values]


def tables(peer: Peer, session: Any, **arguments: Any) -> list[str]:
    request = ttypes.TGetTablesReq(sessionHandle=session, **arguments)
    return strings(peer, peer.client.GetTables(request), 2)


def schemas(peer: Peer, session: Any, **arguments: Any) -> list[str]:
    request = ttypes.TGetSchemasReq(sessionHandle=session, **arguments)
    return strings(peer, peer.client.GetSchemas(request), 0)


def columns(peer: Peer, session: Any, **arguments: Any) -> list[str]:
    request = ttypes.TGetColumnsReq(sessionHandle=session, **arguments)
    return strings(peer, peer.client.GetColumns(request), 3)


# ---- opening and asking about the server ---------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answered"), [(-1, 0), (-(2**31), 0), (0xA501, 10), (2**31 - 1, 10)]
)
def test_a_version_that_is_none_is_answered_with_the_nearest(
    peer: Peer, asked: int, answered: int
) -> None:
    opened = peer.client.OpenSession(ttypes.TOpenSessionReq(client_protocol=asked))
    assert opened.serverProtocolVersion == answered
    done = peer.execute(opened.sessionHandle, "SELECT 1")
    assert done.status.statusCode == CODES.SUCCESS_STATUS


@pytest.mark.parametrize("kind", [0, 1, 8, 26, 85, 10000, 10003, 10005, 424242, -1, 2**31 - 1])
def test_any_question_about_the_server_has_an_answer(peer: Peer, kind: int) -> None:
    request = ttypes.TGetInfoReq(sessionHandle=peer.session(), infoType=kind)
    answer = peer.client.GetInfo(request)
    assert answer.status.statusCode == CODES.SUCCESS_STATUS
    assert answer.infoValue is not None


# ---- patterns ------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [None, "", "%", "*", ".*", "_*", "_%", ".%"])
def test_every_way_to_ask_for_all(peer: Peer, pattern: str | None) -> None:
    session = peer.session()
    assert schemas(peer, session, schemaName=pattern) == ["default", "global_temp", "other_db"]
    assert tables(peer, session, schemaName=pattern, tableName=pattern) == ["orders", "recent", "t"]
    found = columns(peer, session, schemaName=pattern, tableName=pattern, columnName=pattern)
    assert found == ["id", "amount", "tags"]


def test_an_escaped_wildcard_is_itself(peer: Peer) -> None:
    session = peer.session()
    assert schemas(peer, session, schemaName="global\\_temp") == ["global_temp"]
    assert schemas(peer, session, schemaName="other\\_db") == ["other_db"]
    assert schemas(peer, session, schemaName="oth\\_r_db") == []
    assert tables(peer, session, schemaName="other\\_db", tableName="\\%") == []
    assert columns(peer, session, tableName="orders", columnName="am\\_unt") == []


@pytest.mark.parametrize("catalog", [None, "", "%", "spark_catalog", "SPARK\\_CATALOG"])
def test_the_one_catalog_may_be_named(peer: Peer, catalog: str | None) -> None:
    assert tables(peer, peer.session(), catalogName=catalog, tableName="t") == ["t"]


def test_nothing_is_in_another_catalog(peer: Peer) -> None:
    assert tables(peer, peer.session(), catalogName="hive_metastore") == []


@pytest.mark.parametrize(
    ("types", "found"),
    [
        (None, ["orders", "recent", "t"]),
        ([], ["orders", "recent", "t"]),
        (["table", "Partitioned Table", "FOREIGN TABLE"], ["orders", "t"]),
        (["VIEW"], ["recent"]),
        (["SYSTEM TABLE"], []),
    ],
)
def test_types_that_are_unknown_here_are_passed_over(
    peer: Peer, types: list[str] | None, found: list[str]
) -> None:
    assert tables(peer, peer.session(), tableTypes=types) == found


def test_keys_may_be_asked_for_with_nulls(peer: Peer) -> None:
    session = peer.session()
    keys = peer.client.GetPrimaryKeys(ttypes.TGetPrimaryKeysReq(sessionHandle=session))
    assert strings(peer, keys, 2) == []
    links = peer.client.GetCrossReference(ttypes.TGetCrossReferenceReq(sessionHandle=session))
    assert strings(peer, links, 2) == []


# ---- temporary views -----------------------------------------------------------------------


@pytest.fixture
def alone() -> Iterator[Gateway]:
    """A server of the test's own: others would list its views."""
    with running_gateway() as running:
        yield running


@pytest.fixture
def visitor(alone: Gateway) -> Iterator[Peer]:
    with open_peer(alone) as peer:
        yield peer


def test_a_sessions_own_views_are_listed_for_it(visitor: Peer, alone: Gateway) -> None:
    mine, other = visitor.session(), visitor.session()
    alone.answers["CREATE TEMP VIEW mine AS SELECT 1"] = numbers(0)
    alone.engine.views = [
        replace(RECENT, name=TableName("spark_catalog", "", "mine"), columns=ORDERS.columns)
    ]
    assert tables(visitor, mine, tableName="mine") == []
    visitor.execute(mine, "CREATE TEMP VIEW mine AS SELECT 1")
    assert tables(visitor, mine, schemaName="default", tableTypes=["VIEW"]) == ["mine", "recent"]
    assert columns(visitor, mine, tableName="mine") == ["id", "amount", "tags"]
    assert tables(visitor, other, tableName="mine") == []


def test_a_global_view_is_listed_for_everybody_in_its_schema(visitor: Peer, alone: Gateway) -> None:
    maker, other = visitor.session(), visitor.session()
    statement = "CREATE GLOBAL TEMPORARY VIEW all_of_us AS SELECT 1"
    alone.answers[statement] = numbers(0)
    alone.engine.views = [
        replace(RECENT, name=TableName("spark_catalog", "global_temp", "all_of_us"))
    ]
    visitor.execute(maker, statement)
    assert tables(visitor, other, schemaName="global_temp") == ["all_of_us"]
    assert "all_of_us" not in tables(visitor, other, schemaName="default")


# ---- order and numbers ---------------------------------------------------------------------


def test_a_closed_operation_is_told_as_such_by_every_call(peer: Peer) -> None:
    session = peer.session()
    operation = peer.start(session, "SELECT 1")
    for _ in range(2):
        closed = peer.client.CloseOperation(ttypes.TCloseOperationReq(operationHandle=operation))
        assert closed.status.statusCode == CODES.SUCCESS_STATUS
    metadata = ttypes.TGetResultSetMetadataReq(operationHandle=operation)
    answers = [
        peer.status(operation),
        peer.fetch(operation),
        peer.fetch(operation, fetchType=1),
        peer.client.GetResultSetMetadata(metadata),
        peer.client.CancelOperation(ttypes.TCancelOperationReq(operationHandle=operation)),
    ]
    for answer in answers:
        assert answer.status.statusCode == CODES.INVALID_HANDLE_STATUS
        assert "Invalid OperationHandle" in answer.status.errorMessage


def test_a_session_closed_twice_says_so_and_the_connection_goes_on(peer: Peer) -> None:
    session = peer.session()
    request = ttypes.TCloseSessionReq(sessionHandle=session)
    assert peer.client.CloseSession(request).status.statusCode == CODES.SUCCESS_STATUS
    again = peer.client.CloseSession(request)
    assert again.status.statusCode == CODES.INVALID_HANDLE_STATUS
    assert "Invalid SessionHandle" in again.status.errorMessage
    assert peer.execute(session, "SELECT 1").status.statusCode == CODES.INVALID_HANDLE_STATUS
    assert tables(peer, peer.session(), tableName="t") == ["t"]


def test_the_operations_of_a_closed_session_are_gone(peer: Peer) -> None:
    session = peer.session()
    operation = peer.start(session, "SELECT 1")
    peer.client.CloseSession(ttypes.TCloseSessionReq(sessionHandle=session))
    assert peer.status(operation).status.statusCode == CODES.INVALID_HANDLE_STATUS


@pytest.mark.parametrize("rows", [0, -1, -(2**63), 2**63 - 1])
def test_any_number_of_rows_may_be_asked_for(peer: Peer, gateway: Gateway, rows: int) -> None:
    gateway.answers["SELECT seven"] = numbers(7)
    operation = peer.start(peer.session(), "SELECT seven")
    fetched = peer.fetch(operation, rows=rows)
    assert list(fetched.results.columns[0].i64Val.values) == list(range(7))
    assert not fetched.hasMoreRows
    assert peer.fetch(operation, rows=rows).results.columns[0].i64Val.values == []


@pytest.mark.parametrize("seconds", [0, -1, -(2**63)])
def test_a_timeout_that_is_none_is_no_timeout(peer: Peer, seconds: int) -> None:
    operation = peer.start(peer.session(), "SELECT 1", queryTimeout=seconds)
    assert peer.status(operation).operationState == STATES.FINISHED_STATE


def test_an_endless_timeout_is_taken(peer: Peer) -> None:
    operation = peer.start(peer.session(), "SELECT 1", queryTimeout=2**63 - 1)
    assert peer.status(operation).operationState == STATES.FINISHED_STATE


def test_a_statement_without_text_leaves_the_connection_in_step(peer: Peer) -> None:
    session = peer.session()
    with pytest.raises(TApplicationException):
        peer.execute(session, None)
    empty = peer.execute(session, "")
    assert empty.status.statusCode == CODES.ERROR_STATUS
    assert peer.execute(session, "SELECT 1").status.statusCode == CODES.SUCCESS_STATUS


def test_a_finished_operation_is_canceled_without_harm(peer: Peer) -> None:
    operation = peer.start(peer.session(), "SELECT 1")
    assert peer.status(operation).operationState == STATES.FINISHED_STATE
    peer.client.CancelOperation(ttypes.TCancelOperationReq(operationHandle=operation))
    assert peer.status(operation).operationState == STATES.FINISHED_STATE
    assert list(peer.fetch(operation).results.columns[0].i32Val.values) == [1]


def test_the_way_back_and_to_the_first_row(peer: Peer, gateway: Gateway) -> None:
    gateway.answers["SELECT many"] = numbers(10)
    operation = peer.start(peer.session(), "SELECT many")
    orientation = ttypes.TFetchOrientation

    def page(kind: int, rows: int) -> tuple[int, list[int]]:
        results = peer.fetch(operation, rows=rows, orientation=kind).results
        return results.startRowOffset, list(results.columns[0].i64Val.values)

    assert page(orientation.FETCH_NEXT, 4) == (0, [0, 1, 2, 3])
    assert page(orientation.FETCH_NEXT, 4) == (4, [4, 5, 6, 7])
    assert page(orientation.FETCH_PRIOR, 3) == (1, [1, 2, 3])
    assert page(orientation.FETCH_FIRST, 2) == (0, [0, 1])
    assert page(orientation.FETCH_NEXT, 2) == (2, [2, 3])


def test_the_way_back_ends_at_the_first_row(peer: Peer, gateway: Gateway) -> None:
    gateway.answers["SELECT many"] = numbers(5)
    operation = peer.start(peer.session(), "SELECT many")
    prior = ttypes.TFetchOrientation.FETCH_PRIOR
    for _ in range(2):
        before = peer.fetch(operation, orientation=prior)
        assert before.status.statusCode == CODES.SUCCESS_STATUS
        assert list(before.results.columns[0].i64Val.values) == []
    assert list(peer.fetch(operation).results.columns[0].i64Val.values) == list(range(5))
    whole = peer.fetch(operation, rows=2**63 - 1, orientation=prior).results
    assert list(whole.columns[0].i64Val.values) == []
    assert list(
        peer.fetch(operation, orientation=ttypes.TFetchOrientation.FETCH_FIRST)
        .results.columns[0]
        .i64Val.values
    ) == list(range(5))


@pytest.mark.parametrize("orientation", [-1, 6, 2**31 - 1])
def test_an_orientation_that_is_none_is_refused_and_moves_nothing(
    peer: Peer, gateway: Gateway, orientation: int
) -> None:
    gateway.answers["SELECT many"] = numbers(3)
    operation = peer.start(peer.session(), "SELECT many")
    refused = peer.fetch(operation, orientation=orientation)
    assert refused.status.statusCode == CODES.ERROR_STATUS
    assert list(peer.fetch(operation).results.columns[0].i64Val.values) == [0, 1, 2]


@pytest.mark.parametrize("rows", [0, -1, 2**63 - 1])
def test_any_number_of_log_lines_may_be_asked_for(peer: Peer, rows: int) -> None:
    operation = peer.execute(peer.session(), "TALK").operationHandle
    log = peer.fetch(operation, rows=rows, fetchType=1)
    assert log.status.statusCode == CODES.SUCCESS_STATUS
    assert len(log.results.columns[0].stringVal.values) >= 1


@pytest.mark.parametrize("version", range(11))
def test_every_version_gets_nested_and_binary_values(
    peer: Peer, gateway: Gateway, version: int
) -> None:
    texts = pa.array(['{"a":[1,null]}', None])
    gateway.answers["SELECT nested"] = lambda _: rows_of("s", "struct<a:array<int>>", texts)
    octets = pa.array([b"\x00\xff\x80", None], pa.binary())
    gateway.answers["SELECT octets"] = lambda _: rows_of("b", "binary", octets)
    session = peer.session(version)
    for query, text, raw in (
        ("SELECT nested", '{"a":[1,null]}', None),
        ("SELECT octets", "\0\ufffd\ufffd", b"\x00\xff\x80"),
    ):
        operation = peer.execute(session, query).operationHandle
        metadata = ttypes.TGetResultSetMetadataReq(operationHandle=operation)
        (column,) = peer.client.GetResultSetMetadata(metadata).schema.columns
        assert column.typeDesc.types[0].primitiveEntry is not None
        results = peer.fetch(operation).results
        if version < ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V6:
            assert [row.colVals[0].stringVal.value for row in results.rows] == [text, None]
        else:
            part = results.columns[0].binaryVal if raw else results.columns[0].stringVal
            assert part.values[0] == (raw or text.encode())
            assert part.nulls == b"\x02"


def test_a_long_statement_of_any_letters_arrives_whole(peer: Peer, gateway: Gateway) -> None:
    text = "SELECT '" + "ü€😀\n" * 120_000 + "'"
    assert len(text.encode()) > 1 << 20
    gateway.answers[text] = lambda _: rows_of("s", "string", pa.array(["ü€😀"]))
    operation = peer.execute(peer.session(), text).operationHandle
    assert peer.fetch(operation).results.columns[0].stringVal.values == ["ü€😀".encode()]


# ---- a setting for tools that know two types ------------------------------------------------


def test_types_can_be_those_that_every_tool_knows() -> None:
    config = Config(server={"port": 0, "workers": 2, "materialized_as_table": True})
    with running_gateway(config) as gateway, open_peer(gateway) as peer:
        request = ttypes.TGetTableTypesReq(sessionHandle=peer.session())
        assert strings(peer, peer.client.GetTableTypes(request), 0) == ["TABLE", "VIEW"]
