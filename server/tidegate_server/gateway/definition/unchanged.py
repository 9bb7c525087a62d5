"""Recognizes statements that define a table as it is, without Spark's analysis."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tidegate_server.core.model.dialects import SqlDialect
from tidegate_server.core.model.table import Definition, MaterializedTable
from tidegate_server.core.model.versions import is_streaming
from tidegate_server.core.sql.dialect import tokenize
from tidegate_server.core.sql.statements import CreateMaterializedTable
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition.build import cadence_of, options_of
from tidegate_server.gateway.definition.evolution import same_query
from tidegate_server.gateway.definition.statement import creating
from tidegate_server.gateway.options import dialect_in

_BEFORE_STAR = frozenset({"SELECT", "DISTINCT", "ALL", ",", "."})


def is_unchanged(
    statement: CreateMaterializedTable, table: MaterializedTable, context: Context
) -> bool:
    """Return whether a CREATE OR ALTER certainly defines a table as it is.

    False if it does not, or if only the columns of the sources can tell.

    :raises ServerError: for a freshness or an option that is invalid.
    """
    definition = table.definition
    stored = creating(table, or_alter=True)
    return (
        statement.backfill_from is None
        and statement.start_mode == definition.start_mode
        and not is_streaming(definition.sources)
        and dialect_in(context.session.settings) is SqlDialect.SPARK
        and statement.columns == (stored.columns if definition.declared else ())
        and _clauses(statement) == _clauses(stored)
        and options_of(statement, context) == definition.options
        and _has_cadence(statement, table, context)
        and same_query(statement.query, definition.original_query)
        and _is_resolved_alike(definition, context)
    )


def _clauses(statement: CreateMaterializedTable) -> tuple[object, ...]:
    return (
        statement.primary_key,
        statement.watermark,
        statement.expectations,
        statement.assertions,
        statement.comment,
        statement.distribution,
        statement.partition_keys,
        statement.execute_as,
        statement.immutable,
        statement.on_update,
    )


def _has_cadence(
    statement: CreateMaterializedTable, table: MaterializedTable, context: Context
) -> bool:
    definition = table.definition
    found = cadence_of(statement, table, context)
    # With FRESHNESS = DOWNSTREAM, the consumers determine the freshness.
    same = found.downstream or found.freshness == definition.freshness
    return same and (found.downstream, found.logical_mode, found.mode) == (
        definition.downstream,
        definition.logical_refresh_mode,
        definition.refresh_mode,
    )


def _is_resolved_alike(definition: Definition, context: Context) -> bool:
    """Return whether names in the query mean what they meant when the table was defined.

    A star, and a natural join, depend on the columns that the sources have now.
    """
    try:
        tokens = tokenize(definition.original_query)
    except TokenError:
        return False
    words = {token.text.lower() for token in tokens}
    session = context.session
    return (
        "natural" not in words
        and not _has_star(tokens)
        and all(
            source.name.schema.lower() in words
            or (source.name.catalog, source.name.schema) == (session.catalog, session.schema)
            for source in definition.sources
        )
    )


def _has_star(tokens: Sequence[Token]) -> bool:
    """Return whether a query has a star other than that of ``count(*)`` or a multiplication."""
    for at, token in enumerate(tokens):
        if token.token_type is not TokenType.STAR:
            continue
        before = tokens[at - 1].text.upper()
        counted = at > 1 and tokens[at - 2].text.lower() == "count"
        if before in _BEFORE_STAR or (before == "(" and not counted):
            return True
    return False
