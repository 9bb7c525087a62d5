"""Rewrites EXECUTE IMMEDIATE to run a literal text, with the values of USING inserted.

Delta's parser does not pass parameters on to Spark's, so USING has no effect (Delta 4.4). The
values are inserted here by Spark's own rules. This also ensures that the text that runs is the one
that was checked, even if a variable changes meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.statement_size import require_parsable, require_size
from tidegate_server.engine.jvm.session import MAX_STATEMENT_BYTES, MAX_STATEMENT_TOKENS
from tidegate_server.engine.query.references import (
    Edit,
    apply_edits,
    constant,
    constant_text,
    parse_statement,
    span_of,
)
from tidegate_server.engine.storage.jvm import items, java, kind

_TEXT = "of a text that is not constant"
_IMMEDIATE = "UnresolvedExecuteImmediate"
_WORD = re.compile("immediate", re.IGNORECASE)
_OPENING = re.compile(r"execute\b", re.IGNORECASE)


def expand_execute_immediate(spark: SparkSession, text: str) -> str:
    """Give every EXECUTE IMMEDIATE of a statement, also in scripts, a literal text and no USING.

    Everything else stays byte for byte.

    :raises ServerError: NOT_SUPPORTED for a text or value that is not constant;
        STATEMENT_TOO_LARGE.
    :raises pyspark.errors.PySparkException: if Spark cannot parse a statement, or if its parameters
        and values do not match.
    """
    return _expand(spark, text, script=False) if _WORD.search(text) else text


def statement_of(spark: SparkSession, node: Any, *, script: bool) -> str:
    """Return the statement that a parsed EXECUTE IMMEDIATE runs, with parameters replaced.

    :param script: whether it is part of a script.
    :raises ServerError: NOT_SUPPORTED if it is only known at run time; STATEMENT_TOO_LARGE.
    """
    text = constant_text(spark, node.sqlStmtStr(), script=script)
    if text is None:
        raise _not_supported(_TEXT, script, "Write the statement itself, or its text as a literal.")
    if node.args().size():
        _require_size(spark, text)
        text = _substitute(spark, text, node.args(), script=script)
    _require_size(spark, text)
    return text


def _require_size(spark: SparkSession, text: str) -> None:
    """Reject a text that is larger than a statement may be."""
    configuration: Any = spark.sparkContext._conf
    require_size(text, int(configuration.get(MAX_STATEMENT_BYTES, "0")))
    require_parsable(text, int(configuration.get(MAX_STATEMENT_TOKENS, "0")))


def _expand(spark: SparkSession, text: str, *, script: bool) -> str:
    found = _immediates(parse_statement(spark, text), script=script)
    return apply_edits(text, [_edit(spark, text, node, script=inside) for node, inside in found])


def _immediates(plan: Any, *, script: bool) -> Iterator[tuple[Any, bool]]:
    """Yield every EXECUTE IMMEDIATE of a parsed statement, and whether it is in a script."""
    match kind(plan):
        case found if found == _IMMEDIATE:
            yield plan, script
        case "SingleStatement":
            yield from _immediates(plan.parsedPlan(), script=True)
        case "CompoundBody":
            for inner in (*items(plan.children()), *(h.body() for h in items(plan.handlers()))):
                yield from _immediates(inner, script=True)
        case _:
            for inner in items(plan.children()):
                yield from _immediates(inner, script=script)


def _edit(spark: SparkSession, text: str, node: Any, *, script: bool) -> Edit:
    """Return the edit that rewrites one EXECUTE IMMEDIATE."""
    place = span_of(node)
    if place is None or _OPENING.match(text, place[0]) is None:
        # Spark substituted a setting before it parsed the text, so the span does not match.
        raise _not_supported(_TEXT, script, "Write it without ${...}.")
    inner = _expand(spark, statement_of(spark, node, script=script), script=script)
    into = ", ".join(str(variable.sql()) for variable in items(node.targetVariables()))
    statement = f"EXECUTE IMMEDIATE {_quote(inner)}{f' INTO {into}' if into else ''}"
    return Edit(*place, statement)


def _substitute(spark: SparkSession, text: str, arguments: Any, *, script: bool) -> str:
    """Replace the parameters of a text by the values of USING."""
    values, names = [], []
    for argument in items(arguments):
        aliased = kind(argument) == "Alias"
        expression = argument.child() if aliased else argument
        value = constant(spark, expression, script=script)
        if value is None:
            what = f"USING {expression.sql()}, whose value is not constant,"
            raise _not_supported(what, script, "Write the value itself into USING.")
        values.append(value)
        names.append(str(argument.name()) if aliased else "")
    jvm: Any = java(spark)
    parser = jvm.org.apache.spark.sql.catalyst.parser
    context = parser.HybridParameterContext(
        jvm.PythonUtils.toSeq(values), jvm.PythonUtils.toSeq(names)
    )
    return str(parser.ParameterHandler.substituteParameters(text, context)._1())


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _not_supported(what: str, script: bool, hint: str) -> ServerError:
    where = " inside a script" if script else ""
    return error(Code.NOT_SUPPORTED, what=f"EXECUTE IMMEDIATE {what}{where}", hint=hint)
