"""Converts exceptions of Spark, the JVM and Python into a ServerError."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.sql.redact import redact
from tidegate_server.engine.jvm.messages import whole_message

_CAUSES = 20
_FEED_NAMES = frozenset(
    {
        "RESERVED_CDC_COLUMNS_ON_WRITE",
        "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS",
        "DELTA_TABLE_CONTAINS_RESERVED_CDC_COLUMNS",
    }
)
# A column that UPDATE and MERGE add for the feed.
_FEED_KIND = re.compile(r"`_change_type`", re.IGNORECASE)
# Prefix of the columns that Delta's UPDATE and MERGE write for the feed.
_FEED_COLUMN = re.compile(r"packed(Data|Cdc)\.")
_ENDING_SECONDS = 1.0
OUT_OF_MEMORY_EXITS = (3, 52)
"""Exit codes of a JVM out of memory: from -XX:+ExitOnOutOfMemoryError, and Spark's handler."""
_CANCELED = re.compile(r"cancelled|canceled|interrupted", re.IGNORECASE)
_WITHOUT_REASON = ("INTERNAL_ERROR", "_LEGACY_ERROR_TEMP_")
"""Prefixes of conditions that are less specific than any other."""
_SCHEDULING = ("Job aborted due to stage failure", "Exception thrown in awaitResult")
"""Prefixes of messages that say where Spark failed, not why."""
_UNAVAILABLE_CATALOG = "tidegate.catalog.unavailable:"
_NO_KAFKA = "Failed to find data source: kafka"
_FAILED_CATALOG = "tidegate.catalog.failed:"
_HEAP = "tidegate.heap:"
_UNKNOWN_CONDITION = "Cannot find main error class"
_LONG_NAME = re.compile(r"Mkdirs failed to create|File name too long")
_STACK_OVERFLOW = "java.lang.StackOverflowError"
_NAME_BYTES = 255
"""The longest file name in Linux file systems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """One exception in a chain of Java causes; ``condition`` is empty if it has none."""

    thrown: Any
    condition: str
    sqlstate: str
    text: str

    @property
    def family(self) -> str:
        """The condition without its subclass."""
        return self.condition.partition(".")[0]


def to_server_error(caught: BaseException, *, canceled: bool = False) -> ServerError:
    """Return the error that the gateway gets for ``caught``.

    The deepest cause with an error condition gives the message, the other causes give the detail.
    Neither contains stack traces: log ``caught`` for them. Passwords, for example in the URLs of
    databases, are replaced.

    :param canceled: whether the operation was canceled, whatever exception ended its threads.
    """
    if canceled:
        return error(Code.OPERATION_CANCELED, by="")
    if isinstance(caught, ServerError):
        return caught
    try:
        return _redacted(_translate(caught))
    except (Py4JError, ConnectionError) as second:
        if _is_jvm_gone(second):  # the JVM exited before the exception was read completely
            return _engine_lost()
        raise


def _redacted(found: ServerError) -> ServerError:
    found.message, found.detail = redact(found.message), redact(found.detail)
    found.args = (found.message,)
    return found


def _translate(caught: BaseException) -> ServerError:
    """Return the error for an exception of Spark, the JVM or Python."""
    causes = _causes(_java_exception(caught))
    known = (
        _catalog_error(causes)
        or _source_error(causes)
        or _own_error(causes)
        or _resource_error(caught, causes)
        or _partition_name_error(causes)
    )
    if known is not None:
        return known
    if causes and _is_stopping():
        return _engine_lost()
    found = _most_specific(causes)
    if found is not None:
        return _from_cause(found, causes)
    if isinstance(caught, PySparkException) and caught.getCondition():
        return _from_condition(str(caught.getCondition()), caught.getSqlState(), str(caught))
    text = whole_message(causes[0].text) if causes else ""
    if causes and _CANCELED.search(text):
        return error(Code.OPERATION_CANCELED, by="")
    if _is_jvm_gone(caught):
        return _engine_lost()
    reason = text or whole_message(str(caught)) or type(caught).__name__
    return error(Code.INTERNAL, reason=reason.removesuffix("."), detail=_detail(None, causes[1:]))


def _catalog_error(causes: Sequence[_Cause]) -> ServerError | None:
    """Return the error of a catalog that could not be loaded, or of one written in Python.

    ``Catalogs.java`` and ``PythonCatalogs.java`` throw them.
    """
    for cause in causes:
        if cause.text.startswith(_FAILED_CATALOG):
            said = cause.text.removeprefix(_FAILED_CATALOG).split("\x1f", 2)
            return _python_catalog_error(*said)
        if cause.text.startswith(_UNAVAILABLE_CATALOG):
            name, _, reason = cause.text.removeprefix(_UNAVAILABLE_CATALOG).partition("\x1f")
            return error(Code.CATALOG_UNAVAILABLE, name=name, reason=reason.strip().rstrip("."))
    return None


def _source_error(causes: Sequence[_Cause]) -> ServerError | None:
    """Return the error of Kafka's source where the engine has not loaded it."""
    if any(cause.text.startswith(_NO_KAFKA) for cause in causes):
        return error(Code.MT_STREAM_SOURCE, source="kafka")
    return None


