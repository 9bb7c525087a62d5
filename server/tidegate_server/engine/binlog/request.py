"""What the process that reads a binlog is asked, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidegate_server.engine.binlog.values import Wanted


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the binlog, between two transactions."""

    file: str
    offset: int

    @property
    def order(self) -> tuple[int, int]:
        """Compares positions: files are numbered."""
        return int(self.file.rpartition(".")[2]), self.offset

    def text(self) -> str:
        """Return it as the commit of a refresh stores it."""
        return json.dumps({"file": self.file, "pos": self.offset})

    @staticmethod
    def read(text: str) -> Position:
        """Return the position that a commit stores."""
        found: dict[str, Any] = json.loads(text)
        return Position(str(found["file"]), int(found["pos"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server is, and who reads."""

    host: str
    port: int
    user: str
    password: str
    tls: str = ""
    """Empty for none, ``encrypt``, or ``verify`` for its certificate, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Asks for the changes of a table since a position, or for its rows."""

    endpoint: Endpoint
    database: str
    table: str
    columns: tuple[Wanted, ...]
    key: tuple[str, ...]
    start: Position | None
    """Where the last refresh ended; None for the first one."""
    initial: bool
    """Whether the first one reads the rows of the table."""
    servers: tuple[int, int]
    """The first and the last number by which this reader may identify itself."""
    directory: str
    """An empty directory for the file of changes."""

    def encode(self) -> str:
        """Return it as a line."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(line: str) -> ReadRequest:
        """Return the request of a line."""
        found: dict[str, Any] = json.loads(line)
        return ReadRequest(
            endpoint=Endpoint(**found.pop("endpoint")),
            columns=tuple(Wanted(**each) for each in found.pop("columns")),
            key=tuple(found.pop("key")),
            start=Position(**start) if (start := found.pop("start")) else None,
            servers=tuple(found.pop("servers")),
            **found,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """The end of what was read, or why nothing was."""

    end: Position | None = None
    rows: int = 0
    """Events in the file of changes; none without a file."""
    problem: str = ""
    """A clause."""
    hint: str = ""
    lost: bool = False
    """Whether changes cannot be read any more, however often it is tried."""

    def encode(self) -> str:
        """Return it as a line."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(line: str) -> ReadAnswer:
        """Return the answer of a line."""
        found: Mapping[str, Any] = json.loads(line)
        end = Position(**found["end"]) if found["end"] else None
        return ReadAnswer(**{**found, "end": end})
