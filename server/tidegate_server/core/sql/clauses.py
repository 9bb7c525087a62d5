"""The clauses that materialized table statements are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.clauses import Distribution, OnUpdate, StartKind, StartMode
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.sql.cursor import Cursor, shorten
from tidegate_server.core.sql.statements import Downstream, Name, RequestedMode

T = TypeVar("T")

UNITS: Mapping[str, TimeUnit] = {
    **{unit.name: unit for unit in TimeUnit},
    **{unit.name + "S": unit for unit in TimeUnit},
}
_OTHER_UNITS = frozenset(
    spelling
    for unit in ("MICROSECOND", "MILLISECOND", "NANOSECOND", "MONTH", "QUARTER", "YEAR", "DECADE")
    for spelling in (unit, unit + "S")
)
_LARGEST = 2**31 - 1
_MOST_BUCKETS = 100_000
_UNIT_AFTER_QUOTES = "The unit comes after the quotes: INTERVAL '5' MINUTE."
_QUOTE = "Options are written ('key' = 'value', ...)."
_QUERY_WORDS = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "(", "MAP", "REDUCE"})


def table_name(at: Cursor) -> Name:
    """Read a name of one to three parts."""
    parts = [at.name("a table name")]
    while len(parts) < 3 and at.accept("."):
        parts.append(at.name())
    return tuple(parts)


def names(at: Cursor) -> tuple[str, ...]:
    """Read ``(a, b, c)`` with at least one name."""
    return tuple(_list(at, lambda: at.name("a column name")))


def options(at: Cursor) -> dict[str, str]:
    """Read ``('k' = 'v', ...)``, or ``()`` as Flink does; the last of equal keys wins."""
    if at.sees("(", ")"):
        at.expect("(", ")")
        return {}
    return dict(_list(at, lambda: _option(at)))


def option_keys(at: Cursor) -> tuple[str, ...]:
    """Read ``('k', ...)`` without repetitions."""
    return tuple(dict.fromkeys(_list(at, lambda: at.string("an option key in quotes"))))


def partition(at: Cursor) -> dict[str, str]:
    """Read ``(k = v, ...)``, each column once; literals become strings."""
    found: dict[str, str] = {}
    seen: set[str] = set()
    for offset, key, value in _list(at, lambda: (at.offset, *_partition_value(at))):
        if key.lower() in seen:
            wanted = "a column that is not named yet"
            raise at.failure(Code.PARSE_SYNTAX, offset=offset, found=key, expected=wanted)
        seen.add(key.lower())
        found[key] = value
    return found


def query(at: Cursor) -> str:
    """Read the definition query to the end of the statement; the text stays as written."""
    start = at.passed
    if at.ended or at.sees(";"):
        raise at.unexpected_token("a query")
    if at.spelling() not in _QUERY_WORDS:
        found = shorten(at.text[at.offset :].split(maxsplit=1)[0])
        raise at.failure(
            Code.MT_QUERY_UNSUPPORTED, reason=f"it begins with {found} instead of SELECT or WITH"
        )
    while at.token() is not None and not at.sees(";"):
        at.advance()
    end = at.offset
    at.end()
    return at.text[start:end].strip()


def freshness(at: Cursor) -> Freshness | Downstream:
    """Read what follows ``FRESHNESS``."""
    at.expect("=")
    if at.ended:
        raise at.unexpected_token("INTERVAL")
    if at.accept("DOWNSTREAM"):
        return Downstream.DOWNSTREAM
    if not at.sees("INTERVAL") or not at.sees_string(1):
        shown = range(3 if at.sees("INTERVAL") else 1)
        found = " ".join(shorten(token.text) for i in shown if (token := at.token(i)))
        raise at.failure(Code.MT_FRESHNESS_LITERAL, found=found)
    return interval(at)


def interval(at: Cursor, positive: Code = Code.MT_FRESHNESS_POSITIVE) -> Freshness:
    """Read ``INTERVAL 'n' UNIT``; ``positive`` is the error when n is not a positive integer."""
    at.expect("INTERVAL")
    start = at.offset
    text = at.string("a quoted number")
    if at.spelling() not in UNITS and any(letter.isalpha() for letter in text):
        raise at.unexpected_token(*(unit.name for unit in TimeUnit), hint=_UNIT_AFTER_QUOTES)
    unit = _unit(at)
    value = _positive(text)
    if value is None:
        raise at.failure(
            positive,
            offset=start,
            value=shorten(repr(text)),
            kind="INTERVAL",
            expected="a positive integer",
            found=shorten(repr(text)),
        )
    return Freshness(value, unit)


def refresh_mode(at: Cursor) -> RequestedMode:
    """Read what follows ``REFRESH_MODE``."""
    at.expect("=")
    match at.accept_any("CONTINUOUS", "FULL", "INCREMENTAL"):
        case None:
            raise at.unexpected_token()
        case "INCREMENTAL":
            strict = at.accept("STRICT")
            return RequestedMode.INCREMENTAL_STRICT if strict else RequestedMode.INCREMENTAL
        case word:
            return RequestedMode[word]


def refresh_trigger(at: Cursor) -> OnUpdate | None:
    """Read what follows ``REFRESH_TRIGGER``; None is ON SCHEDULE."""
    at.expect("=")
    at.expect("ON")
    match at.accept_any("UPDATE", "SCHEDULE"):
        case "UPDATE":
            if not at.accept("AT"):
                return OnUpdate()
            for word in ("MOST", "EVERY"):
                at.expect(word)
            return OnUpdate(at_most_every=interval(at, Code.MT_TRIGGER_INTERVAL))
        case "SCHEDULE":
            return None
        case _:
            raise at.unexpected_token()


def execute_as(at: Cursor) -> str | None:
    """Read what follows ``EXECUTE``: AS and the user; None is OWNER."""
    at.expect("AS")
    if at.accept("OWNER"):
        return None
    at.expect("USER")
    if at.sees_string():
        return at.string()
    return at.name("the name of a user")


def immutable(at: Cursor) -> str:
    """Read what follows ``IMMUTABLE``: the condition, as written."""
    at.expect("WHERE")
    at.expect("(")
    predicate = at.slice_until(";")
    if not predicate:
        raise at.unexpected_token("a condition")
    at.expect(")")
    return predicate


def start_mode(at: Cursor) -> StartMode:
    """Read what follows ``START_MODE``."""
    at.expect("=")
    word = at.accept_any(*(kind.value for kind in StartKind))
    if word is None:
        raise at.unexpected_token()
    kind = StartKind(word)
    match kind:
        case StartKind.FROM_NOW | StartKind.RESUME_OR_FROM_NOW:
            return _start_now(at, kind)
        case StartKind.FROM_TIMESTAMP | StartKind.RESUME_OR_FROM_TIMESTAMP:
            return _start_timestamp(at, kind)
        case _:
            return StartMode(kind=kind)


def distribution(at: Cursor) -> Distribution:
    """Read what follows ``DISTRIBUTED`` or ``DISTRIBUTION``."""
    if at.accept("INTO"):
        return Distribution(buckets=_buckets(at))
    at.expect("BY")
    kind = at.accept_any("HASH", "RANGE")
    columns = names(at)
    return Distribution(
        kind=kind, columns=columns, buckets=_buckets(at) if at.accept("INTO") else None
    )


def _buckets(at: Cursor) -> int:
    offset = at.offset
    count = at.integer("a number of buckets")
    if not 1 <= count <= _MOST_BUCKETS:
        found = shorten(str(count))
        wanted = f"a number of buckets from 1 to {_MOST_BUCKETS}"
        raise at.failure(Code.PARSE_SYNTAX, offset=offset, found=found, expected=wanted, hint="")
    at.expect("BUCKETS")
    return count


def _list(at: Cursor, item: Callable[[], T]) -> list[T]:
    at.expect("(")
    items = [item()]
    while at.accept(","):
        items.append(item())
    at.expect(")")
    return items


def _option(at: Cursor) -> tuple[str, str]:
    if at.sees_name():
        raise at.unexpected_token("an option key in quotes", hint=_QUOTE)
    key = at.string("an option key in quotes")
    at.expect("=")
    return key, at.string("an option value in quotes")


def _partition_value(at: Cursor) -> tuple[str, str]:
    key = at.name("a partition column")
    at.expect("=")
    if at.sees_string():
        return key, at.string()
    if at.sees("DATE") and at.sees_string(1):
        at.advance()
        return key, at.string()
    sign = "-" if at.accept("-") else ""
    token = at.token()
    if token is not None and token.text.isascii() and token.text.replace(".", "", 1).isdigit():
        return key, sign + at.advance().text
    word = None if sign else at.accept_any("TRUE", "FALSE")
    if word is None:
        raise at.unexpected_token("a literal")
    return key, word.lower()


def _unit(at: Cursor) -> TimeUnit:
    spelling = at.spelling()
    if spelling in _OTHER_UNITS or (spelling in UNITS and at.spelling(1) == "TO"):
        shown = f"{spelling} TO {at.spelling(2)}" if at.spelling(1) == "TO" else spelling
        raise at.failure(Code.MT_FRESHNESS_UNIT, unit=shown)
    if spelling not in UNITS:
        raise at.unexpected_token(*(unit.name for unit in TimeUnit))
    at.advance()
    return UNITS[spelling]


def _positive(text: str) -> int | None:
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        return None
    value = int(digits)
    return value if 0 < value <= _LARGEST else None


def _start_now(at: Cursor, kind: StartKind) -> StartMode:
    if not at.accept("("):
        return StartMode(kind=kind)
    if not at.sees("INTERVAL"):
        raise _start_argument(at, kind, "an interval")
    back = interval(at, Code.MT_START_MODE_ARGUMENT)
    at.expect(")")
    return StartMode(kind=kind, interval=back)


def _start_timestamp(at: Cursor, kind: StartKind) -> StartMode:
    at.expect("(")
    if not at.sees("TIMESTAMP"):
        if kind is StartKind.RESUME_OR_FROM_TIMESTAMP:
            raise at.unexpected_token("TIMESTAMP")
        raise _start_argument(at, kind, "a timestamp")
    at.expect("TIMESTAMP")
    local_zone = at.accept("WITH", "LOCAL", "TIME", "ZONE")
    moment = at.string("a timestamp in quotes")
    at.expect(")")
    return StartMode(kind=kind, timestamp=moment, local_zone=local_zone)


def _start_argument(at: Cursor, kind: StartKind, expected: str) -> ServerError:
    token = at.token()
    found = shorten(token.text) if token else "the end of the statement"
    return at.failure(Code.MT_START_MODE_ARGUMENT, kind=kind.value, expected=expected, found=found)
