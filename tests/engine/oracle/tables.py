"""The oracle's tables: their columns, how they are stored, and their rows; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Column:
    """A column; its kind says which values it takes and what may be done with it."""

    name: str
    type: str
    kind: str

    @property
    def quoted(self) -> str:
        """The name as SQL writes it."""
        return f"`{self.name}`"


@dataclass(frozen=True)
class Table:
    """A table of the oracle."""

    columns: tuple[Column, ...]


KEY = Column("k", "STRING", "key")
GROUP = Column("g", "INT", "int")
NUMBER = Column("n", "INT", "int")
EXACT = Column("m", "DECIMAL(12, 2)", "exact")
HUGE = Column("x", "DECIMAL(38, 0)", "huge")
REAL = Column("d", "DOUBLE", "real")
DAY = Column("t", "DATE", "day")
ODD = Column("a key's ü.name", "STRING", "key")
FINE = Column("f", "DECIMAL(38, 18)", "huge")
MOMENT = Column("at", "TIMESTAMP", "moment")
FLAG = Column("Yes", "BOOLEAN", "flag")

BIG = Column("b", "BIGINT", "big")
TINY = Column("i", "TINYINT", "tiny")
SINGLE = Column("e", "FLOAT", "single")
BYTES = Column("bin", "BINARY", "bytes")
WALL = Column("w", "TIMESTAMP_NTZ", "wall")
FIXED = Column("c", "CHAR(3)", "key")
LIMITED = Column("v", "VARCHAR(5)", "key")
INNER = Column("s", "STRUCT<a: INT, d: DOUBLE, t: STRING>", "struct")
LIST = Column("l", "ARRAY<INT>", "list")
MAP = Column("o", "MAP<STRING, INT>", "map")

TABLES: Mapping[str, Table] = {
    "fact": Table((KEY, GROUP, NUMBER, EXACT, REAL)),
    "other": Table((GROUP, KEY, HUGE, DAY)),
    "small": Table((NUMBER, KEY, REAL)),
    "wide": Table((ODD, FLAG, NUMBER, MOMENT, FINE)),
    "rare": Table((TINY, FIXED, BIG, SINGLE, WALL, BYTES)),
    "deep": Table((LIMITED, INNER, LIST, MAP, NUMBER)),
}

LOGIC: Mapping[str, Table] = {
    f"t{number}": Table(tuple(Column(name, "BIGINT", "big") for name in "abcde"))
    for number in range(1, 6)
}
"""Tables of numbers alone; see ``logic.py``."""

ALL_TABLES = {**TABLES, **LOGIC}

MAPPED = ("wide", "deep")
"""Tables whose columns can be renamed and dropped."""

_LEAST = "bigint('-9223372036854775808')"
_LIMIT = "99999999999999999999999999999999999999"
_FINE_LIMIT = "99999999999999999999.999999999999999999"

# Few values, so that keys meet; sums of the floating-point ones are exact.
VALUES: Mapping[str, tuple[str, ...]] = {
    "k": ("'a'", "'b'", "'c'", "''", "'A'", "'a '", "'it''s'", "NULL"),
    "g": ("0", "1", "2", "2147483647", "NULL"),
    "n": ("0", "1", "2", "3", "-4", "NULL"),
    "m": ("0", "0.01", "-12.50", "9999999999.99", "-9999999999.99", "NULL"),
    "x": (_LIMIT, f"-{_LIMIT}", "0", "NULL"),
    "d": ("0.0D", "-0.0D", "1.5D", "-2.25D", "double('NaN')", "double('-Infinity')", "NULL"),
    "t": ("DATE '2026-01-01'", "DATE '2026-01-02'", "DATE '0001-01-01'", "NULL"),
    ODD.name: ("'a'", "'b'", "'`\"'", "'\\n'", "'\\\\'", "'ß'", "'😀\\u0085\\u2028'", "NULL"),
    "f": (_FINE_LIMIT, f"-{_FINE_LIMIT}", "0.000000000000000001", "NULL"),
    # One of them in an hour that comes twice in zones with summer time.
    "at": (
        "TIMESTAMP '2026-01-01 00:00:00'",
        "TIMESTAMP '2026-10-25 01:30:00.000001'",
        "TIMESTAMP '1969-12-31 23:59:59.999999'",
        "NULL",
    ),
    "Yes": ("true", "false", "NULL"),
    "b": ("9223372036854775807", _LEAST, "0", "1", "-3", "NULL"),
    "i": ("127", "-128", "0", "1", "NULL"),
    "e": ("0.0F", "-0.0F", "0.5F", "float('NaN')", "float('Infinity')", "3.4028234E38F", "NULL"),
    "bin": ("X'00FF'", "X''", "X'61'", "NULL"),
    "w": (
        "TIMESTAMP_NTZ '2026-01-01 00:00:00'",
        "TIMESTAMP_NTZ '2026-01-01 00:59:59.999999'",
        "TIMESTAMP_NTZ '2026-03-29 02:30:00'",
        "TIMESTAMP_NTZ '1969-12-31 23:59:59'",
        "NULL",
    ),
    "c": ("'a'", "'b  '", "''", "'abc'", "NULL"),
    "v": ("'a'", "'b '", "''", "'abcde'", "NULL"),
    "s": (
        "named_struct('a', 1, 'd', 0.0D, 't', 'a')",
        "named_struct('a', 1, 'd', -0.0D, 't', 'a')",
        "named_struct('a', NULL, 'd', double('NaN'), 't', NULL)",
        "named_struct('a', 2, 'd', NULL, 't', 'b')",
        "named_struct('a', NULL, 'd', NULL, 't', NULL)",
        "NULL",
    ),
    "l": ("array(1, 2)", "array(2, 1)", "array(1, NULL)", "array()", "array(3)", "NULL"),
    "o": ("map('a', 1)", "map('a', 1, 'b', NULL)", "map('b', NULL, 'a', 1)", "map()", "NULL"),
}

VIEWS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "seen": (
        "SELECT k AS c0, g AS c1, n AS c2, m AS c3 FROM {fact} WHERE n IS NULL OR n < 3",
        (("c0", "key"), ("c1", "int"), ("c2", "int"), ("c3", "exact")),
    ),
    "paired": (
        (
            "SELECT f.c0, f.c2 AS c1, o.t AS c2, o.g AS c3 FROM {seen} f"
            " LEFT JOIN {other} o ON f.c0 = o.k"
        ),
        (("c0", "key"), ("c1", "int"), ("c2", "day"), ("c3", "int")),
    ),
    "totals": (
        "SELECT k AS c0, count(*) AS c1, max(n) AS c2 FROM {small} GROUP BY k",
        (("c0", "key"), ("c1", "int"), ("c2", "int")),
    ),
}
"""Views that queries read, each with its text and its columns; later ones may read earlier ones."""


@dataclass(frozen=True)
class Layout:
    """How a table is stored."""

    feed: bool
    partitioned: bool
    vectors: bool
    clustered: bool

    def create(self, table: str) -> str:
        """Return the statement that creates the table, its name in braces."""
        described = ALL_TABLES[table].columns
        columns = ", ".join(f"{c.quoted} {c.type}" for c in described)
        by = described[0].quoted
        stored = f" PARTITIONED BY ({by})" if self.partitioned else ""
        if self.clustered and not self.partitioned and table not in MAPPED:
            stored = f" CLUSTER BY ({by})"
        properties = {
            "delta.enableChangeDataFeed": str(self.feed).lower(),
            "delta.enableDeletionVectors": str(self.vectors).lower(),
        }
        if table in MAPPED:
            properties["delta.columnMapping.mode"] = "name"
        shown = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return f"CREATE TABLE {{{table}}} ({columns}) USING delta{stored} TBLPROPERTIES ({shown})"


layouts = st.builds(
    Layout,
    feed=st.booleans(),
    partitioned=st.booleans(),
    vectors=st.booleans(),
    clustered=st.booleans(),
)


def rows(table: str) -> st.SearchStrategy[str]:
    """Return rows of a table as text."""
    values = st.tuples(*(st.sampled_from(VALUES[c.name]) for c in TABLES[table].columns))
    return values.map(lambda row: f"({', '.join(row)})")


def values_query(table: str, given: list[str]) -> str:
    """Return a query of the given rows, with the table's columns and types."""
    columns = TABLES[table].columns
    types = ", ".join(f"CAST({c.quoted} AS {_plain(c.type)}) AS {c.quoted}" for c in columns)
    return f"SELECT {types} FROM VALUES {', '.join(given)} AS v({names(table)})"


@st.composite
def inserts(draw: st.DrawFn, table: str, most: int = 6) -> str:
    """Return a statement that adds rows, copies of each other among them."""
    given = draw(st.lists(rows(table), min_size=1, max_size=most))
    given += draw(st.lists(st.sampled_from(given), max_size=2))
    # By name, since the table may have got more columns.
    return f"INSERT INTO {{{table}}} ({names(table)}) {values_query(table, given)}"


def names(table: str) -> str:
    """Return the table's columns as a list in SQL."""
    return ", ".join(c.quoted for c in TABLES[table].columns)


def _plain(type: str) -> str:
    """Return a type that values can be cast to."""
    return "STRING" if type.startswith(("CHAR", "VARCHAR", "STRING")) else type
