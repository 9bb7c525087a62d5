"""Compares two definitions: every change with its effect on the data; pure.

EXPLAIN prints the same object that ALTER executes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.clauses import Assertion, Expectation
from tidegate_server.core.model.table import (
    Definition,
    LogicalRefreshMode,
    MaterializedTable,
    RefreshMode,
)
from tidegate_server.core.model.types import Column, Schema, plain_type
from tidegate_server.core.model.versions import is_streaming
from tidegate_server.core.sql.dialect import tokenize
from tidegate_server.core.sql.render import render_trigger
from tidegate_server.gateway.definition.columns import shown_type
from tidegate_server.gateway.definition.start_mode import resumes
from tidegate_server.gateway.definition.streaming import check_same_stream
from tidegate_server.gateway.link.targets import LOAD_ENGINE_KEY

_PLAIN = re.compile(r"[A-Z_][A-Z0-9_]*")
_KEYWORDS = frozenset(Spark.Tokenizer.KEYWORDS) | {
    *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "SESSION_USER", "USER"),
    *("GROUPING", "STREAM", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "X"),
}
"""Words that in backticks are names, and can mean something else without them."""


class Effect(Enum):
    """Effect of a change on existing rows."""

    NONE = "NONE"
    NEXT_REFRESH = "NEXT_REFRESH"
    REBUILD = "REBUILD"
    REJECTED = "REJECTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference between two definitions; ``problem`` is why it is rejected."""

    object: str
    before: str | None
    after: str | None
    effect: Effect
    problem: ServerError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """The changes between two definitions; empty if nothing has to be done."""

    before: MaterializedTable
    after: MaterializedTable
    changes: tuple[Change, ...]

    @property
    def rejection(self) -> ServerError | None:
        """The error of the first rejected change."""
        return next((c.problem for c in self.changes if c.problem is not None), None)

    @property
    def restarts(self) -> bool:
        """Whether a CONTINUOUS pipeline restarts from scratch."""
        return any(change.effect is Effect.REBUILD for change in self.changes)


def evolution(
    before: MaterializedTable, wanted: MaterializedTable, loosened: Collection[str] = ()
) -> Evolution:
    """Compare a table's definition with the requested one.

    :param loosened: lower-case names of nullable columns in which the query of ``before``
        never produces NULL.
    """
    old, new = before.definition, wanted.definition
    same = same_query(old.expanded_query, new.expanded_query)
    schema, columns = _columns(before, new, loosened, same=same)
    rebuild = _rebuilding(old)
    query = tuple(_query(old, new))
    changes = (
        *_stream(before, wanted),
        *_mode(before, new),
        *_partitioning(before, new),
        *columns,
        *_key(old, new, schema),
        *query,
        *_parts(old, new),
    )
    content = [c for c in (*columns, *query) if c.effect is rebuild]
    content += [c for c in changes if c.object in ("EXPECTATIONS", "IMMUTABLE WHERE")]
    definition = replace(
        new,
        schema=schema,
        freshness=old.freshness if old.downstream and new.downstream else new.freshness,
        settings={**old.settings, **new.settings} if query else old.settings,
        backfilled_from=old.backfilled_from,
        version=old.version + bool(content),
        defined_by=old.defined_by,
        defined_at=old.defined_at,
        restored_from=None if content else old.restored_from,
    )
    after = replace(
        wanted,
        id=before.id,
        name=before.name,
        owner=before.owner,
        created_at=before.created_at,
        location=before.location,
        execution_target=before.execution_target,
        definition=definition,
        state=before.state,
    )
    return Evolution(before=before, after=after, changes=changes)


def tightened_columns(before: Schema, wanted: Schema) -> tuple[str, ...]:
    """Return the nullable columns that are NOT NULL in the wanted query."""
    return tuple(
        old.name
        for old, new in zip(before, wanted, strict=False)
        if old.nullable and not new.nullable
    )


def same_query(one: str, other: str) -> bool:
    """Say whether queries are equal except for comments, spacing, the case of words, backticks
    around words, the word AS, and ``!=`` for ``<>``.
    """
    if one == other:
        return True
    try:
        return _words(one) == _words(other)
    except TokenError:
        return False


def _words(query: str) -> list[tuple[TokenType, str]]:
    words = map(_word, tokenize(query))
    return [word for word in words if word != (TokenType.VAR, "AS")]


def _word(token: Token) -> tuple[TokenType, str]:
    text = token.text.upper()
    match token.token_type:
        case TokenType.VAR:
            return TokenType.VAR, text
        case TokenType.IDENTIFIER if _PLAIN.fullmatch(text) and text not in _KEYWORDS:
            return TokenType.VAR, text
        case TokenType.NEQ:
            return TokenType.NEQ, ""
    return token.token_type, token.text


def _rebuilding(definition: Definition) -> Effect:
    # Ingested rows are kept, and the stream continues from its checkpoint.
    continuous = definition.refresh_mode is RefreshMode.CONTINUOUS
    ingests = is_streaming(definition.sources)
    return Effect.REBUILD if continuous and not ingests else Effect.NEXT_REFRESH


