"""Random changes of the oracle's tables, as statements; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.alterations import Change, alterations
from tests.engine.oracle.tables import TABLES, VALUES, inserts, names, rows, values_query


@st.composite
def changes(draw: st.DrawFn, table: str) -> Change:
    """Return statements that change a table, or say they do."""
    one = st.one_of(inserts(table), *(kind(table) for kind in _SINGLE)).map(lambda text: (text,))
    several = (_taken_out_and_back(table), _move_key(table), alterations(table))
    return draw(st.one_of(one, one, one, one, *several))


@st.composite
def _condition(draw: st.DrawFn, table: str) -> str:
    column = draw(st.sampled_from([c for c in TABLES[table].columns if c.kind != "map"]))
    value = draw(st.sampled_from(VALUES[column.name]))
    simple = f"{column.quoted} <=> {value}"
    return draw(st.sampled_from((simple, simple, f"{column.quoted} IS NOT NULL")))


@st.composite
def _delete(draw: st.DrawFn, table: str) -> str:
    return f"DELETE FROM {{{table}}} WHERE {draw(_condition(table))}"


def _empty(table: str) -> st.SearchStrategy[str]:
    return st.sampled_from((f"DELETE FROM {{{table}}}", f"TRUNCATE TABLE {{{table}}}"))


@st.composite
def _update(draw: st.DrawFn, table: str) -> str:
    """Change a value or a key, sometimes to what it is already, sometimes both at once."""
    columns = draw(
        st.lists(st.sampled_from(TABLES[table].columns), min_size=1, max_size=2, unique=True)
    )
    values = [f"{c.quoted} = {draw(st.sampled_from((c.quoted, *VALUES[c.name])))}" for c in columns]
    return f"UPDATE {{{table}}} SET {', '.join(values)} WHERE {draw(_condition(table))}"


@st.composite
def _move_key(draw: st.DrawFn, table: str) -> Change:
    """Move every row of one key to another: its group is empty afterwards."""
    key = TABLES[table].columns[0]
    before, after = draw(
        st.lists(st.sampled_from(VALUES[key.name]), min_size=2, max_size=2, unique=True)
    )
    moved = f"UPDATE {{{table}}} SET {key.quoted} = {after} WHERE {key.quoted} <=> {before}"
    return (moved,)


@st.composite
def _taken_out_and_back(draw: st.DrawFn, table: str) -> Change:
    """Delete rows and insert some of them again, as if nothing had been."""
    given = draw(st.lists(rows(table), min_size=1, max_size=3))
    return (
        f"INSERT INTO {{{table}}} ({names(table)}) {values_query(table, given)}",
        f"DELETE FROM {{{table}}} WHERE {draw(_condition(table))}",
        f"INSERT INTO {{{table}}} ({names(table)}) {values_query(table, given[:1])}",
    )


@st.composite
def _merge(draw: st.DrawFn, table: str) -> str:
    """Update, delete and insert at once; each source row has a different key."""
    key, last = TABLES[table].columns[0], TABLES[table].columns[-1]
    values = draw(st.lists(st.sampled_from(VALUES[key.name]), min_size=1, max_size=3, unique=True))
    given = [draw(_row_with_key(table, value)) for value in values]
    update = f"UPDATE SET {last.quoted} = s.{last.quoted}"
    matched = draw(st.sampled_from((update, "DELETE", "UPDATE SET *")))
    first = f"WHEN MATCHED AND t.{last.quoted} IS NULL THEN DELETE "
    left = f" WHEN NOT MATCHED BY SOURCE AND t.{key.quoted} IS NULL THEN DELETE"
    also = draw(st.sampled_from(("", "", first)))
    unmatched = draw(st.sampled_from(("", "", " WHEN NOT MATCHED BY SOURCE THEN DELETE", left)))
    if unmatched == left and last.kind != "map":
        value = draw(st.sampled_from(VALUES[last.name]))
        unmatched += f" WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t.{last.quoted} = {value}"
    return (
        f"MERGE INTO {{{table}}} AS t USING ({values_query(table, given)}) AS s"
        f" ON t.{key.quoted} <=> s.{key.quoted} {also}WHEN MATCHED THEN {matched}"
        f" WHEN NOT MATCHED THEN INSERT *{unmatched}"
    )


@st.composite
def _row_with_key(draw: st.DrawFn, table: str, key: str) -> str:
    rest = [draw(st.sampled_from(VALUES[c.name])) for c in TABLES[table].columns[1:]]
    return f"({', '.join((key, *rest))})"


@st.composite
def _overwrite(draw: st.DrawFn, table: str) -> str:
    return draw(inserts(table, 4)).replace("INSERT INTO", "INSERT OVERWRITE", 1)


@st.composite
def _replace(draw: st.DrawFn, table: str) -> str:
    """Replace the rows of one key by another row with it."""
    key = TABLES[table].columns[0]
    value = draw(st.sampled_from(VALUES[key.name][:-1]))
    row = draw(_row_with_key(table, value))
    return (
        f"INSERT INTO {{{table}}} REPLACE WHERE {key.quoted} = {value} {values_query(table, [row])}"
    )


@st.composite
def _double(draw: st.DrawFn, table: str) -> str:
    """Give some rows a copy."""
    return f"INSERT INTO {{{table}}} SELECT * FROM {{{table}}} WHERE {draw(_condition(table))}"


def _nothing(table: str) -> st.SearchStrategy[str]:
    """Commit without a row."""
    return st.just(f"INSERT INTO {{{table}}} SELECT * FROM {{{table}}} WHERE false")


@st.composite
def _key_changed(draw: st.DrawFn, table: str) -> str:
    """Change the first column, by which tables are partitioned and clustered."""
    key = TABLES[table].columns[0]
    value = draw(st.sampled_from(VALUES[key.name]))
    return f"UPDATE {{{table}}} SET {key.quoted} = {value} WHERE {draw(_condition(table))}"


def _again(table: str) -> st.SearchStrategy[str]:
    """Rewrite every row, which changes files and no row."""
    return st.just(f"INSERT OVERWRITE {{{table}}} SELECT * FROM {{{table}}}")


_SINGLE = (
    *(_delete, _delete, _update, _update, _update, _merge, _merge, _overwrite, _replace),
    *(_double, _again, _empty, _nothing, _key_changed),
)
