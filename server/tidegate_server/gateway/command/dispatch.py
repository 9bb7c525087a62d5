"""Parses and executes statements."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from functools import cache

from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.dialects import SqlDialect
from tidegate_server.core.model.result import Result
from tidegate_server.core.sql.flink.output import Translation
from tidegate_server.core.sql.flink.translate import translate_statement
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
from tidegate_server.gateway.command.advice import advise
from tidegate_server.gateway.command.jobs import statement_sets
from tidegate_server.gateway.command.specs import SPECS
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.definition import downstream

log = logging.getLogger(__name__)

_NAMES = (ListingKind.TABLES, ListingKind.VIEWS)
_OF_TABLES = frozenset({Code.MT_NOT_FOUND.name, Code.MT_WRONG_KIND.name})
_OF_PARTITIONS = frozenset({Code.MT_PARTITION_UNKNOWN.name, Code.MT_PARTITION_TYPE.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A parsed statement, to be executed later."""

    text: str
    """As the user wrote it."""
    statement: Statement | None
    problem: ServerError | None = None
    """The parse error, raised on execution."""
    translation: Translation | None = None
    """Where the statement's text comes from, if it is not the user's own."""

    @property
    def kind(self) -> str:
        """Its kind; see :func:`kind_of`."""
        return kind_of(self.statement)

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
            statement_kind=self.kind,
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
        if self.translation is None:
            return carry_out(self.statement, self.text, context)
        try:
            return carry_out(self.statement, self.translation.text, context, SqlDialect.FLINK)
        except ServerError as problem:
            _point_into_source(problem, self.translation)
            raise

    @property
    def _facts(self) -> StatementFacts | None:
        return self.statement.facts if isinstance(self.statement, SparkStatement) else None


def prepare(text: str, dialect: SqlDialect = SqlDialect.SPARK) -> Prepared:
    """Parse one statement; a parse error is raised when it runs.

    Flink's SQL is translated first: all that follows, rights included, only sees what will run.
    """
    translation = None
    try:
        if dialect is SqlDialect.FLINK:
            translation = translate_statement(text)
        statement = parse(text if translation is None else translation.text)
        return Prepared(text=text, statement=statement, translation=translation)
    except ServerError as problem:
        if translation is not None:
            _point_into_source(problem, translation)
        return Prepared(text=text, statement=None, problem=problem)


def _point_into_source(problem: ServerError, translation: Translation) -> None:
    """Make the position of an error one in the user's text."""
    if problem.line is not None and problem.column is not None:
        problem.line, problem.column = translation.place(problem.line, problem.column)


def kind_of(statement: Statement | None) -> str:
    """Return the kind of a statement in its own words, of Spark's the first; empty if unknown."""
    if isinstance(statement, SparkStatement):
        return statement.facts.verb
    return "" if statement is None else _words(type(statement).__name__)


@cache
def _words(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).upper()


def carry_out(
    statement: Statement,
    text: str,
    context: Context,
    dialect: SqlDialect = SqlDialect.SPARK,
) -> Result:
    """Check the user's privileges, execute a statement, and return its result.

    Its objects are added to the context's record, which the caller writes to the audit log.

    :param text: what error positions refer to; empty for a generated statement.
    :param dialect: whose SQL the user wrote, before any translation.
    :raises ServerError: any error of the statement.
    """
    spec = SPECS[type(statement)]
    statement_sets.check_open(statement, context)
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
        advise(problem, text, dialect)
        if not isinstance(statement, SparkStatement):
            _place(problem, text)
        raise
    if spec.redefines is not None:
        downstream.settle(spec.redefines(statement), context)
    return result


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
