from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from tidegate_server.gateway.protocol.scan import FrameError, Message, MessageScanner

LIMIT = 1 << 20

SCALARS: dict[int, tuple[str, st.SearchStrategy[Any]]] = {
    TType.BOOL: ("writeBool", st.booleans()),
    TType.BYTE: ("writeByte", st.integers(-128, 127)),
    TType.I16: ("writeI16", st.integers(-(2**15), 2**15 - 1)),
    TType.I32: ("writeI32", st.integers(-(2**31), 2**31 - 1)),
    TType.I64: ("writeI64", st.integers(-(2**63), 2**63 - 1)),
    TType.DOUBLE: ("writeDouble", st.floats()),
    TType.STRING: ("writeBinary", st.binary(max_size=40)),
}
Value = tuple[int, Any]
"""A value with its type; structs hold values, lists a type and values, maps two types."""


def scalar(kind: int) -> st.SearchStrategy[Value]:
    return st.tuples(st.just(kind), SCALARS[kind][1])


def containers(children: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    structs = st.tuples(st.just(TType.STRUCT), st.lists(children, max_size=4))
    lists = st.sampled_from(sorted(SCALARS)).flatmap(
        lambda kind: st.tuples(
            st.sampled_from([TType.LIST, TType.SET]),
            st.tuples(st.just(kind), st.lists(scalar(kind), max_size=5)),
        )
    )
    of_structs = st.tuples(
        st.just(TType.LIST), st.tuples(st.just(TType.STRUCT), st.lists(structs, max_size=3))
    )
    maps = st.tuples(st.sampled_from(sorted(SCALARS)), st.sampled_from(sorted(SCALARS))).flatmap(
        lambda kinds: st.tuples(
            st.just(TType.MAP),
            st.tuples(
                st.just(kinds),
                st.lists(st.tuples(scalar(kinds[0]), scalar(kinds[1])), max_size=4),
            ),
        )
    )
    return structs | lists | of_structs | maps


VALUES = st.recursive(st.sampled_from(sorted(SCALARS)).flatmap(scalar), containers, max_leaves=12)
STRUCTS = st.lists(VALUES, max_size=6)


def write(protocol: TBinaryProtocol, value: Value) -> None:
    kind, content = value
    if kind in SCALARS:
        getattr(protocol, SCALARS[kind][0])(content)
    elif kind == TType.STRUCT:
        for number, part in enumerate(content, start=1):
            protocol.writeFieldBegin("", part[0], number)
            write(protocol, part)
        protocol.writeFieldStop()
    elif kind == TType.MAP:
        kinds, entries = content
        protocol.writeMapBegin(*kinds, len(entries))
        for entry in entries:
            for part in entry:
                write(protocol, part)
    else:
        element, parts = content
        protocol.writeListBegin(element, len(parts))
        for part in parts:
            write(protocol, part)


def message_bytes(name: str, sequence: int, body: list[Value], *, versioned: bool = True) -> bytes:
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer, strictWrite=versioned)
    protocol.writeMessageBegin(name, 1, sequence)
    write(protocol, (TType.STRUCT, body))
    return bytes(buffer.getvalue())


def scan(data: bytes, limit: int = LIMIT) -> list[Message]:
    scanner = MessageScanner(limit)
    scanner.feed(data)
    found = []
    while (message := scanner.next_message()) is not None:
        found.append(message)
    return found


@given(
    bodies=st.lists(STRUCTS, min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 4000), max_size=8),
    versioned=st.booleans(),
)
def test_messages_are_found_exactly_wherever_the_stream_is_cut(
    bodies: list[list[Value]], cuts: list[int], versioned: bool
) -> None:
    whole = [message_bytes("Call", n, body, versioned=versioned) for n, body in enumerate(bodies)]
    stream = b"".join(whole)
    scanner = MessageScanner(LIMIT)
    found: list[Message] = []
    borders = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for start, end in zip(borders, borders[1:], strict=False):
        scanner.feed(stream[start:end])
        while (message := scanner.next_message()) is not None:
            found.append(message)
    header = (8 if versioned else 5) + len("Call") + 4
    assert [m.body for m in found] == [w[header:] for w in whole]
    assert [m.sequence for m in found] == list(range(len(whole)))
    assert scanner.waiting == 0


