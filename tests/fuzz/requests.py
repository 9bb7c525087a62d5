"""Fuzzes the scanner of requests and their decoding with Atheris.

``python tests/fuzz/requests.py FOLDER [libFuzzer's options]`` keeps what it learns in FOLDER:
``-max_total_time=60`` ends it after a minute, ``-runs=100000`` after that many executions, neither
of them never. It ends with an exit code other than 0 at the first finding.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import atheris
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from tidegate.wire.service import (
    CALLS,
    TMessageType,
    args_class,
    decode_struct,
    encode_message,
    ttypes,
)

with atheris.instrument_imports(include=["tidegate_server.gateway.protocol.scan"]):
    from tidegate_server.gateway.protocol.scan import FrameError, Message, MessageScanner

LIMIT = 4096
"""The longest request taken; small, so that its bound is met often."""
LONGEST_INPUT = 3 * LIMIT
_CALLS = sorted(CALLS)
_HANDLE = ttypes.THandleIdentifier(guid=bytes(16), secret=bytes(16))
_SESSION = ttypes.TSessionHandle(sessionId=_HANDLE)
_OPERATION = ttypes.TOperationHandle(operationId=_HANDLE, operationType=0, hasResultSet=True)


class _Bytes(TBinaryProtocol):
    """Thrift's own reader, except that text may be any bytes."""

    readString = TBinaryProtocol.readBinary  # noqa: N815  a method of Thrift's


def main() -> None:
    """Lay sentences that mean something into the corpus and run until libFuzzer ends."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)
    options = (f"-max_len={LONGEST_INPUT}", f"-artifact_prefix={folder}/")
    atheris.Setup([*sys.argv, *options], execute)
    atheris.Fuzz()


def seeds() -> Iterator[tuple[str, bytes]]:
    """Return names and inputs: requests of clients, each after the byte that says how to cut."""
    requests = {
        "OpenSession": ttypes.TOpenSessionReq(
            client_protocol=9, username="ada", configuration={"use:database": "shop", "a": "b"}
        ),
        "ExecuteStatement": ttypes.TExecuteStatementReq(
            _SESSION, "SELECT 1", confOverlay={"k": "v"}, runAsync=True, queryTimeout=30
        ),
        "GetTables": ttypes.TGetTablesReq(_SESSION, "", "%", "t\\_%", ["TABLE", "VIEW"]),
        "GetColumns": ttypes.TGetColumnsReq(_SESSION, None, "%", "%", "%"),
        "GetInfo": ttypes.TGetInfoReq(_SESSION, 17),
        "FetchResults": ttypes.TFetchResultsReq(_OPERATION, 0, 1000, 0),
        "CloseOperation": ttypes.TCloseOperationReq(_OPERATION),
    }
    messages = {
        name: encode_message(name, TMessageType.CALL, 7, args_class(name)(req=request))
        for name, request in requests.items()
    }
    for name, data in messages.items():
        yield name, b"\x00" + data
        yield f"{name}-cut", b"\x05" + data
        old = struct.pack(">i", len(name)) + name.encode() + b"\x01\x00\x00\x00\x07"
        yield f"{name}-unversioned", b"\x07" + old + data[len(old) + 3 :]
    yield "all", b"\x03" + b"".join(messages.values())


def execute(data: bytes) -> None:
    """Scan one stream whole and in pieces; raise AssertionError where that disagrees."""
    if not data:
        return
    size, stream = data[0] or LONGEST_INPUT, data[1:]
    whole = scan([stream])
    assert whole == scan(stream[at : at + size] for at in range(0, len(stream), size))
    for message in whole[0]:
        check(message)


def scan(pieces: Iterator[bytes] | list[bytes]) -> tuple[list[Message], bool]:
    """Return the messages found, and whether the stream was refused then."""
    scanner = MessageScanner(LIMIT)
    found: list[Message] = []
    try:
        for piece in pieces:
            scanner.feed(piece)
            while (message := scanner.next_message()) is not None:
                found.append(message)
            assert scanner.waiting <= LIMIT
    except FrameError:
        return found, True
    return found, False


def check(message: Message) -> None:
    """Compare a message's end with what Thrift's own reader finds, and decode it as a request."""
    buffer = TMemoryBuffer(message.body)
    _Bytes(buffer).skip(TType.STRUCT)
    assert buffer.cstringio_buf.tell() == len(message.body), message
    name = message.name if message.name in CALLS else _CALLS[len(message.body) % len(_CALLS)]
    # A request that makes no sense may be refused in any way but one that ends the process.
    with contextlib.suppress(Exception):
        decode_struct(args_class(name), message.body).req.validate()


if __name__ == "__main__":
    main()
