"""The grammar: tables from leading words to rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.core.sql import alter, clauses, privileges
from tidegate_server.core.sql.catalogs import grammar as catalogs
from tidegate_server.core.sql.columns import ColumnList, column_list
from tidegate_server.core.sql.cursor import Cursor
from tidegate_server.core.sql.external import grammar as external
from tidegate_server.core.sql.jobs import grammar as jobs
from tidegate_server.core.sql.statements import (
    EXPLAIN_DETAILS,
    CreateMaterializedTable,
    DescribeTable,
    DropMaterializedTable,
    Explain,
    Name,
    ResetOption,
    SetOption,
    ShowCreateMaterializedTable,
    ShowCreateTable,
    ShowEngines,
    ShowLag,
    ShowLineage,
    ShowMaterializedTables,
    ShowOption,
    ShowOptions,
    ShowRefreshHistory,
    ShowVersions,
    Statement,
    VerifyMaterializedTable,
)

Rule = Callable[[Cursor], Statement]
"""Reads the rest of a statement whose leading words have been passed."""

TABLE = ("MATERIALIZED", "TABLE")

_CLAUSES = ("COMMENT", "DISTRIBUTED", "PARTITIONED", "WITH", "START_MODE", "FRESHNESS")
_LAST = ("REFRESH_MODE", "REFRESH_TRIGGER", "EXECUTE", "IMMUTABLE")
_NO_REGION = "BACKFILL FROM follows IMMUTABLE WHERE (condition), whose rows it copies."
_ORDER = f"The order of the clauses is: {', '.join((*_CLAUSES, *_LAST))}, AS."
_OR_ALTER = "OR ALTER applies to a table that already exists: leave IF NOT EXISTS out."
_PACE = "Write FRESHNESS = INTERVAL '10' MINUTE."
_ELSEWHERE: Mapping[str, str] = {
    "TBLPROPERTIES": "Options are written WITH ('key' = 'value').",
    "OPTIONS": "Options are written WITH ('key' = 'value').",
    "USING": "A materialized table is stored as Delta Lake: leave USING out.",
    "CLUSTER": "Write DISTRIBUTED BY (column).",
    "CLUSTERED": "Write DISTRIBUTED BY (column) INTO n BUCKETS.",
    "LOCATION": "Its location follows from its name: leave LOCATION out.",
    "TARGET_LAG": _PACE,
    "LAG": _PACE,
    "SCHEDULE": _PACE,
    "TRIGGER": "Write REFRESH_TRIGGER = ON UPDATE.",
    "WAREHOUSE": "All refreshes run on the gateway's engine: leave WAREHOUSE out.",
    "INITIALIZE": "Write WITH ('materialized-table.initialize' = 'ON_CREATE').",
}
"""Clauses of other systems between the name and AS, with the equivalents here."""


# ---- CREATE ----------------------------------------------------------------------------------


def _create(at: Cursor, or_alter: bool = False) -> CreateMaterializedTable:
    if or_alter and at.sees("IF", "NOT", "EXISTS"):
        raise at.unexpected_token("a table name", hint=_OR_ALTER)
    if_not_exists = not or_alter and at.accept("IF", "NOT", "EXISTS")
    name = clauses.table_name(at)
    listed = column_list(at) if at.sees("(") else _no_list(at)
    return CreateMaterializedTable(
        name=name,
        or_alter=or_alter,
        if_not_exists=if_not_exists,
        columns=tuple(listed.columns),
        primary_key=listed.primary_key,
        watermark=listed.watermark,
        expectations=tuple(listed.expectations.values()),
        assertions=tuple(listed.assertions.values()),
        comment=at.string("a comment in quotes") if at.accept("COMMENT") else None,
        distribution=clauses.distribution(at) if at.accept("DISTRIBUTED") else None,
        partition_keys=_partitioned_by(at),
        options=clauses.options(at) if at.accept("WITH") else {},
        start_mode=clauses.start_mode(at) if at.accept("START_MODE") else None,
        freshness=clauses.freshness(at) if at.accept("FRESHNESS") else None,
        refresh_mode=clauses.refresh_mode(at) if at.accept("REFRESH_MODE") else None,
        on_update=clauses.refresh_trigger(at) if at.accept("REFRESH_TRIGGER") else None,
        execute_as=clauses.execute_as(at) if at.accept("EXECUTE") else None,
        immutable=_immutable(at),
        backfill_from=_backfill_from(at),
        query=_as_query(at),
    )


def _no_list(at: Cursor) -> ColumnList:
    at.accept("(")  # recorded as possible here
    return ColumnList()


def _partitioned_by(at: Cursor) -> tuple[str, ...]:
    if not at.accept("PARTITIONED"):
        return ()
    at.expect("BY")
    return clauses.names(at)


def _immutable(at: Cursor) -> str | None:
    if at.accept("IMMUTABLE"):
        return clauses.immutable(at)
    if at.sees("BACKFILL"):
        raise at.unexpected_token("AS", hint=_NO_REGION)
    return None


def _backfill_from(at: Cursor) -> Name | None:
    if not at.sees("BACKFILL"):
        return None
    at.expect("BACKFILL", "FROM")
    return clauses.table_name(at)


def _as_query(at: Cursor) -> str:
    if at.spelling() in (*_CLAUSES, *_LAST):
        raise at.unexpected_token("AS", hint=_ORDER)
    if not at.accept("AS"):
        raise at.unexpected_token(hint=_ELSEWHERE.get(at.spelling(), ""))
    return clauses.query(at)


def _create_or_alter(at: Cursor) -> CreateMaterializedTable:
    return _create(at, or_alter=True)


def _create_or_replace(at: Cursor) -> Statement:
    raise at.failure(Code.MT_REPLACE_UNSUPPORTED, offset=0)


def _temporary(at: Cursor) -> Statement:
    raise at.failure(Code.MT_TEMPORARY_UNSUPPORTED, offset=0)


def _refresh_first(at: Cursor) -> Statement:
    """Reject a statement that Spark would read as REFRESH of a path's cached data."""
    if at.sees_name(1):
        at.accept("CONCURRENTLY")
    hint = f"Write ALTER MATERIALIZED TABLE {_spelled(clauses.table_name(at))} REFRESH."
    raise at.failure(
        Code.PARSE_SYNTAX, offset=0, found="REFRESH", expected="ALTER MATERIALIZED TABLE", hint=hint
    )