def _own_error(causes: Sequence[_Cause]) -> ServerError | None:
    """Return the error of a limit or connector that Tidegate's own Java code has thrown."""
    for cause in causes:
        for marker, make in _OWN.items():
            if cause.text.startswith(marker):
                return make(*cause.text.removeprefix(marker).split("\x1f"))
    return None


def _unusable_registry(url: str, reason: str) -> ServerError:
    return error(Code.SCHEMA_REGISTRY, url=url, reason=reason.rstrip("."))


def _refused_insert(what: str, reason: str) -> ServerError:
    return error(Code.NOT_SUPPORTED, what=what, hint=f"{reason[0].upper()}{reason[1:]}.")


def _too_large_value(function: str, size: str, limit: str) -> ServerError:
    return error(Code.VALUE_TOO_LARGE, function=function, size=size, limit=limit)


def _too_large_plan(limit: str) -> ServerError:
    reason = f"with its views and common table expressions it has more than {limit} operators"
    return error(Code.STATEMENT_TOO_COMPLEX, reason=reason)


def _too_many_joins(limit: str) -> ServerError:
    reason = f"with its views, its joins are nested more than {limit} deep"
    return error(Code.STATEMENT_TOO_COMPLEX, reason=reason)


def _too_many_sets(limit: str) -> ServerError:
    reason = f"a GROUP BY has more than {limit} grouping sets"
    return error(Code.STATEMENT_TOO_COMPLEX, reason=reason)


_OWN: Final[Mapping[str, Callable[..., ServerError]]] = {
    "tidegate.registry:": _unusable_registry,
    "tidegate.refused:": _refused_insert,
    "tidegate.value:": _too_large_value,
    "tidegate.plan:": _too_large_plan,
    "tidegate.joins:": _too_many_joins,
    "tidegate.sets:": _too_many_sets,
}
"""The errors of ``Registry.java``, ``ConnectorSinks.java``, ``LargeValues.java`` and
``PlanSize.java``, by the markers that their messages begin with."""


def _python_catalog_error(name: str, kind: str, reason: str) -> ServerError:
    reason = reason.strip().rstrip(".")
    match kind:
        case "not offered":
            return error(Code.CATALOG_METHOD, name=name, method=reason)
        case "refused":
            return error(Code.CATALOG_REFUSED, name=name, reason=reason)
        case _:
            return error(Code.CATALOG_FAILED, name=name, reason=reason)


def _is_stopping() -> bool:
    """Say whether the JVM is shutting down, which interrupts everything that still runs."""
    context: Any = SparkContext._active_spark_context
    return context is not None and bool(context._jsc.sc().isStopped())


def _engine_lost() -> ServerError:
    """Return the error of a statement whose JVM has exited."""
    if _jvm_exit_code() in OUT_OF_MEMORY_EXITS:
        return _out_of_memory()
    return error(Code.ENGINE_LOST)


def _is_jvm_gone(caught: BaseException) -> bool:
    """Say whether the JVM did not answer; Py4J hides some socket errors in a plain Py4JError."""
    if isinstance(caught, (Py4JNetworkError, ConnectionError)):
        return True
    return type(caught) is Py4JError and "Trace:" not in str(caught)


