"""Calls other than those that run statements: information, metadata, functions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.protocol.gateway import (
    Gateway,
)
from tests.gateway.protocol.peer import CODES, Peer
from tidegate.wire.service import (
    CALLS,
    args_class,
    ttypes,
)
from tidegate_server.core.messages.requests import ListTemporaryFunctions
from tidegate_server.core.model.names import FunctionName
from tidegate_server.gateway.protocol.handler import Handler


def test_every_call_of_the_service_has_its_method() -> None:
    assert len(CALLS) == 25
    assert {name for name in vars(Handler) if name[0].isupper()} == CALLS


def test_information_is_answered(peer: Peer) -> None:
    session = peer.session()
    kinds = ttypes.TGetInfoType
    assert peer.info(session, kinds.CLI_SERVER_NAME).stringValue == "Tidegate"
    assert peer.info(session, kinds.CLI_DBMS_NAME).stringValue == "Spark SQL"
    assert peer.info(session, kinds.CLI_DBMS_VER).stringValue.startswith("4.")
    assert peer.info(session, kinds.CLI_MAX_TABLE_NAME_LEN).lenValue == 128
    assert "MATERIALIZED" in peer.info(session, kinds.CLI_ODBC_KEYWORDS).stringValue.split(",")
    assert peer.info(session, kinds.CLI_XOPEN_CLI_YEAR).stringValue == "1995"
    assert peer.info(session, kinds.CLI_NULL_COLLATION).smallIntValue == 1


def test_what_is_not_served_says_so_in_its_own_type(peer: Peer) -> None:
    session = peer.session()
    token = peer.client.GetDelegationToken(
        ttypes.TGetDelegationTokenReq(sessionHandle=session, owner="a", renewer="b")
    )
    upload = peer.client.UploadData(ttypes.TUploadDataReq(sessionHandle=session, values=b""))
    for response in (token, upload):
        status = response.status
        assert (status.statusCode, status.sqlState) == (CODES.ERROR_STATUS, "0A000")
    assert upload.operationHandle is not None


def test_client_information_is_taken(peer: Peer) -> None:
    request = ttypes.TSetClientInfoReq(sessionHandle=peer.session(), configuration={"a": "b"})
    assert peer.client.SetClientInfo(request).status.statusCode == 0


def test_table_types_are_listed(peer: Peer) -> None:
    response = peer.client.GetTableTypes(ttypes.TGetTableTypesReq(peer.session()))
    assert response.operationHandle.hasResultSet
    values = peer.fetch(response.operationHandle).results.columns[0].stringVal.values
    assert values == [b"TABLE", b"VIEW", b"MATERIALIZED_TABLE"]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("GetTypeInfo", 18),
        ("GetCatalogs", 1),
        ("GetSchemas", 2),
        ("GetTables", 10),
        ("GetColumns", 23),
        ("GetFunctions", 6),
        ("GetPrimaryKeys", 6),
        ("GetCrossReference", 14),
    ],
)
def test_metadata_calls_have_jdbcs_columns(peer: Peer, name: str, count: int) -> None:
    options = {"functionName": "%"} if name == "GetFunctions" else {}
    request = getattr(ttypes, f"T{name}Req")(sessionHandle=peer.session(), **options)
    operation = getattr(peer.client, name)(request).operationHandle
    assert len(peer.fetch(operation).results.columns) == count


def functions_of(peer: Peer, session: Any, name: str) -> list[tuple[bytes, bytes]]:
    request = ttypes.TGetFunctionsReq(sessionHandle=session, functionName=name)
    columns = peer.fetch(peer.client.GetFunctions(request).operationHandle).results.columns
    return list(zip(columns[1].stringVal.values, columns[2].stringVal.values, strict=True))


def test_temporary_functions_are_seen_by_their_session_alone(peer: Peer, gateway: Gateway) -> None:
    one, other = peer.session(), peer.session()
    assert functions_of(peer, other, "f") == [(b"other_db", b"f")]
    peer.execute(one, "CREATE TEMPORARY FUNCTION mine AS 'x.Mine'")
    assert functions_of(peer, one, "mine") == []
    calls = gateway.engine.calls
    (asked,) = (call for call in calls if isinstance(call, ListTemporaryFunctions))
    gateway.engine.temporary[asked.session_id] = (FunctionName("mine"),)
    assert [name for _, name in functions_of(peer, one, "mine")] == [b"mine"]
    assert functions_of(peer, other, "mine") == []


def test_arguments_are_read_by_the_bindings_own_names() -> None:
    assert args_class("OpenSession").__name__ == "OpenSession_args"
