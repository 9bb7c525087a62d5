"""Finds the end of TBinaryProtocol messages in a stream that has no length prefixes.

Headers are strict or, as Hive's servers also accept, those of writers before Thrift 0.2.

The scanner reads each byte of structure once, skips the rest, and can stop anywhere and continue
when more bytes arrive. It bounds depth, containers and size, and it only raises FrameError.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

MAX_DEPTH: Final = 64
MAX_CONTAINER: Final = 1_000_000
MAX_NAME: Final = 256
MAX_REPEATED: Final = 1024
"""Maximum size of a body that is recognized when it is repeated."""
CALL: Final = 1

_VERSION_1: Final = 0x8001
_STOP, _STRUCT, _MAP, _SET, _LIST, _STRING = 0, 12, 13, 14, 15, 11
_WIDTHS: Final = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8, 16: 16}
_TYPES: Final = frozenset(_WIDTHS) | {_STRUCT, _MAP, _SET, _LIST, _STRING}
# The minimum bytes of a value: bounds a container's count by the size of the message.
_SMALLEST: Final = {**_WIDTHS, _STRUCT: 1, _STRING: 4, _MAP: 6, _SET: 5, _LIST: 5}

_HEADER: Final = struct.Struct(">HBBi")
_I32: Final = struct.Struct(">i")
_WORD: Final = re.compile(rb"\w+", re.ASCII)


class FrameError(Exception):
    """The bytes are not a valid message; the text states the reason."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: the fields of its header and the bytes of its struct."""

    name: str
    kind: int
    sequence: int
    body: bytes


@dataclass(slots=True)
class _Open:
    """A struct (``left`` is None) or a container with ``left`` remaining values."""

    types: tuple[int, ...]
    left: int | None
    turn: int = 0