def _restarting(before: Definition, wanted: Definition) -> Effect:
    """Return the effect of a change that only restarts the pipeline."""
    continuous = before.refresh_mode is RefreshMode.CONTINUOUS
    goes_on = resumes(wanted.start_mode) or is_streaming(before.sources)
    return Effect.REBUILD if continuous and not goes_on else Effect.NONE


# ---- what cannot change ----------------------------------------------------------------------


def _mode(before: MaterializedTable, wanted: Definition) -> Iterator[Change]:
    """Reject changes of an explicit mode; AUTOMATIC may follow the freshness."""
    mode, logical = before.definition.refresh_mode, before.definition.logical_refresh_mode
    if logical is wanted.logical_refresh_mode is LogicalRefreshMode.AUTOMATIC:
        old, new = mode.value, wanted.refresh_mode.value
    else:
        old, new = logical.value, wanted.logical_refresh_mode.value
        if mode is not wanted.refresh_mode:
            problem = error(
                Code.MT_EVOLUTION_REFRESH_MODE, table=before.name, old=mode.value, new=new
            )
            yield _rejected_change("REFRESH_MODE", mode.value, new, problem)
            return
    if old != new:
        yield Change(object="REFRESH_MODE", before=old, after=new, effect=Effect.NONE)


def _stream(before: MaterializedTable, wanted: MaterializedTable) -> Iterator[Change]:
    """Report another stream first: all other differences follow from it."""
    if (other := check_same_stream(before, wanted)) is not None:
        old, new = before.definition.original_query, wanted.definition.original_query
        yield _rejected_change("QUERY", old, new, other)


def _partitioning(before: MaterializedTable, wanted: Definition) -> Iterator[Change]:
    old, new = before.definition.partition_keys, wanted.partition_keys
    if [key.lower() for key in old] != [key.lower() for key in new]:
        shown = (", ".join(old) or "nothing", ", ".join(new) or "nothing")
        problem = error(
            Code.MT_EVOLUTION_PARTITIONING, table=before.name, old=shown[0], new=shown[1]
        )
        yield _rejected_change("PARTITIONED BY", *shown, problem)


def _rejected_change(what: str, old: str | None, new: str | None, problem: ServerError) -> Change:
    return Change(object=what, before=old, after=new, effect=Effect.REJECTED, problem=problem)


# ---- columns ---------------------------------------------------------------------------------


def _columns(
    before: MaterializedTable,
    wanted: Definition,
    loosened: Collection[str],
    *,
    same: bool,
) -> tuple[Schema, tuple[Change, ...]]:
    """Return the new stored columns: the existing ones, followed by added ones.

    :param same: whether the query is unchanged. A lost NOT NULL then comes from a source, and the
        table keeps its own, as in refreshes.
    """
    columns = before.definition.schema.columns
    kept: list[Column] = []
    changes: list[Change] = []
    new = list(wanted.schema)
    for position, old in enumerate(columns, start=1):
        now = new[position - 1] if position <= len(new) else None
        if now is None or not _fits(old, now, loosened, same=same):
            changes.append(_unsupported_change(before, position, old, now))
            kept.append(old)
            continue
        kept.append(replace(old, comment=now.comment))
        if old.comment != now.comment:
            what = f"COMMENT of column {old.name}"
            changes.append(
                Change(object=what, before=old.comment, after=now.comment, effect=Effect.NONE)
            )
    for column in new[len(columns) :]:
        kept.append(replace(column, nullable=True))
        changes.append(
            Change(
                object=f"COLUMN {column.name}",
                before=None,
                after=shown_type(column.type, True),
                effect=_rebuilding(before.definition),
            )
        )
    return Schema(tuple(kept)), tuple(changes)


def _fits(old: Column, now: Column, loosened: Collection[str], *, same: bool) -> bool:
    if old.name.lower() != now.name.lower() or plain_type(old.type) != plain_type(now.type):
        return False
    if old.nullable == now.nullable:
        return True
    return old.name.lower() in loosened if old.nullable else same


def _unsupported_change(
    table: MaterializedTable, position: int, old: Column, now: Column | None
) -> Change:
    shown = "nothing" if now is None else _definition_text(now)
    problem = error(
        Code.MT_EVOLUTION_UNSUPPORTED,
        table=table.name,
        position=position,
        old=_definition_text(old),
        new=shown,
    )
    return _rejected_change(f"COLUMN {old.name}", _definition_text(old), shown, problem)


def _definition_text(column: Column) -> str:
    return f"{column.name} {shown_type(column.type, column.nullable)}"


# ---- the rest --------------------------------------------------------------------------------


def _key(before: Definition, wanted: Definition, schema: Schema) -> Iterator[Change]:
    if before.primary_key == wanted.primary_key:
        return
    old, new = _key_text(before), _key_text(wanted)
    for name in wanted.primary_key.columns if wanted.primary_key else ():
        column = schema.find(name)
        if column is not None and column.nullable and wanted.primary_key is not None:
            problem = error(Code.MT_PK_NULLABLE, key=wanted.primary_key.name, name=name)
            yield _rejected_change("PRIMARY KEY", old, new, problem)
            return
    yield Change(object="PRIMARY KEY", before=old, after=new, effect=_restarting(before, wanted))