def _foreign(words: tuple[str, ...], wanted: str, expected: str = "") -> Rule:
    """Reject other systems' names, by default those for a materialized table."""
    expected = expected or f"MATERIALIZED TABLE{'S' if words[-1].endswith('S') else ''}"

    def refuse(at: Cursor) -> Statement:
        raise _foreign_error(at, at.start_of_last(len(words)), words, wanted, expected)

    return refuse


def _foreign_error(
    at: Cursor, offset: int, words: tuple[str, ...], wanted: str, expected: str
) -> ServerError:
    return at.failure(
        Code.PARSE_SYNTAX,
        offset=offset,
        found=" ".join(words),
        expected=expected,
        hint=f"Write {wanted}.",
    )


def _alter_foreign(words: tuple[str, ...]) -> Rule:
    """Reject ALTER of other systems' names for a materialized table; Hive refreshes with it."""

    def refuse(at: Cursor) -> Statement:
        offset, wanted = at.start_of_last(len(words)), "ALTER MATERIALIZED TABLE name"
        name: Name = () if at.ended else clauses.table_name(at)
        if at.sees("REBUILD"):
            wanted = f"ALTER MATERIALIZED TABLE {_spelled(name)} REFRESH"
        raise _foreign_error(at, offset, words, wanted, "MATERIALIZED TABLE")

    return refuse


def _spelled(name: Name) -> str:
    return ".".join(map(quote_identifier, name))


def _refuse_as_unsupported(what: str, hint: str) -> Rule:
    def refuse(at: Cursor) -> Statement:
        raise at.failure(Code.NOT_SUPPORTED, offset=at.start_of_last(1), what=what, hint=hint)

    return refuse


# ---- DROP, SHOW, DESCRIBE, EXPLAIN -----------------------------------------------------------


