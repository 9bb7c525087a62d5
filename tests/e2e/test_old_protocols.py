"""Clients of the first protocol versions, as ADBC's driver for Spark is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from tests.support.fixtures.server import Server
from tidegate.wire.service import Client, accelerated_protocol, ttypes

pytestmark = pytest.mark.spark

ROWS = 200_000


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A bare connection."""
    with closing(TBufferedTransport(TSocket(server.host, server.port))) as transport:
        transport.open()
        yield Client(accelerated_protocol(transport))


def test_a_client_of_v1_that_always_asks_for_the_first_page_gets_every_row_once(
    client: Client,
) -> None:
    opened = client.OpenSession(ttypes.TOpenSessionReq(client_protocol=0, username="eva"))
    assert opened.serverProtocolVersion == 0
    statement = f"SELECT id FROM range({ROWS})"
    operation = client.ExecuteStatement(
        ttypes.TExecuteStatementReq(sessionHandle=opened.sessionHandle, statement=statement)
    ).operationHandle
    request = ttypes.TFetchResultsReq(
        operationHandle=operation,
        orientation=ttypes.TFetchOrientation.FETCH_FIRST,
        maxRows=50_000,
    )
    got: list[int] = []
    while True:
        page = client.FetchResults(request)
        got += [row.colVals[0].i64Val.value for row in page.results.rows]
        assert len(got) <= ROWS, "rows come again"
        if not page.hasMoreRows:
            break
    assert got == list(range(ROWS))
    client.CloseSession(ttypes.TCloseSessionReq(sessionHandle=opened.sessionHandle))
