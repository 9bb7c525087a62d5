"""Random changes of how a table is stored or what columns it has, as statements; pure."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.engine.oracle.tables import MAPPED, TABLES, VALUES, inserts, names

Change = tuple[str, ...]
"""Statements that belong together."""

_FEED = "delta.enableChangeDataFeed"
_VECTORS = "delta.enableDeletionVectors"
_WIDENED = {"deep": ("n", "BIGINT"), "rare": ("i", "SMALLINT"), "small": ("d", "DOUBLE")}


@st.composite
def alterations(draw: st.DrawFn, table: str) -> Change:
    """Return statements that alter a table or rearrange its files."""
    return draw(st.sampled_from(_KINDS).flatmap(lambda kind: kind(table)))


def _optimize(table: str) -> st.SearchStrategy[Change]:
    number = next((c.quoted for c in TABLES[table].columns[1:] if c.kind == "int"), "")
    ordered = f"OPTIMIZE {{{table}}} ZORDER BY ({number})" if number else f"OPTIMIZE {{{table}}}"
    return st.sampled_from(((f"OPTIMIZE {{{table}}}",), (ordered,)))


def _purge(table: str) -> st.SearchStrategy[Change]:
    """Rewrite files without the rows that deletion vectors remove."""
    vectors = f"ALTER TABLE {{{table}}} SET TBLPROPERTIES ('{_VECTORS}' = 'true')"
    first = TABLES[table].columns[0]
    deleted = f"DELETE FROM {{{table}}} WHERE {first.quoted} <=> {VALUES[first.name][0]}"
    purge = f"REORG TABLE {{{table}}} APPLY (PURGE)"
    return st.sampled_from(((purge,), (vectors, deleted, purge)))


def _vacuum(table: str) -> st.SearchStrategy[Change]:
    """Delete all files that the newest version does not need."""
    return st.just((f"VACUUM {{{table}}} RETAIN 0 HOURS",))


@st.composite
def _restore(draw: st.DrawFn, table: str) -> Change:
    version = draw(st.integers(0, 9))
    restore = f"RESTORE TABLE {{{table}}} TO VERSION AS OF {version}"
    then = draw(st.sampled_from(((), (f"VACUUM {{{table}}} RETAIN 0 HOURS",))))
    return (*then, restore, *draw(st.sampled_from(((), (draw(inserts(table)),)))))


@st.composite
def _set_property(draw: st.DrawFn, table: str) -> Change:
    """Change how changes are recorded from now on, then change something."""
    key = draw(st.sampled_from((_FEED, _FEED, _VECTORS)))
    value = draw(st.sampled_from(("true", "false")))
    set_ = f"ALTER TABLE {{{table}}} SET TBLPROPERTIES ('{key}' = '{value}')"
    return (set_, draw(inserts(table)))


@st.composite
def _comment(draw: st.DrawFn, table: str) -> Change:
    """Change what concerns no row."""
    column = draw(st.sampled_from(TABLES[table].columns))
    return (
        draw(
            st.sampled_from(
                (
                    f"COMMENT ON TABLE {{{table}}} IS 'told'",
                    f"ALTER TABLE {{{table}}} ALTER COLUMN {column.quoted} COMMENT 'told'",
                    f"ALTER TABLE {{{table}}} SET TBLPROPERTIES ('told' = 'yes')",
                    f"ANALYZE TABLE {{{table}}} COMPUTE STATISTICS",
                )
            )
        ),
    )


@st.composite
def _add_column(draw: st.DrawFn, table: str) -> Change:
    added = f"ALTER TABLE {{{table}}} ADD COLUMN extra STRING"
    evolved = (
        f"MERGE WITH SCHEMA EVOLUTION INTO {{{table}}} AS t USING"
        f" (SELECT *, 'x' AS extra FROM {{{table}}} LIMIT 2) AS s ON false"
        " WHEN NOT MATCHED THEN INSERT *"
    )
    filled = f"UPDATE {{{table}}} SET extra = 'y'"
    dropped = f"ALTER TABLE {{{table}}} DROP COLUMN extra"  # refused without column mapping
    return draw(st.sampled_from(((added,), (added, filled), (evolved,), (added, filled, dropped))))


@st.composite
def _rename_column(draw: st.DrawFn, table: str) -> Change:
    """Rename a column and back, or drop it and add it empty."""
    if table not in MAPPED:
        return (f"ALTER TABLE {{{table}}} SET TBLPROPERTIES ('told' = 'no')",)
    alter = f"ALTER TABLE {{{table}}}"
    last = TABLES[table].columns[-1]
    back = (
        f"{alter} RENAME COLUMN {last.quoted} TO other_name",
        f"{alter} RENAME COLUMN other_name TO {last.quoted}",
    )
    again = (f"{alter} DROP COLUMN {last.quoted}", f"{alter} ADD COLUMN {last.quoted} {last.type}")
    return (*draw(st.sampled_from((back, again))), draw(inserts(table)))


def _widen(table: str) -> st.SearchStrategy[Change]:
    """Give a column a wider type, which a table that reads it does not take without being asked."""
    if table not in _WIDENED:
        return _optimize(table)
    column, type_ = _WIDENED[table]
    alter = f"ALTER TABLE {{{table}}}"
    return st.just(
        (
            f"{alter} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            f"{alter} ALTER COLUMN {column} TYPE {type_}",
        )
    )


@st.composite
def _made_anew(draw: st.DrawFn, table: str) -> Change:
    """Replace the table as a whole, under the same name."""
    column = draw(st.sampled_from(TABLES[table].columns)).quoted
    rest = f"SELECT {names(table)} FROM {{{table}}} WHERE {column} IS NOT NULL"
    copy = f"{{{table}_copy}}"
    return draw(
        st.sampled_from(
            (
                (f"CREATE OR REPLACE TABLE {{{table}}} USING delta AS {rest}",),
                (
                    f"CREATE OR REPLACE TABLE {copy} SHALLOW CLONE {{{table}}}",
                    f"DELETE FROM {copy} WHERE {column} IS NULL",
                    f"CREATE OR REPLACE TABLE {{{table}}} SHALLOW CLONE {copy}",
                ),
            )
        )
    )


_KINDS = (
    *(_optimize, _purge, _purge, _vacuum, _restore, _restore, _restore),
    *(_set_property, _set_property, _comment, _add_column, _rename_column, _widen, _made_anew),
)
