"""Definition clauses shared by statements and stored tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidegate_server.core.model.freshness import Freshness


class StartKind(Enum):
    """Where a pipeline's first refresh starts."""

    FROM_BEGINNING = "FROM_BEGINNING"
    FROM_NOW = "FROM_NOW"
    FROM_TIMESTAMP = "FROM_TIMESTAMP"
    RESUME_OR_FROM_BEGINNING = "RESUME_OR_FROM_BEGINNING"
    RESUME_OR_FROM_NOW = "RESUME_OR_FROM_NOW"
    RESUME_OR_FROM_TIMESTAMP = "RESUME_OR_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMode:
    """The START_MODE clause; ``local_zone`` marks TIMESTAMP WITH LOCAL TIME ZONE."""

    kind: StartKind
    interval: Freshness | None = None
    timestamp: str | None = None
    local_zone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OnUpdate:
    """REFRESH_TRIGGER = ON UPDATE: refreshed when a source changes, not by a schedule."""

    at_most_every: Freshness | None = None
    """The minimum time between the starts of two such refreshes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """WATERMARK FOR column AS expression."""

    column: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How rows are bucketed; ``kind`` is HASH, RANGE or None for the default."""

    kind: str | None = None
    columns: tuple[str, ...] = ()
    buckets: int | None = None


class Violation(Enum):
    """What happens when a refresh breaks an expectation or assertion."""

    WARN = "WARN"
    DROP_ROW = "DROP ROW"
    QUARANTINE = "QUARANTINE"
    HOLD = "HOLD"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnforcedKey:
    """A primary key checked by refreshes: values must be unique and not NULL."""

    name: str
    columns: tuple[str, ...]
    violation: Violation
    """WARN or FAIL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """CONSTRAINT name EXPECT (condition) ON VIOLATION action; the condition is the user's text."""

    name: str
    condition: str
    violation: Violation = Violation.WARN

    @property
    def broken(self) -> str:
        """SQL that is true for rows that break it; NULL does not, as with CHECK."""
        return f"(NOT coalesce(CAST(({self.condition}\n) AS BOOLEAN), true))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """CONSTRAINT name ASSERT (condition) ON VIOLATION action, about a whole version.

    The condition is the user's text, over aggregates of the refreshed version and, with
    ``previous(...)``, of the published one.
    """

    name: str
    condition: str
    violation: Violation = Violation.WARN
    """WARN, HOLD or FAIL."""
