"""A client of our own bindings, for the tests of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from tests.gateway.protocol.gateway import (
    BatchResult,
    Gateway,
)
from tidegate.wire.service import (
    Client,
    accelerated_protocol,
    ttypes,
)
from tidegate_server.core.model.types import Column, Schema

V = ttypes.TProtocolVersion
CODES = ttypes.TStatusCode
STATES = ttypes.TOperationState


class Peer:
    """A client of our own bindings over a bare connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._transport = TBufferedTransport(TSocket(gateway.host, gateway.port))
        self._transport.open()
        self.client = Client(accelerated_protocol(self._transport))

    def close(self) -> None:
        self._transport.close()

    def open(self, version: int = V.HIVE_CLI_SERVICE_PROTOCOL_V10, **configuration: str) -> Any:
        request = ttypes.TOpenSessionReq(
            client_protocol=version, username="eva", configuration=configuration
        )
        return self.client.OpenSession(request)

    def session(self, version: int = V.HIVE_CLI_SERVICE_PROTOCOL_V10, **configuration: str) -> Any:
        return self.open(version, **configuration).sessionHandle

    def execute(self, session: Any, text: str, **options: Any) -> Any:
        return self.client.ExecuteStatement(
            ttypes.TExecuteStatementReq(sessionHandle=session, statement=text, **options)
        )

    def start(self, session: Any, text: str, **options: Any) -> Any:
        return self.execute(session, text, runAsync=True, **options).operationHandle

    def status(self, operation: Any, **options: Any) -> Any:
        return self.client.GetOperationStatus(
            ttypes.TGetOperationStatusReq(operationHandle=operation, **options)
        )

    def fetch(self, operation: Any, rows: int = 100, **options: Any) -> Any:
        return self.client.FetchResults(
            ttypes.TFetchResultsReq(operationHandle=operation, maxRows=rows, **options)
        )

    def names(self, operation: Any) -> list[str]:
        request = ttypes.TGetResultSetMetadataReq(operationHandle=operation)
        columns = self.client.GetResultSetMetadata(request).schema.columns
        return [column.columnName for column in columns]

    def info(self, session: Any, kind: int) -> Any:
        request = ttypes.TGetInfoReq(sessionHandle=session, infoType=kind)
        return self.client.GetInfo(request).infoValue


@contextmanager
def open_peer(gateway: Gateway) -> Iterator[Peer]:
    peer = Peer(gateway)
    try:
        yield peer
    finally:
        peer.close()


def numbers(count: int) -> Callable[[Any], BatchResult]:
    schema = Schema((Column(name="n", type="bigint"),))
    values = pa.array(range(count), pa.int64())
    batch = pa.RecordBatch.from_arrays([values], names=["n"])
    return lambda _: BatchResult(schema, [batch])
