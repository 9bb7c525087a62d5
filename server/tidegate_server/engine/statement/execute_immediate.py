"""EXECUTE IMMEDIATE as the statement that it stands for.

Delta's parser hands no parameters on to Spark's, so that USING never reaches the statement (Delta
4.4). The values are put into it here, by Spark's own rules. What is run is then also the very text
that was judged before, whatever becomes of a variable meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.engine.query.references import (
    Edit,
    apply_edits,
    constant,
    constant_text,
    parse_statement,
    span_of,
)
from tidegate_server.engine.storage.jvm import items, java, kind

_TEXT = "of a statement that is not known beforehand"
_IMMEDIATE = "UnresolvedExecuteImmediate"
_WORD = re.compile("immediate", re.IGNORECASE)
_OPENING = re.compile(r"execute\b", re.IGNORECASE)


def written_out(spark: SparkSession, text: str) -> str:
    """Return a statement whose EXECUTE IMMEDIATEs, also those in scripts, have literal texts and
    no USING; everything else stays byte for byte.

    :raises ServerError: NOT_SUPPORTED for a text or a value that is not known beforehand.
    :raises pyspark.errors.PySparkException: if Spark cannot parse a statement, or its parameters
        and the values do not fit together.
    """
    return _written_out(spark, text, script=False) if _WORD.search(text) else text


def statement_of(spark: SparkSession, node: Any, *, script: bool) -> str:
    """Return the statement that a parsed EXECUTE IMMEDIATE runs, its parameters replaced.

    :param script: whether it stands in a script.
    :raises ServerError: NOT_SUPPORTED if that is only known while it runs.
    """
    text = constant_text(spark, node.sqlStmtStr(), script=script)
    if text is None:
        raise _unknown(_TEXT, script, "Write the statement itself, or its text as a literal.")
    return _substituted(spark, text, node.args(), script=script) if node.args().size() else text


def _written_out(spark: SparkSession, text: str, *, script: bool) -> str:
    found = _immediates(parse_statement(spark, text), script=script)
    return apply_edits(text, [_edit(spark, text, node, script=inside) for node, inside in found])


def _immediates(plan: Any, *, script: bool) -> Iterator[tuple[Any, bool]]:
    """Yield every EXECUTE IMMEDIATE of a parsed statement, and whether a script surrounds it."""
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
    """Return the edit that writes one EXECUTE IMMEDIATE out."""
    place = span_of(node)
    if place is None or _OPENING.match(text, place[0]) is None:
        # A setting was replaced in the text before Spark parsed it.
        raise _unknown(_TEXT, script, "Write it without ${...}.")
    inner = _written_out(spark, statement_of(spark, node, script=script), script=script)
    into = ", ".join(str(variable.sql()) for variable in items(node.targetVariables()))
    statement = f"EXECUTE IMMEDIATE {_quoted(inner)}{f' INTO {into}' if into else ''}"
    return Edit(*place, statement)


def _substituted(spark: SparkSession, text: str, arguments: Any, *, script: bool) -> str:
    """Return a text with the values of USING in the place of its parameters."""
    values, names = [], []
    for argument in items(arguments):
        aliased = kind(argument) == "Alias"
        expression = argument.child() if aliased else argument
        value = constant(spark, expression, script=script)
        if value is None:
            what = f"USING {expression.sql()}, whose value is not known beforehand,"
            raise _unknown(what, script, "Write the value itself into USING.")
        values.append(value)
        names.append(str(argument.name()) if aliased else "")
    jvm: Any = java(spark)
    parser = jvm.org.apache.spark.sql.catalyst.parser
    context = parser.HybridParameterContext(
        jvm.PythonUtils.toSeq(values), jvm.PythonUtils.toSeq(names)
    )
    return str(parser.ParameterHandler.substituteParameters(text, context)._1())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _unknown(what: str, script: bool, hint: str) -> ServerError:
    where = " inside a script" if script else ""
    return error(Code.NOT_SUPPORTED, what=f"EXECUTE IMMEDIATE {what}{where}", hint=hint)
