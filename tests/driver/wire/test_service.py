"""The bindings, their speed, and their neighbours."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TBufferedTransport

from tidegate.network.auth import SaslTransport
from tidegate.network.transport import SocketTransport
from tidegate.wire.columns import row_set
from tidegate.wire.service import (
    CALLS,
    TMemoryBuffer,
    TMessageType,
    accelerated_protocol,
    args_class,
    encode_message,
    encode_struct,
    is_accelerated,
    result_class,
    ttypes,
)

NEIGHBOURS = ("TCLIService", "impala._thrift_gen.TCLIService")


def test_the_service_has_its_twenty_five_calls() -> None:
    assert len(CALLS) == 25
    assert {"GetQueryId", "SetClientInfo", "UploadData", "DownloadData"} <= CALLS


@pytest.mark.parametrize("call", sorted(CALLS))
def test_every_call_has_its_classes(call: str) -> None:
    assert args_class(call)(req=None).req is None
    assert result_class(call)(success=None).success is None


def test_an_unknown_call_has_no_classes() -> None:
    with pytest.raises(KeyError):
        args_class("GetLog")


@pytest.mark.parametrize(
    "transport",
    [
        TMemoryBuffer(b""),
        TBufferedTransport(SocketTransport(("", 0), timeout=None)),
        SaslTransport(SocketTransport(("", 0), timeout=None)),
    ],
    ids=["memory", "buffered", "sasl"],
)
def test_the_driver_speaks_the_accelerated_protocol(transport: Any) -> None:
    assert is_accelerated(accelerated_protocol(transport))


def test_a_transport_that_c_cannot_read_is_not_accelerated() -> None:
    assert not is_accelerated(accelerated_protocol(SocketTransport(("", 0), timeout=None)))


def test_c_and_python_write_the_same_bytes() -> None:
    sent = row_set(["INT", "STRING", "BINARY"], [(1, "ä", b"\xff"), (None, None, None)])
    buffer = TMemoryBuffer()
    protocol = accelerated_protocol(buffer)
    protocol._fast_encode = None
    sent.write(protocol)
    assert buffer.getvalue() == encode_struct(sent)


def test_a_message_has_version_name_and_sequence_number() -> None:
    message = encode_message("GetInfo", TMessageType.CALL, 7, args_class("GetInfo")())
    assert message == b"\x80\x01\x00\x01\x00\x00\x00\x07GetInfo\x00\x00\x00\x07\x00"


@pytest.mark.parametrize("module", NEIGHBOURS)
def test_other_drivers_bindings_read_what_ours_write(module: str) -> None:
    theirs = importlib.import_module(f"{module}.ttypes")
    sent = encode_struct(row_set(["INT", "STRING"], [(1, "a"), (None, "b")]))
    received = theirs.TRowSet()
    # PyHive's bindings are too old for the accelerated protocol.
    received.read(TBinaryProtocol(TMemoryBuffer(sent)))
    assert received.columns[0].i32Val.values == [1, 0]
    assert received.columns[0].i32Val.nulls == b"\x02"


@pytest.mark.parametrize("module", NEIGHBOURS)
def test_fields_have_the_numbers_of_other_drivers_bindings(module: str) -> None:
    theirs = importlib.import_module(f"{module}.ttypes")
    for name, cls in vars(theirs).items():
        if not hasattr(cls, "thrift_spec") or name.startswith("TGetLog"):
            continue
        ours = {(f[0], f[1], f[2]) for f in getattr(ttypes, name).thrift_spec if f}
        assert {(f[0], f[1], f[2]) for f in cls.thrift_spec if f} <= ours, name


@pytest.mark.parametrize("module", NEIGHBOURS)
def test_enumerations_have_the_numbers_of_other_drivers_bindings(module: str) -> None:
    theirs = importlib.import_module(f"{module}.ttypes")
    for name, cls in vars(theirs).items():
        if hasattr(cls, "_NAMES_TO_VALUES"):
            ours = getattr(ttypes, name)._VALUES_TO_NAMES
            assert cls._VALUES_TO_NAMES.items() <= ours.items(), name