def condition_of(caught: BaseException) -> str | None:
    """Return the error condition of an exception of Spark or Delta, or None."""
    if isinstance(caught, PySparkException) and caught.getCondition():
        return str(caught.getCondition())
    found = _most_specific(_causes(_java_exception(caught)))
    return None if found is None else found.condition


def exceeds_result_limit(caught: BaseException) -> bool:
    """Say whether Spark gave up because of ``spark.driver.maxResultSize``."""
    return "spark.driver.maxResultSize" in str(caught)


def _java_exception(caught: BaseException) -> Any:
    if not isinstance(caught, Py4JJavaError):
        return getattr(caught, "_origin", None)
    within = caught.__context__
    if _UNKNOWN_CONDITION in str(caught) and isinstance(within, Py4JJavaError):
        # PySpark looks up Delta's conditions among Spark's own and does not find some of them.
        # The exception it failed to read is the one to report.
        return within.java_exception
    return caught.java_exception


def _causes(thrown: Any) -> tuple[_Cause, ...]:
    """Return a Java exception and its causes, the outermost first."""
    found: list[_Cause] = []
    while thrown is not None and len(found) < _CAUSES:
        found.append(
            _Cause(
                thrown=thrown,
                condition=str(_call_getter(thrown, "getCondition") or ""),
                sqlstate=str(_call_getter(thrown, "getSqlState") or ""),
                text=str(_call_getter(thrown, "getMessage") or ""),
            )
        )
        thrown = _call_getter(thrown, "getCause")
    return tuple(found)


def _call_getter(thrown: Any, getter: str) -> Any:
    """Call a getter; None if this class has no such getter.

    :raises Py4JError: if the JVM is gone.
    """
    try:
        return getattr(thrown, getter)()
    except Py4JError as caught:
        if _is_jvm_gone(caught):
            raise
        return None


def _most_specific(causes: Sequence[_Cause]) -> _Cause | None:
    """Return the cause that best explains the failure; None if none has a condition.

    That is the deepest one. If several belong to its family, it is the outermost of them: that one
    says what to do, the others only where Spark failed.
    """
    named = [cause for cause in causes if cause.condition]
    specific = [each for each in named if not each.condition.startswith(_WITHOUT_REASON)] or named
    return next((each for each in specific if each.family == specific[-1].family), None)


def _from_cause(found: _Cause, causes: Sequence[_Cause]) -> ServerError:
    line, column = _position(found.thrown)
    around = _detail(found, [each for each in causes if each is not found])
    return _from_condition(
        found.condition, found.sqlstate, found.text, line=line, column=column, detail=around
    )


def _detail(found: _Cause | None, others: Iterable[_Cause]) -> str:
    """Return what the other exceptions of a chain add, one paragraph each."""
    known = {whole_message(found.text)} if found is not None else {""}
    lines = []
    for each in others:
        text = whole_message(each.text)
        if text and text not in known and not text.startswith(_SCHEDULING):
            known.add(text)
            head = each.condition or str(each.thrown.getClass().getSimpleName())
            lines.append(f"[{head}] {text}")
    return "\n".join(lines)


def _resource_error(caught: BaseException, causes: Sequence[_Cause]) -> ServerError | None:
    texts = [str(caught), *(f"{each.thrown.toString()}" for each in causes)]
    if any(_HEAP in text for text in texts):
        return error(
            Code.OUT_OF_MEMORY,
            what="The statement was ended because it filled the engine's memory",
            hint="Raise engine.driver_memory, or collect fewer values at once: aggregates that "
            "keep all values of a group, such as collect_list and percentile, need them in memory. "
            "So do the files of tables with hundreds of columns while they are written.",
        )
    if any("direct buffer memory" in text for text in texts):
        return error(
            Code.OUT_OF_MEMORY,
            what="The engine ran out of direct memory",
            hint="Raise engine.driver_memory, or -XX:MaxDirectMemorySize in "
            "engine.settings.spark.driver.extraJavaOptions.",
            detail="\n".join(texts),
        )
    if isinstance(caught, MemoryError) or any("java.lang.OutOfMemoryError" in t for t in texts):
        return _out_of_memory()
    if isinstance(caught, RecursionError) or any(_STACK_OVERFLOW in text for text in texts):
        reason = "it is nested too deeply, or combines too many expressions or queries"
        return error(Code.STATEMENT_TOO_COMPLEX, reason=reason)
    if any("No space left on device" in text for text in texts):
        return error(Code.DISK_FULL)
    return None


