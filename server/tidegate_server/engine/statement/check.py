"""Checks a statement that changes rows before it is run later."""

from __future__ import annotations

from tidegate_server.core.messages.answers import StatementChecked
from tidegate_server.core.messages.requests import CheckStatement
from tidegate_server.core.model.names import qualify, visible_name
from tidegate_server.engine.gate.gate import enforcing, running_as
from tidegate_server.engine.query.references import parse_statement
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.statement.guard import guard
from tidegate_server.engine.statement.targets import TableTarget
from tidegate_server.engine.storage.jvm import analyze_only


def check_statement(child: Child, request: CheckStatement) -> StatementChecked:
    """Analyze a statement without running it; return the tables whose rows it changes.

    :raises ServerError: MT_WRONG_KIND if it would change a materialized table; ACCESS_DENIED for
        what was not admitted.
    :raises pyspark.errors.PySparkException: if Spark rejects it.
    """
    spark = child.spark
    with (
        child.overlay(request.settings),
        running_as(spark, request.user),
        enforcing(spark, request.admission, request.user, mark=True, exact=True),
    ):
        targets = guard(spark, request.sql).targets
        analyze_only(spark, parse_statement(spark, request.sql))
    names = (each.name for each in targets if isinstance(each, TableTarget) and each.rows)
    place = child.current()
    return StatementChecked(targets=tuple(_shown(name, place) for name in names))


def _shown(name: tuple[str, ...], place: tuple[str, str]) -> str:
    """Return the full name of a table; in a catalog, it may have more than three parts."""
    return ".".join(name) if len(name) > 3 else str(visible_name(qualify(name, *place)))