class MessageScanner:
    """Cuts a byte stream into messages; the caller may raise ``max_bytes`` between messages."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()
        self._last = b""
        """The body of the last message, which polling clients repeat."""
        self._body = 0
        self._restart()

    def feed(self, data: bytes) -> None:
        """Add bytes from the socket."""
        self._buffer += data

    @property
    def waiting(self) -> int:
        """The number of buffered bytes of an incomplete message."""
        return len(self._buffer)

    def next_message(self) -> Message | None:
        """Return the next message; None if more bytes are needed.

        :raises FrameError: if the bytes are invalid; the scanner is then unusable.
        """
        if self._header is None and not self._read_header():
            return None
        if self._last and self._buffer.startswith(self._last, self._body):
            # A message determines its own end, and these bytes ended here before.
            self._position = self._body + len(self._last)
            self._stack.clear()
        while self._stack:
            if not self._step():
                self._require_size(len(self._buffer))
                return None
        return self._cut()

    def _restart(self) -> None:
        self._position = 0
        self._body = 0
        self._header: tuple[str, int, int] | None = None
        self._stack: list[_Open] = []

    def _read_header(self) -> bool:
        # A version has the highest bit set; old writers begin with the length of the name.
        unversioned = bool(self._buffer) and not self._buffer[0] & 0x80
        return self._read_unversioned() if unversioned else self._read_versioned()

    def _read_unversioned(self) -> bool:
        if len(self._buffer) < _I32.size:
            return False
        length = _I32.unpack_from(self._buffer)[0]
        if not 0 < length <= MAX_NAME:
            raise FrameError(f"expected a call's name of at most {MAX_NAME} bytes, not {length}")
        end = _I32.size + length
        name = bytes(self._buffer[_I32.size : end])
        # Checked while incomplete: a client that sends frames may already be waiting for a reply.
        if name and not _WORD.fullmatch(name):
            raise FrameError("expected a strict binary header 0x8001 or a call's name")
        if len(self._buffer) < end + 5:
            return False
        sequence = _I32.unpack_from(self._buffer, end + 1)[0]
        self._begin(name.decode(), self._buffer[end], sequence, end + 5)
        return True

    def _read_versioned(self) -> bool:
        if len(self._buffer) < _HEADER.size:
            return False
        version, _, kind, length = _HEADER.unpack_from(self._buffer)
        if version != _VERSION_1:
            raise FrameError(f"expected a strict binary header 0x8001, not {version:#06x}")
        if not 0 <= length <= MAX_NAME:
            raise FrameError(f"expected a call's name of at most {MAX_NAME} bytes, not {length}")
        end = _HEADER.size + length
        if len(self._buffer) < end + 4:
            return False
        name = bytes(self._buffer[_HEADER.size : end]).decode("utf-8", "replace")
        self._begin(name, kind, _I32.unpack_from(self._buffer, end)[0], end + 4)
        return True

    def _begin(self, name: str, kind: int, sequence: int, body: int) -> None:
        self._header = (name, kind, sequence)
        self._position = self._body = body
        self._stack = [_Open((), None)]

    def _cut(self) -> Message:
        assert self._header is not None
        end = self._position
        self._require_size(end)
        message = Message(*self._header, bytes(self._buffer[self._body : end]))
        self._last = message.body if len(message.body) <= MAX_REPEATED else b""
        del self._buffer[:end]
        self._restart()
        return message

    def _step(self) -> bool:
        """Read one field header or value; False if its bytes have not arrived."""
        top = self._stack[-1]
        if top.left is None:
            return self._scan_field()
        if top.left == 0:
            self._stack.pop()
            return True
        if not self._scan_value(top.types[top.turn]):
            return False
        self._count_value(top)
        return True

    def _scan_field(self) -> bool:
        if not self._has(1):
            return False
        kind = self._buffer[self._position]
        if kind == _STOP:
            self._position += 1
            self._stack.pop()
            return True
        self._require_type(kind)
        if not self._has(3):
            return False
        before = self._position
        self._position += 3
        if self._scan_value(kind):
            return True
        self._position = before
        return False

    def _count_value(self, top: _Open) -> None:
        top.turn += 1
        if top.turn == len(top.types):
            top.turn = 0
            assert top.left is not None
            top.left -= 1

    def _scan_value(self, kind: int) -> bool:
        """Skip a scalar or open a compound value; False, reading nothing, if bytes are missing."""
        if kind in _WIDTHS:
            return self._skip(_WIDTHS[kind])
        match kind:
            case 11:
                return self._scan_string()
            case 12:
                self._open(_Open((), None))
                return True
            case 13:
                return self._scan_map()
            case _:
                return self._scan_list()

    def _scan_string(self) -> bool:
        if not self._has(4):
            return False
        length = _I32.unpack_from(self._buffer, self._position)[0]
        if length < 0:
            raise FrameError(f"a string announces {length} bytes")
        self._require_size(self._position + 4 + length)
        return self._skip(4 + length)

    def _scan_list(self) -> bool:
        if not self._has(5):
            return False
        kind = self._buffer[self._position]
        count = _I32.unpack_from(self._buffer, self._position + 1)[0]
        return self._scan_container((kind,), count, 5)

    def _scan_map(self) -> bool:
        if not self._has(6):
            return False
        kinds = (self._buffer[self._position], self._buffer[self._position + 1])
        count = _I32.unpack_from(self._buffer, self._position + 2)[0]
        if count == 0:
            # Writers may omit the types of an empty map.
            self._position += 6
            return True
        return self._scan_container(kinds, count, 6)

    def _scan_container(self, kinds: tuple[int, ...], count: int, header: int) -> bool:
        if not 0 <= count <= MAX_CONTAINER:
            raise FrameError(f"a container announces {count} values")
        if count:
            for kind in kinds:
                self._require_type(kind)
            smallest = sum(_SMALLEST[kind] for kind in kinds)
            self._require_size(self._position + header + count * smallest)
            if all(kind in _WIDTHS for kind in kinds):
                return self._skip(header + count * smallest)
        self._position += header
        self._open(_Open(kinds, count))
        return True

    def _open(self, part: _Open) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise FrameError(f"values are nested more than {MAX_DEPTH} deep")
        self._stack.append(part)

    def _skip(self, size: int) -> bool:
        if not self._has(size):
            return False
        self._position += size
        return True

    def _has(self, size: int) -> bool:
        return len(self._buffer) - self._position >= size

    def _require_type(self, kind: int) -> None:
        if kind not in _TYPES:
            raise FrameError(f"{kind} is not a type of a value")

    def _require_size(self, size: int) -> None:
        if size > self.max_bytes:
            raise FrameError(f"the request needs more than {self.max_bytes} bytes")