def _drop(at: Cursor) -> Statement:
    if_exists = at.accept("IF", "EXISTS")
    return DropMaterializedTable(name=clauses.table_name(at), if_exists=if_exists)


def _show_tables(at: Cursor) -> Statement:
    at.expect("TABLES")
    extended = at.accept("EXTENDED")
    schema: Name = ()
    if at.accept_any("FROM", "IN"):
        first = at.name("a schema name")
        schema = (first, at.name("a schema name")) if at.accept(".") else (first,)
    negated = at.accept("NOT")
    like = at.accept_any("LIKE", "ILIKE")
    if negated and like is None:
        raise at.unexpected_token()
    return ShowMaterializedTables(
        schema=schema,
        extended=extended,
        pattern=at.string("a pattern in quotes") if like else None,
        negated=negated,
        ignore_case=like == "ILIKE",
    )


def _show_create(at: Cursor) -> Statement:
    return ShowCreateMaterializedTable(name=clauses.table_name(at))


def show_create_table(at: Cursor) -> Statement:
    """Read what follows SHOW CREATE TABLE."""
    return ShowCreateTable(name=clauses.table_name(at))


def _show_create_or_alter(at: Cursor) -> Statement:
    return ShowCreateMaterializedTable(name=clauses.table_name(at), or_alter=True)


def _show_lineage(at: Cursor) -> ShowLineage:
    return ShowLineage(name=clauses.table_name(at), columns=at.accept("COLUMNS"))


def _show_versions(at: Cursor) -> ShowVersions:
    return ShowVersions(name=clauses.table_name(at), definition=at.accept("DEFINITION"))


def _show_history(at: Cursor) -> Statement:
    return ShowRefreshHistory(
        name=clauses.table_name(at) if at.accept("FOR") else None,
        limit=at.integer("a number of rows") if at.accept("LIMIT") else None,
        errors=at.accept("ERRORS"),
    )


def _describe(at: Cursor) -> Statement:
    described = external.describe(at)
    if described is not None:
        return described
    materialized = not at.accept("TABLE") and at.sees("MATERIALIZED", "TABLE") and at.sees_name(2)
    if materialized:
        at.expect("MATERIALIZED", "TABLE")
    extended = at.accept_any("EXTENDED", "FORMATTED") is not None
    return DescribeTable(
        name=clauses.table_name(at),
        materialized=materialized,
        extended=extended,
        as_json=at.accept("AS", "JSON"),
    )


def _explain_alter(at: Cursor) -> Explain:
    name = clauses.table_name(at)
    if at.accept("REFRESH"):
        return Explain(statement=alter.refresh(at, name))
    if at.accept("ROLLBACK"):
        at.expect("DEFINITION")
        return Explain(statement=alter.rollback_definition(at, name))
    at.expect("AS")
    return Explain(statement=alter.as_query(at, name))


def _explain_refresh(at: Cursor) -> Explain:
    return Explain(statement=alter.refresh(at, clauses.table_name(at)))


_EXPLAINED: Mapping[tuple[str, ...], Callable[[Cursor], Explain]] = {
    ("CREATE", *TABLE): lambda at: Explain(statement=_create(at)),
    ("CREATE", "OR", "ALTER", *TABLE): lambda at: Explain(statement=_create_or_alter(at)),
    ("ALTER", *TABLE): _explain_alter,
    ("REFRESH", *TABLE): _explain_refresh,
    ("REFRESH",): _explain_refresh,
}


def _in_detail(detail: str, rule: Callable[[Cursor], Explain]) -> Rule:
    """Return the rule of EXPLAIN with a detail of Spark's; only CREATE has a query to detail."""

    def parse_detailed(at: Cursor) -> Statement:
        found = rule(at)
        if not isinstance(found.statement, CreateMaterializedTable):
            hint = f"Leave {detail} out: it is for EXPLAIN of a query, or of CREATE."
            shown = f"EXPLAIN {detail}"
            raise at.failure(
                Code.PARSE_SYNTAX, offset=0, found=shown, expected="EXPLAIN", hint=hint
            )
        return replace(found, detail=detail)

    return parse_detailed


