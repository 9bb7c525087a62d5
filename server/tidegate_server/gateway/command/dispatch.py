"""From a statement's text to its result."""

from __future__ import annotations

import logging
import re

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.result import Result
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.places import place_of, place_of_table
from tidegate_server.core.sql.query import begins_like_rows
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.gateway.authorization.admission import admitting, narrow
from tidegate_server.gateway.command import settings
from tidegate_server.gateway.command.specs import SPECS
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import downstream

log = logging.getLogger(__name__)

_CONNECTOR = re.compile(
    r"\s*CREATE\s+(TEMPORARY\s+)?TABLE\b.*?'connector'\s*=", re.IGNORECASE | re.DOTALL
)
_OF_TABLES = frozenset({Code.MT_NOT_FOUND.name, Code.MT_WRONG_KIND.name})
_OF_PARTITIONS = frozenset({Code.MT_PARTITION_UNKNOWN.name, Code.MT_PARTITION_TYPE.name})


def execute(text: str, context: Context) -> Result:
    """Parse one statement, carry it out and return its result.

    :raises ServerError: whatever is wrong with the text or its execution.
    """
    settings.check_overlay(context)
    statement = parse(text)
    spec = SPECS[type(statement)]
    log.info("Operation %s: %s", context.operation_id, type(statement).__name__)
    try:
        with admitting(context):
            spec.check(statement, text, context)
        result = spec.run(statement, text, narrow(context) if spec.lists_tables else context)
    except ServerError as problem:
        if isinstance(statement, SparkStatement):
            _advise(problem, text)
        else:
            _place(problem, text)
        raise
    if spec.redefines is not None:
        downstream.settle(spec.redefines(statement), context)
    return result


def returns_rows(text: str) -> bool:
    """Say whether clients should fetch after this statement, by its words alone; never raises."""
    try:
        statement = parse(text)
    except ServerError:
        return False
    known = SPECS[type(statement)].returns_rows
    if known is not None and known(statement):
        return True
    return begins_like_rows(text)


def _advise(problem: ServerError, text: str) -> None:
    """Say what to write instead of a table of Flink's, which Spark cannot parse."""
    if problem.code == "PARSE_SYNTAX_ERROR" and _CONNECTOR.match(text):
        problem.hint = (
            "Tables with a connector are Flink's. What arrives in files or in Kafka comes in by "
            "CREATE MATERIALIZED TABLE name AS SELECT * FROM STREAM read_files('/place', format "
            "=> 'json') or STREAM read_kafka(...); other tables are made by CREATE TABLE ... USING."
        )


def _place(problem: ServerError, text: str) -> None:
    """Place an error about a table or a partition where the statement first names it."""
    if problem.line is not None or problem.name is None:
        return
    found = None
    if problem.code in _OF_TABLES:
        found = place_of_table(text, problem.name)
    elif problem.code in _OF_PARTITIONS:
        found = place_of(text, problem.name, "PARTITION")
    problem.line, problem.column = found or (None, None)
