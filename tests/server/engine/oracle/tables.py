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
        """The name as it stands in SQL."""
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

TABLES: Mapping[str, Table] = {
    "fact": Table((KEY, GROUP, NUMBER, EXACT, REAL)),
    "other": Table((GROUP, KEY, HUGE, DAY)),
    "small": Table((NUMBER, KEY, REAL)),
    "wide": Table((ODD, FLAG, NUMBER, MOMENT, FINE)),
}

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
    ODD.name: ("'a'", "'b'", "'`\"'", "'\\n'", "'\\\\'", "'ß'", "'😀'", "NULL"),
    "f": (_FINE_LIMIT, f"-{_FINE_LIMIT}", "0.000000000000000001", "NULL"),
    # One of them in an hour that comes twice in zones with summer time.
    "at": (
        "TIMESTAMP '2026-01-01 00:00:00'",
        "TIMESTAMP '2026-10-25 01:30:00.000001'",
        "TIMESTAMP '1969-12-31 23:59:59.999999'",
        "NULL",
    ),
    "Yes": ("true", "false", "NULL"),
}


@dataclass(frozen=True)
class Layout:
    """How a table is stored."""

    feed: bool
    partitioned: bool
    vectors: bool
    clustered: bool

    def create(self, table: str) -> str:
        """Return the statement that creates the table, its name in braces."""
        described = TABLES[table].columns
        columns = ", ".join(f"{c.quoted} {c.type}" for c in described)
        by = described[0].quoted
        stored = f" PARTITIONED BY ({by})" if self.partitioned else ""
        if self.clustered and not self.partitioned and table != "wide":
            stored = f" CLUSTER BY ({by})"
        properties = {
            "delta.enableChangeDataFeed": str(self.feed).lower(),
            "delta.enableDeletionVectors": str(self.vectors).lower(),
        }
        if table == "wide":
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


def listed(table: str, given: list[str]) -> str:
    """Return a query of the given rows, with the table's columns and types."""
    columns = TABLES[table].columns
    types = ", ".join(f"CAST({c.quoted} AS {c.type}) AS {c.quoted}" for c in columns)
    names = ", ".join(c.quoted for c in columns)
    return f"SELECT {types} FROM VALUES {', '.join(given)} AS v({names})"


@st.composite
def inserts(draw: st.DrawFn, table: str, most: int = 6) -> str:
    """Return a statement that adds rows, copies of each other among them."""
    given = draw(st.lists(rows(table), min_size=1, max_size=most))
    given += draw(st.lists(st.sampled_from(given), max_size=2))
    return f"INSERT INTO {{{table}}} {listed(table, given)}"