def _verify(at: Cursor) -> VerifyMaterializedTable:
    name = clauses.table_name(at)
    version = at.integer("a version number") if at.accept("VERSION") else None
    return VerifyMaterializedTable(name=name, version=version)


# ---- SET, RESET ------------------------------------------------------------------------------


def _set_option(at: Cursor) -> Statement:
    if at.ended or at.sees(";"):
        return ShowOptions()
    if at.accept("-", "V"):
        return ShowOptions(verbose=True)
    key = at.string("an option key in quotes")
    if not at.accept("="):
        return ShowOption(key=key)
    return SetOption(key=key, value=at.string("an option value in quotes"))


def _reset_option(at: Cursor) -> Statement:
    return ResetOption(key=at.string("an option key in quotes"))


_THEIRS = (
    ("MATERIALIZED", "VIEW"),
    ("MATERIALIZED", "LAKE", "VIEW"),
    ("DYNAMIC", "TABLE"),
    ("STREAMING", "TABLE"),
)
_MAKING = ("CREATE", "CREATE OR REPLACE", "CREATE OR REFRESH", "CREATE OR ALTER")
_STREAMING = (
    "CREATE OR ALTER MATERIALIZED TABLE name AS SELECT * FROM STREAM "
    "read_files('/place', format => 'json')"
)
_FOREIGN: Mapping[str, str] = {
    **dict.fromkeys(_MAKING, "CREATE OR ALTER MATERIALIZED TABLE name AS query"),
    **dict.fromkeys(
        (f"{verb} TRANSIENT" for verb in _MAKING),
        "CREATE OR ALTER MATERIALIZED TABLE name AS query",
    ),
    "DROP": "DROP MATERIALIZED TABLE name",
    "DESC": "DESCRIBE MATERIALIZED TABLE name",
    "DESCRIBE": "DESCRIBE MATERIALIZED TABLE name",
    "SHOW CREATE": "SHOW CREATE MATERIALIZED TABLE name",
    "COMMENT ON": "CREATE OR ALTER MATERIALIZED TABLE name with the COMMENT",
}
"""Statements of other systems about similar tables, with the equivalents here."""