def _key_text(definition: Definition) -> str | None:
    key = definition.primary_key
    return f"{key.name} ({', '.join(key.columns)})" if key is not None else None


def _query(before: Definition, wanted: Definition) -> Iterator[Change]:
    old, new = before.original_query, wanted.original_query
    if not same_query(before.expanded_query, wanted.expanded_query):
        yield Change(object="QUERY", before=old, after=new, effect=_rebuilding(before))
    elif _source_names(before) != _source_names(wanted):
        # A view in the query now reads other tables. A source that was replaced under the same
        # name is not a definition change; the next refresh detects it.
        old, new = ", ".join(_source_names(before)), ", ".join(_source_names(wanted))
        yield Change(object="SOURCES", before=old, after=new, effect=_rebuilding(before))


def _source_names(definition: Definition) -> list[str]:
    return [str(source.name.folded()) for source in definition.sources]


def _parts(before: Definition, wanted: Definition) -> Iterator[Change]:
    restarting = _restarting(before, wanted)
    if before.comment != wanted.comment:
        yield Change(
            object="COMMENT", before=before.comment, after=wanted.comment, effect=Effect.NONE
        )
    for key in sorted({*before.options, *wanted.options}):
        old, new = before.options.get(key), wanted.options.get(key)
        if old != new:
            effect = Effect.NONE if key == LOAD_ENGINE_KEY else restarting
            yield Change(object=f"OPTION {key}", before=old, after=new, effect=effect)
    for what, one, other, effect in (
        ("FRESHNESS", _freshness(before), _freshness(wanted), Effect.NONE),
        ("REFRESH_TRIGGER", _trigger(before), _trigger(wanted), Effect.NONE),
        ("EXECUTE AS", _user(before), _user(wanted), Effect.NONE),
        ("START_MODE", _start(before), _start(wanted), Effect.NONE),
        ("DERIVED COLUMNS", _derived_text(before), _derived_text(wanted), Effect.NONE),
        ("METADATA COLUMNS", _metadata(before), _metadata(wanted), Effect.NONE),
        ("WATERMARK", _watermark(before), _watermark(wanted), restarting),
        ("DISTRIBUTED BY", _distribution(before), _distribution(wanted), restarting),
        (
            "EXPECTATIONS",
            *_stated_texts(before.expectations, wanted.expectations),
            _rebuilding(before),
        ),
        ("ASSERTIONS", *_stated_texts(before.assertions, wanted.assertions), Effect.NONE),
        ("IMMUTABLE WHERE", before.immutable, wanted.immutable, _rebuilding(before)),
    ):
        if one != other:
            yield Change(object=what, before=one, after=other, effect=effect)


def _freshness(definition: Definition) -> str:
    return "DOWNSTREAM" if definition.downstream else str(definition.freshness)


def _derived_text(definition: Definition) -> str | None:
    """Return the derived columns with their positions as text for comparison and display."""
    columns = [
        f"{c.position + 1} {c.name} {shown_type(c.type, c.nullable)} AS "
        f"{c.expression or f'METADATA {c.metadata_key}'}"
        + (f" COMMENT {c.comment}" if c.comment else "")
        for c in definition.derived
    ]
    return "; ".join(columns) or None


def _metadata(definition: Definition) -> str | None:
    shown = (f"{name} FROM {key}" for name, key in sorted(definition.persisted_metadata.items()))
    return ", ".join(shown) or None


def _trigger(definition: Definition) -> str:
    return render_trigger(definition.on_update)


def _user(definition: Definition) -> str:
    return "OWNER" if definition.execute_as is None else f"USER {definition.execute_as}"


def _start(definition: Definition) -> str | None:
    mode = definition.start_mode
    if mode is None:
        return None
    zone = " local" if mode.local_zone else ""
    argument = str(mode.interval) if mode.interval else f"{mode.timestamp}{zone}"
    return f"{mode.kind.value}({argument})" if mode.interval or mode.timestamp else mode.kind.value


def _watermark(definition: Definition) -> str | None:
    found = definition.watermark
    return f"{found.column} AS {found.expression}" if found is not None else None


def _distribution(definition: Definition) -> str | None:
    found = definition.distribution
    if found is None:
        return None
    into = f" INTO {found.buckets} BUCKETS" if found.buckets is not None else ""
    return f"{found.kind or ''}({', '.join(found.columns)}){into}"


def _stated_texts(
    before: Sequence[Expectation | Assertion], wanted: Sequence[Expectation | Assertion]
) -> tuple[str | None, str | None]:
    """Return expectations or assertions as texts for comparison and display."""

    def constraint_texts(constraints: Sequence[Expectation | Assertion]) -> str | None:
        return (
            "; ".join(f"{c.name} ({c.condition}) {c.violation.value}" for c in constraints) or None
        )

    return constraint_texts(before), constraint_texts(wanted)