def _out_of_memory() -> ServerError:
    return error(
        Code.OUT_OF_MEMORY,
        what="The engine ran out of memory",
        hint="Raise engine.driver_memory or make the query smaller.",
    )


def _jvm_exit_code() -> int | None:
    """Return the JVM's exit code, or None if it still runs after a short wait."""
    process: Any = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(_ENDING_SECONDS))
    except subprocess.TimeoutExpired:
        return None


def _partition_name_error(causes: Sequence[_Cause]) -> ServerError | None:
    """Return the error of a partition value that is too long for a directory name."""
    for each in causes:
        if each.condition or not _LONG_NAME.search(each.text):
            continue
        for part in each.text.split("/"):
            name, equals, _ = part.partition("=")
            size = len(part.partition(" (exists=")[0].encode())
            if equals and size > _NAME_BYTES:
                return error(
                    Code.PARTITION_VALUE_TOO_LONG, name=name, found=size, limit=_NAME_BYTES
                )
    return None


def _from_condition(
    condition: str,
    sqlstate: str | None,
    text: str,
    *,
    line: int | None = None,
    column: int | None = None,
    detail: str = "",
) -> ServerError:
    return ServerError(
        code=condition,
        sqlstate=sqlstate or "XX000",
        message=whole_message(text) or "no message",
        hint=_hint(condition, text),
        line=line,
        column=column,
        detail=detail,
    )


def _hint(condition: str, message: str) -> str:
    """Return the hint for Spark's conditions whose message has none."""
    if condition == "REQUIRES_SINGLE_PART_NAMESPACE":
        return "A name of three parts begins with a catalog: SHOW CATALOGS lists the catalogs."
    if condition == "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED":
        return (
            "Write TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported') in CREATE "
            "TABLE, or set it with ALTER TABLE ... SET TBLPROPERTIES if the table exists."
        )
    if condition == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION":
        return (
            "CREATE TABLE creates a Delta table by default: for a table over existing files, add "
            "USING and their format."
        )
    if condition == "FAILED_READ_FILE.FILE_NOT_EXIST":
        return (
            "The table was dropped, or its files were replaced, while the statement read it: "
            "retry the statement."
        )
    if condition == "DELTA_MERGE_UNRESOLVED_EXPRESSION":
        return (
            "UPDATE SET * and INSERT * need every column of the target in the source: list the "
            "columns to set, or write MERGE WITH SCHEMA EVOLUTION INTO."
        )
    ambiguous = condition == "AMBIGUOUS_REFERENCE_TO_FIELDS" and _FEED_KIND.search(message)
    if condition in _FEED_NAMES or ambiguous:
        return (
            "Delta's change feed uses these column names: rename your columns, or turn the feed "
            "off with the table property 'delta.enableChangeDataFeed' = 'false'."
        )
    if condition == "INVALID_ATTRIBUTE_NAME_SYNTAX" and _FEED_COLUMN.search(message):
        return (
            "Delta cannot write the change feed of a column with a backtick in its name: turn the "
            "feed off with ALTER TABLE ... SET TBLPROPERTIES ('delta.enableChangeDataFeed' = "
            "'false'), or rename the column."
        )
    if condition == "PARSE_SYNTAX_ERROR" and "'MATERIALIZED'" in message:
        return (
            "Statements on materialized tables are not allowed in BEGIN ... END or EXECUTE "
            "IMMEDIATE; EXPLAIN accepts CREATE, ALTER ... AS and REFRESH."
        )
    return ""


def _position(thrown: Any) -> tuple[int | None, int | None]:
    """Return line and column, counted from 1; only parse and analysis errors have them."""
    line, start = _call_getter(thrown, "line"), _call_getter(thrown, "startPosition")
    if line is None or start is None or line.isEmpty() or start.isEmpty():
        return None, None
    return int(line.get()), int(start.get()) + 1