RULES: Mapping[tuple[str, ...], Rule] = {
    **{
        (*verb.split(), *words): _foreign(words, wanted)
        for verb, wanted in _FOREIGN.items()
        for words in _THEIRS
    },
    **{
        (*verb.split(), "STREAMING", "TABLE"): _foreign(("STREAMING", "TABLE"), _STREAMING)
        for verb in _MAKING
    },
    **{("ALTER", *words): _alter_foreign(words) for words in _THEIRS},
    **{
        ("SHOW", *words): _foreign(words, "SHOW MATERIALIZED TABLES")
        for words in ((*kind[:-1], f"{kind[-1]}S") for kind in _THEIRS)
    },
    ("COMMENT", "ON", *TABLE): _refuse_as_unsupported(
        "COMMENT ON MATERIALIZED TABLE", f"Write {_FOREIGN['COMMENT ON']}."
    ),
    ("BEGIN", "STATEMENT", "SET"): jobs.begin,
    ("EXECUTE", "STATEMENT", "SET"): jobs.execute,
    ("SHOW", "JOBS"): jobs.show,
    ("STOP", "JOB"): jobs.stop,
    ("CREATE", *TABLE): _create,
    ("CREATE", "OR", "ALTER", *TABLE): _create_or_alter,
    ("CREATE", "OR", "REPLACE", *TABLE): _create_or_replace,
    **{
        (*verb.split(), word, *TABLE): _temporary
        for verb in ("CREATE", "CREATE OR ALTER", "CREATE OR REPLACE", "DROP")
        for word in ("TEMPORARY", "TEMP")
    },
    ("ALTER", *TABLE): alter.alter,
    ("DROP", *TABLE): _drop,
    ("REFRESH", *TABLE): _refresh_first,
    **{("REFRESH", *words): _refresh_first for words in _THEIRS},
    ("SHOW", "MATERIALIZED"): _show_tables,
    ("SHOW", "CREATE", *TABLE): _show_create,
    ("SHOW", "CREATE", "OR", "ALTER", *TABLE): _show_create_or_alter,
    ("SHOW", "REFRESH", "HISTORY"): _show_history,
    ("SHOW", "LINEAGE"): _show_lineage,
    ("SHOW", "LAG"): lambda at: ShowLag(),
    ("SHOW", "ENGINES"): lambda at: ShowEngines(),
    ("SHOW", "GRANTS"): privileges.show_grants,
    ("SHOW", "GRANT"): _foreign(("SHOW", "GRANT"), "SHOW GRANTS [ON ...] [FOR ...]", "SHOW GRANTS"),
    ("SHOW", "ROLES"): privileges.show_roles,
    ("SHOW", "CURRENT", "ROLES"): privileges.show_current_roles,
    ("SHOW", "ROLE", "GRANT"): _foreign(
        ("SHOW", "ROLE", "GRANT"), "SHOW GRANTS ON ROLE name", "SHOW GRANTS"
    ),
    ("SHOW", "ROLE", "GRANTS"): _foreign(
        ("SHOW", "ROLE", "GRANTS"), "SHOW CURRENT ROLES", "SHOW CURRENT ROLES"
    ),
    ("CREATE", "ROLE"): privileges.create_role,
    ("DROP", "ROLE"): privileges.drop_role,
    ("CREATE", "EXTERNAL", "LOCATION"): external.create_location,
    ("ALTER", "EXTERNAL", "LOCATION"): external.alter_location,
    ("DROP", "EXTERNAL", "LOCATION"): external.drop(SecuredKind.EXTERNAL_LOCATION),
    ("SHOW", "EXTERNAL", "LOCATIONS"): external.show(SecuredKind.EXTERNAL_LOCATION),
    ("CREATE", "CONNECTION"): external.create_connection,
    ("ALTER", "CONNECTION"): external.alter_connection,
    ("DROP", "CONNECTION"): external.drop(SecuredKind.CONNECTION),
    ("SHOW", "CONNECTIONS"): external.show(SecuredKind.CONNECTION),
    ("CREATE", "CATALOG"): catalogs.create,
    ("ALTER", "CATALOG"): catalogs.alter,
    ("DROP", "CATALOG"): catalogs.drop,
    ("SHOW", "CATALOGS"): catalogs.show,
    ("SHOW", "CURRENT", "CATALOG"): catalogs.show_current,
    ("SHOW", "CREATE", "CATALOG"): catalogs.show_create,
    ("SHOW", "VERSIONS"): _show_versions,
    ("VERIFY", *TABLE): _verify,
    **{
        ("EXPLAIN", *plan, *words): rule
        for plan in ((), ("PLAN", "FOR"))
        for words, rule in _EXPLAINED.items()
    },
    **{
        ("EXPLAIN", detail, *words): _in_detail(detail, rule)
        for detail in EXPLAIN_DETAILS
        for words, rule in _EXPLAINED.items()
    },
}
"""Statements that the leading words alone identify as Tidegate's."""

LOOSE_RULES: Mapping[str, Rule] = {
    "DESC": _describe,
    "DESCRIBE": _describe,
    "SET": _set_option,
    "RESET": _reset_option,
}
"""Statements that Spark has too: text that does not fit the rule exactly is Spark's."""

SHARED_RULES: Mapping[tuple[str, str], Rule] = {
    ("USE", "CATALOG"): catalogs.use,
    ("SET", "CATALOG"): catalogs.use,
    ("DESCRIBE", "CATALOG"): catalogs.describe,
    ("DESC", "CATALOG"): catalogs.describe,
    ("DESCRIBE", "JOB"): jobs.describe,
    ("DESC", "JOB"): jobs.describe,
}
"""Statements of two words in which the second may also be a name, in a statement of Spark's."""

WORD_RULES: Mapping[str, Rule] = {
    "GRANT": privileges.grant,
    "REVOKE": privileges.revoke,
    "END": jobs.end,
}
"""Statements that the first word alone identifies as Tidegate's."""

LONGEST = max(len(words) for words in RULES)