@given(STRUCTS, st.booleans())
def test_a_message_is_found_byte_by_byte(body: list[Value], versioned: bool) -> None:
    data = message_bytes("Call", 7, body, versioned=versioned)
    scanner = MessageScanner(LIMIT)
    for position in range(len(data) - 1):
        scanner.feed(data[position : position + 1])
        assert scanner.next_message() is None
    scanner.feed(data[-1:])
    message = scanner.next_message()
    assert message is not None
    assert (message.name, message.kind, message.sequence) == ("Call", 1, 7)


def drain(data: bytes) -> None:
    try:
        scan(data, 4096)
    except FrameError:
        return


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_frame_errors(data: bytes) -> None:
    drain(data)
    drain(HEADER + data)
    drain(UNVERSIONED + data)


@given(STRUCTS, st.data())
def test_damaged_messages_raise_nothing_but_frame_errors(
    body: list[Value], data: st.DataObject
) -> None:
    damaged = bytearray(message_bytes("Call", 1, body))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    drain(bytes(damaged))


HEADER = b"\x80\x01\x00\x01\x00\x00\x00\x01x\x00\x00\x00\x00"
UNVERSIONED = b"\x00\x00\x00\x01x\x01\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "a call's name"),
        (b"\x80\x02\x00\x01\x00\x00\x00\x01", "strict binary header"),
        (b"\x00\x00\x00\x00", "a call's name"),
        (b"\x00\x00\x01\x01", "a call's name"),
        (b"\x00\x00\x00\x20" + HEADER, "strict binary header"),
        (UNVERSIONED + b"\x0b\x00\x01\x7f\xff\xff\xff", "more than 1048576 bytes"),
        (b"\x80\x01\x00\x01\x7f\xff\xff\xff", "a call's name"),
        (b"\x80\x01\x00\x01\xff\xff\xff\xff", "a call's name"),
        (HEADER + b"\x0b\x00\x01\x7f\xff\xff\xff", "more than 1048576 bytes"),
        (HEADER + b"\x0b\x00\x01\xff\xff\xff\xff", "announces -1 bytes"),
        (HEADER + b"\x0f\x00\x01\x08\x7f\xff\xff\xff", "announces 2147483647 values"),
        (HEADER + b"\x0f\x00\x01\x08\xff\xff\xff\xff", "announces -1 values"),
        (HEADER + b"\x0f\x00\x01\x0a" + struct.pack(">i", 900_000), "more than 1048576 bytes"),
        (HEADER + b"\x0d\x00\x01\x0b\x0c" + struct.pack(">i", 900_000), "more than 1048576"),
        (HEADER + b"\x05\x00\x01", "5 is not a type"),
        (HEADER + b"\x0f\x00\x01\x01\x00\x00\x00\x01", "1 is not a type"),
        (HEADER + b"\x0c\x00\x01" * 80, "more than 64 deep"),
    ],
)
def test_what_cannot_be_a_request_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        scan(data)


def test_an_unfinished_message_is_bounded_too() -> None:
    scanner = MessageScanner(100)
    scanner.feed(HEADER + b"\x0a\x00\x01abcdefgh" * 20)
    with pytest.raises(FrameError, match="more than 100 bytes"):
        scanner.next_message()


def test_an_empty_map_may_leave_its_types_open() -> None:
    (message,) = scan(HEADER + b"\x0d\x00\x01\x00\x00\x00\x00\x00\x00\x00")
    assert message.name == "x"


def call(name: str = "GetLog", body: bytes = b"", sequence: int = 1) -> bytes:
    encoded = name.encode()
    head = struct.pack(f">HBBi{len(encoded)}si", 0x8001, 0, 1, len(encoded), encoded, sequence)
    return head + body + b"\x00"
