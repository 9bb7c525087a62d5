"""Analyzes the statements of a script before it runs, with the script's variables."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import ServerError
from tidegate_server.engine.query.references import parse_statement
from tidegate_server.engine.statement.execute_immediate import statement_of
from tidegate_server.engine.storage.jvm import compiled_instance, items, java_source, kind

logger = logging.getLogger(__name__)

SCRIPT = "CompoundBody"
"""The class of parsed scripts, and of the blocks within them."""
_ROW = "row"
"""The label of a FOR loop's row that has no name; no script can refer to it."""


@dataclass(frozen=True, slots=True)
class Analyzed:
    """A statement of a script."""

    parsed: Any
    plan: Any | None
    """The analyzed plan; None if the statement is invalid, or depends on what runs before it."""


def analyzed_statements(spark: SparkSession, script: Any) -> Iterator[Analyzed]:
    """Yield the statements of a parsed script in order; of EXECUTE IMMEDIATE the inner one."""
    source = java_source(__package__, "ScriptScopes")
    java = compiled_instance(spark, "tidegate.ScriptScopes", source)
    yield from _Scopes(spark, java, java.begin()).walk(script)


@dataclass(frozen=True, slots=True)
class _Scopes:
    """The variables that a script has declared so far."""

    spark: SparkSession
    java: Any
    """The instance of ``ScriptScopes.java``."""
    scopes: Any

    def walk(self, node: Any) -> Iterator[Analyzed]:
        match kind(node):
            case "SingleStatement":
                yield from self._statement(node.parsedPlan())
            case "ForStatement":
                yield from self._loop(node)
            case name if name == SCRIPT and node.isScope():
                yield from self._block(node)
            case name:
                yield from self._parts(node, handlers=name == SCRIPT)

    def _statement(self, parsed: Any) -> Iterator[Analyzed]:
        if kind(parsed) == "UnresolvedExecuteImmediate":  # its analysis would run it
            yield from self._immediate(parsed)
            return
        plan = self._analyze(parsed)
        yield Analyzed(parsed, plan)
        if plan is not None and kind(plan) == "CreateVariable":
            for name in items(plan.names()):
                self._declare(str(name.identifier().name()), plan.defaultExpr().dataType())

    def _immediate(self, parsed: Any) -> Iterator[Analyzed]:
        try:
            text = statement_of(self.spark, parsed, script=True)
            inner = parse_statement(self.spark, text)
        except (PySparkException, ServerError) as error:
            logger.debug("cannot parse EXECUTE IMMEDIATE in a script: %s", error)
            return  # it fails in the same way when it runs
        if kind(inner) == SCRIPT:
            yield from self.walk(inner)
        else:
            yield from self._statement(inner)

    def _block(self, node: Any) -> Iterator[Analyzed]:
        label = str(node.label().get())
        self.java.enter(self.scopes, label)
        yield from self._parts(node, handlers=True)
        self.java.exit(self.scopes, label)

    def _loop(self, node: Any) -> Iterator[Analyzed]:
        """Yield the query and the body, which sees the columns of the query as variables."""
        query = next(self._statement(node.query().parsedPlan()), None)
        if query is not None:
            yield query
        label = str(node.variableName().get()) if node.variableName().isDefined() else _ROW
        self.java.enter(self.scopes, label)
        if query is not None and query.plan is not None:
            for field in query.plan.schema().fields():
                self._declare(str(field.name()), field.dataType())
        yield from self.walk(node.body())
        self.java.exit(self.scopes, label)

    def _parts(self, node: Any, *, handlers: bool) -> Iterator[Analyzed]:
        for part in items(node.children()):
            yield from self.walk(part)
        for handler in items(node.handlers()) if handlers else ():
            yield from self.walk(handler.body())

    def _declare(self, name: str, data_type: Any) -> None:
        session: Any = self.spark._jsparkSession
        exact = session.sessionState().conf().caseSensitiveAnalysis()
        self.java.declare(self.scopes, name if exact else name.lower(), data_type)

    def _analyze(self, parsed: Any) -> Any | None:
        try:
            return self.java.analyze(self.scopes, self.spark._jsparkSession, parsed)
        except (PySparkException, Py4JError) as error:
            logger.debug("cannot analyze a statement of a script: %s", error)
            return None
