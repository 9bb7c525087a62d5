"""Parses and executes statements."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from functools import cache

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.result import Result
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.places import place_of, place_of_table
from tidegate_server.core.sql.statements import (
    ListingKind,
    SparkStatement,
    Statement,
    StatementFacts,
)
from tidegate_server.gateway.audit.record import ADMINISTRATOR, Record
from tidegate_server.gateway.authorization.admission import admitting, narrow
from tidegate_server.gateway.authorization.features import allowed_features, distinguishes_users
from tidegate_server.gateway.command import settings
from tidegate_server.gateway.command.specs import SPECS
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import downstream

log = logging.getLogger(__name__)

_CONNECTOR = re.compile(
    r"\s*CREATE\s+(TEMPORARY\s+)?TABLE\b.*?'connector'\s*=", re.IGNORECASE | re.DOTALL
)
_NAMES = (ListingKind.TABLES, ListingKind.VIEWS)
_OF_TABLES = frozenset({Code.MT_NOT_FOUND.name, Code.MT_WRONG_KIND.name})
_OF_PARTITIONS = frozenset({Code.MT_PARTITION_UNKNOWN.name, Code.MT_PARTITION_TYPE.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A parsed statement, to be executed later."""

    text: str
    statement: Statement | None
    problem: ServerError | None = None
    """The parse error, raised on execution."""

    @property
    def returns_rows(self) -> bool:
        """Whether clients should fetch rows, judged by the text alone."""
        statement = self.statement
        return statement is not None and SPECS[type(statement)].returns_rows(statement)

    @property
    def may_change_names(self) -> bool:
        """Whether it may create, rename or drop objects."""
        return not self.returns_rows or (self._facts is not None and self._facts.runs_others)

    @property
    def lists_names(self) -> bool:
        """Whether it is SHOW TABLES or SHOW VIEWS."""
        return self._facts is not None and self._facts.lists in _NAMES

    def run(self, context: Context) -> Result:
        """Execute the statement, record it in the audit log, and return its result.

        :raises ServerError: any error of the statement; AUDIT_UNAVAILABLE.
        """
        session, audit = context.session, context.services.audit
        record = Record(
            user=session.user,
            real_user=session.real_user,
            address=session.address,
            session_id=session.session_id,
            operation_id=context.operation_id,
            statement_kind=kind_of(self.statement),
            text=self.text,
        )
        with audit.recording(record):
            result = self._run(replace(context, record=record))
        try:
            audit.require_written(record)
        except ServerError:
            result.close()
            raise
        return result

    def _run(self, context: Context) -> Result:
        settings.check_overlay(context)
        if self.statement is None:
            raise self.problem or AssertionError("neither a statement nor a problem")
        return carry_out(self.statement, self.text, context)

    @property
    def _facts(self) -> StatementFacts | None:
        return self.statement.facts if isinstance(self.statement, SparkStatement) else None


def prepare(text: str) -> Prepared:
    """Parse one statement; a parse error is raised when it runs."""
    try:
        return Prepared(text=text, statement=parse(text))
    except ServerError as problem:
        return Prepared(text=text, statement=None, problem=problem)


def kind_of(statement: Statement | None) -> str:
    """Return the kind of a statement in its own words, of Spark's the first; empty if unknown."""
    if isinstance(statement, SparkStatement):
        return statement.facts.verb
    return "" if statement is None else _words(type(statement).__name__)


@cache
def _words(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).upper()


def carry_out(statement: Statement, text: str, context: Context) -> Result:
    """Check the user's privileges, execute a statement, and return its result.

    Its objects are added to the context's record, which the caller writes to the audit log.

    :param text: what error positions refer to; empty for a generated statement.
    :raises ServerError: any error of the statement.
    """
    spec = SPECS[type(statement)]
    features = allowed_features(context.session.user, context.services)
    context = replace(context, features=features)
    if features is None and distinguishes_users(context.services.config):
        context.record.reason = ADMINISTRATOR
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


def _advise(problem: ServerError, text: str) -> None:
    """Add a hint for Flink's connector tables, which Spark cannot parse."""
    if problem.code == "PARSE_SYNTAX_ERROR" and _CONNECTOR.match(text):
        problem.hint = (
            "Tables with a connector are Flink's. What arrives in files or in Kafka comes in by "
            "CREATE MATERIALIZED TABLE name AS SELECT * FROM STREAM read_files('/place', format "
            "=> 'json') or STREAM read_kafka(...); other tables are made by CREATE TABLE ... USING."
        )


def _place(problem: ServerError, text: str) -> None:
    """Point an error to where the statement first names its table or partition."""
    if problem.line is not None or problem.name is None:
        return
    found = None
    if problem.code in _OF_TABLES:
        found = place_of_table(text, problem.name)
    elif problem.code in _OF_PARTITIONS:
        found = place_of(text, problem.name, "PARTITION")
    problem.line, problem.column = found or (None, None)
