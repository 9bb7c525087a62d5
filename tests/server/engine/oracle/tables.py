"""The oracle's tables, their rows and the changes made to them; pure."""

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

TABLES: Mapping[str, Table] = {
    "fact": Table((KEY, GROUP, NUMBER, EXACT, REAL)),
    "other": Table((GROUP, KEY, HUGE, DAY)),
    "small": Table((NUMBER, KEY, REAL)),
}

# Few values, so that keys meet; sums of the floating-point ones are exact.
VALUES: Mapping[str, tuple[str, ...]] = {
    "k": ("'a'", "'b'", "'c'", "''", "NULL"),
    "g": ("0", "1", "2", "NULL"),
    "n": ("0", "1", "2", "3", "-4", "NULL"),
    "m": ("0", "0.01", "-12.50", "9999999.99", "NULL"),
    "x": (
        "99999999999999999999999999999999999999",
        "-99999999999999999999999999999999999999",
        "0",
        "NULL",
    ),
    "d": ("0.0D", "-0.0D", "1.5D", "-2.25D", "double('NaN')", "NULL"),
    "t": ("DATE '2026-01-01'", "DATE '2026-01-02'", "DATE '2026-01-05'", "NULL"),
}


@dataclass(frozen=True)
class Layout:
    """How a table is stored."""

    feed: bool
    partitioned: bool
    vectors: bool

    def create(self, table: str) -> str:
        """Return the statement that creates the table, its name in braces."""
        columns = ", ".join(f"{c.name} {c.type}" for c in TABLES[table].columns)
        key = TABLES[table].columns[0].name
        partitioned = f" PARTITIONED BY ({key})" if self.partitioned else ""
        return (
            f"CREATE TABLE {{{table}}} ({columns}) USING delta{partitioned} TBLPROPERTIES"
            f" ('delta.enableChangeDataFeed' = '{str(self.feed).lower()}',"
            f" 'delta.enableDeletionVectors' = '{str(self.vectors).lower()}')"
        )


layouts = st.builds(Layout, feed=st.booleans(), partitioned=st.booleans(), vectors=st.booleans())


@st.composite
def inserts(draw: st.DrawFn, table: str, most: int = 6) -> str:
    """Return a statement that adds rows, copies of each other among them."""
    rows = draw(st.lists(_row(table), min_size=1, max_size=most))
    rows += draw(st.lists(st.sampled_from(rows), max_size=2))
    types = ", ".join(f"CAST({c.name} AS {c.type})" for c in TABLES[table].columns)
    names = ", ".join(c.name for c in TABLES[table].columns)
    return f"INSERT INTO {{{table}}} SELECT {types} FROM VALUES {', '.join(rows)} AS v({names})"


@st.composite
def changes(draw: st.DrawFn, table: str) -> str:
    """Return a statement that changes a table, or says it does."""
    return draw(st.one_of(inserts(table), *(kind(table) for kind in _KINDS)))


def _row(table: str) -> st.SearchStrategy[str]:
    values = st.tuples(*(st.sampled_from(VALUES[c.name]) for c in TABLES[table].columns))
    return values.map(lambda row: f"({', '.join(row)})")


@st.composite
def _condition(draw: st.DrawFn, table: str) -> str:
    column = draw(st.sampled_from(TABLES[table].columns))
    value = draw(st.sampled_from(VALUES[column.name]))
    return f"{column.name} <=> {value}"


@st.composite
def _delete(draw: st.DrawFn, table: str) -> str:
    return f"DELETE FROM {{{table}}} WHERE {draw(_condition(table))}"


def _empty(table: str) -> st.SearchStrategy[str]:
    return st.just(f"DELETE FROM {{{table}}}")


@st.composite
def _update(draw: st.DrawFn, table: str) -> str:
    """Change a value or a key, sometimes to what it is already, sometimes both at once."""
    columns = draw(
        st.lists(st.sampled_from(TABLES[table].columns), min_size=1, max_size=2, unique=True)
    )
    values = [f"{c.name} = {draw(st.sampled_from((c.name, *VALUES[c.name])))}" for c in columns]
    return f"UPDATE {{{table}}} SET {', '.join(values)} WHERE {draw(_condition(table))}"


@st.composite
def _merge(draw: st.DrawFn, table: str) -> str:
    """Update, delete and insert at once; each source row has a key of its own."""
    key = TABLES[table].columns[0]
    rows = draw(st.lists(_row(table), min_size=1, max_size=3, unique_by=lambda r: r.split(",")[0]))
    names = [c.name for c in TABLES[table].columns]
    types = ", ".join(f"CAST({c.name} AS {c.type}) AS {c.name}" for c in TABLES[table].columns)
    other = names[-1]
    matched = draw(st.sampled_from((f"UPDATE SET {other} = s.{other}", "DELETE")))
    return (
        f"MERGE INTO {{{table}}} AS t USING"
        f" (SELECT {types} FROM VALUES {', '.join(rows)} AS v({', '.join(names)})) AS s"
        f" ON t.{key.name} <=> s.{key.name} WHEN MATCHED THEN {matched}"
        f" WHEN NOT MATCHED THEN INSERT *"
    )


@st.composite
def _overwrite(draw: st.DrawFn, table: str) -> str:
    return draw(inserts(table, 4)).replace("INSERT INTO", "INSERT OVERWRITE", 1)


def _again(table: str) -> st.SearchStrategy[str]:
    """Write every row anew, which changes files and no row."""
    return st.just(f"INSERT OVERWRITE {{{table}}} SELECT * FROM {{{table}}}")


def _optimize(table: str) -> st.SearchStrategy[str]:
    return st.just(f"OPTIMIZE {{{table}}}")


_KINDS = (_delete, _delete, _update, _update, _merge, _overwrite, _again, _empty, _optimize)
