"""The one import point of the generated bindings."""

from __future__ import annotations

from typing import Any, Final

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException, TMessageType
from thrift.transport.TTransport import CReadableTransport, TMemoryBuffer

from tidegate.wire.gen.TCLIService import TCLIService, constants, ttypes
from tidegate.wire.gen.TCLIService.TCLIService import Client, Iface, Processor

__all__ = [
    "CALLS",
    "MAX_MESSAGE_BYTES",
    "Client",
    "Iface",
    "Processor",
    "TApplicationException",
    "TMemoryBuffer",
    "TMessageType",
    "accelerated_protocol",
    "args_class",
    "constants",
    "decode_struct",
    "encode_message",
    "encode_struct",
    "is_accelerated",
    "result_class",
    "ttypes",
]

CALLS: Final[frozenset[str]] = frozenset(
    name.removesuffix("_args") for name in vars(TCLIService) if name.endswith("_args")
)
"""The names of the calls our IDL has."""

MAX_MESSAGE_BYTES: Final = 1 << 30
"""The longest single string or container a peer may announce by default."""


def args_class(call: str) -> Any:
    """Return the generated class of a call's arguments; its one field is ``req``.

    :raises KeyError: if the service has no such call.
    """
    if call not in CALLS:
        raise KeyError(call)
    return getattr(TCLIService, f"{call}_args")


def result_class(call: str) -> Any:
    """Return the generated class of a call's result; its one field is ``success``.

    :raises KeyError: if the service has no such call.
    """
    if call not in CALLS:
        raise KeyError(call)
    return getattr(TCLIService, f"{call}_result")


def accelerated_protocol(transport: Any, *, max_bytes: int = MAX_MESSAGE_BYTES) -> Any:
    """Return the binary protocol over ``transport``, coded in C where thrift offers that.

    Reading is only fast over a transport that C code can read, such as TMemoryBuffer or
    TBufferedTransport; see :func:`is_accelerated`.
    """
    return TBinaryProtocolAccelerated(
        transport, string_length_limit=max_bytes, container_length_limit=max_bytes
    )


def is_accelerated(protocol: Any) -> bool:
    """Return whether ``protocol`` reads and writes structs in C instead of in Python."""
    return (
        protocol._fast_encode is not None
        and protocol._fast_decode is not None
        and isinstance(protocol.trans, CReadableTransport)
    )


def encode_struct(struct: Any) -> bytes:
    """Return the binary encoding of one generated struct."""
    buffer = TMemoryBuffer()
    struct.write(accelerated_protocol(buffer))
    return bytes(buffer.getvalue())


def decode_struct(cls: Any, data: bytes) -> Any:
    """Return the struct of generated class ``cls`` that ``data`` begins with.

    :raises EOFError: if the data ends early.
    """
    struct = cls()
    struct.read(accelerated_protocol(TMemoryBuffer(data)))
    return struct


def encode_message(call: str, kind: int, sequence: int, struct: Any) -> bytes:
    """Return a whole message: header of type ``kind`` (TMessageType) and body ``struct``."""
    buffer = TMemoryBuffer()
    protocol = accelerated_protocol(buffer)
    protocol.writeMessageBegin(call, kind, sequence)
    struct.write(protocol)
    protocol.writeMessageEnd()
    return bytes(buffer.getvalue())
