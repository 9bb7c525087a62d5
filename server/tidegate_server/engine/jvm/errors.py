"""Any exception of Spark, the JVM or Python turned into a ServerError."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from tidegate_server.core.errors import Code, ServerError, error
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
# What Delta's UPDATE and MERGE call the columns of what they write for the feed.
_FEED_COLUMN = re.compile(r"packed(Data|Cdc)\.")
_ENDING_SECONDS = 1.0
OUT_OF_MEMORY_EXITS = (3, 52)
"""Exit codes of a JVM without memory: by -XX:+ExitOnOutOfMemoryError, and by Spark's handler."""
_CANCELED = re.compile(r"cancelled|canceled|interrupted", re.IGNORECASE)
_WITHOUT_REASON = ("INTERNAL_ERROR", "_LEGACY_ERROR_TEMP_")
"""Beginnings of conditions that any other one says more than."""
_SCHEDULING = ("Job aborted due to stage failure", "Exception thrown in awaitResult")
"""Beginnings of texts that say where Spark met a problem rather than which."""
_UNKNOWN_CONDITION = "Cannot find main error class"
_LONG_NAME = re.compile(r"Mkdirs failed to create|File name too long")
_NAME_BYTES = 255
"""How long a name may be in the file systems of Linux."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """One exception in a chain of Java's causes; ``condition`` is empty where it names none."""

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

    The deepest cause that names an error condition is the message; what lies around it is the
    detail. Stack traces are in neither: log ``caught`` for them.

    :param canceled: whether the operation was canceled, whatever its threads died of.
    """
    if canceled:
        return error(Code.OPERATION_CANCELED, by="")
    if isinstance(caught, ServerError):
        return caught
    try:
        return _read(caught)
    except (Py4JError, ConnectionError) as problem:
        if _no_answer(problem):  # the JVM ended before it had told everything
            return _lost()
        raise


def _read(caught: BaseException) -> ServerError:
    """Return the error for what Spark, the JVM or Python raised."""
    causes = _causes(_java_exception(caught))
    known = _out_of_resources(caught, causes) or _too_long_name(causes)
    if known is not None:
        return known
    if causes and _is_stopping():
        return _lost()
    found = _telling(causes)
    if found is not None:
        return _of_cause(found, causes)
    if isinstance(caught, PySparkException) and caught.getCondition():
        return _of_condition(str(caught.getCondition()), caught.getSqlState(), str(caught))
    text = whole_message(causes[0].text) if causes else ""
    if causes and _CANCELED.search(text):
        return error(Code.OPERATION_CANCELED, by="")
    if _no_answer(caught):
        return _lost()
    reason = text or whole_message(str(caught)) or type(caught).__name__
    return error(Code.INTERNAL, reason=reason.removesuffix("."), detail=_around(None, causes[1:]))


def _is_stopping() -> bool:
    """Say whether the JVM is ending: whatever fails then was interrupted by that."""
    context: Any = SparkContext._active_spark_context
    return context is not None and bool(context._jsc.sc().isStopped())


def _lost() -> ServerError:
    """Return the error of a statement whose JVM is gone."""
    return _out_of_memory() if _jvm_exit() in OUT_OF_MEMORY_EXITS else error(Code.ENGINE_LOST)


def _no_answer(caught: BaseException) -> bool:
    """Say whether the JVM did not answer; Py4J swallows the error of some sockets."""
    if isinstance(caught, (Py4JNetworkError, ConnectionError)):
        return True
    return type(caught) is Py4JError and "Trace:" not in str(caught)


def condition_of(caught: BaseException) -> str | None:
    """Return the error condition of Spark or Delta with which something failed, or None."""
    if isinstance(caught, PySparkException) and caught.getCondition():
        return str(caught.getCondition())
    found = _telling(_causes(_java_exception(caught)))
    return None if found is None else found.condition


def exceeds_result_limit(caught: BaseException) -> bool:
    """Say whether Spark gave up because of ``spark.driver.maxResultSize``."""
    return "spark.driver.maxResultSize" in str(caught)


def _java_exception(caught: BaseException) -> Any:
    if not isinstance(caught, Py4JJavaError):
        return getattr(caught, "_origin", None)
    within = caught.__context__
    if _UNKNOWN_CONDITION in str(caught) and isinstance(within, Py4JJavaError):
        # PySpark looks for the texts of Delta's conditions among Spark's own and does not find
        # some of them; the exception it failed to read is the one to report.
        return within.java_exception
    return caught.java_exception


def _causes(thrown: Any) -> tuple[_Cause, ...]:
    """Return a Java exception and its causes, the outermost first."""
    found: list[_Cause] = []
    while thrown is not None and len(found) < _CAUSES:
        found.append(
            _Cause(
                thrown=thrown,
                condition=str(_call(thrown, "getCondition") or ""),
                sqlstate=str(_call(thrown, "getSqlState") or ""),
                text=str(_call(thrown, "getMessage") or ""),
            )
        )
        thrown = _call(thrown, "getCause")
    return tuple(found)


def _call(thrown: Any, getter: str) -> Any:
    """Call a getter; None if exceptions of this class have none.

    :raises Py4JError: if the JVM is gone.
    """
    try:
        return getattr(thrown, getter)()
    except Py4JError as problem:
        if _no_answer(problem):
            raise
        return None


def _telling(causes: Sequence[_Cause]) -> _Cause | None:
    """Return the cause that says best what went wrong; None if none names a condition.

    That is the deepest one. Of several of one family the outermost: it says what to do, and the
    others only in which part of it Spark met the problem.
    """
    named = [cause for cause in causes if cause.condition]
    telling = [each for each in named if not each.condition.startswith(_WITHOUT_REASON)] or named
    return next((each for each in telling if each.family == telling[-1].family), None)


def _of_cause(found: _Cause, causes: Sequence[_Cause]) -> ServerError:
    line, column = _position(found.thrown)
    around = _around(found, [each for each in causes if each is not found])
    return _of_condition(
        found.condition, found.sqlstate, found.text, line=line, column=column, detail=around
    )


def _around(found: _Cause | None, others: Iterable[_Cause]) -> str:
    """Return what the other exceptions of a chain say besides, a paragraph for each."""
    known = {whole_message(found.text)} if found is not None else {""}
    lines = []
    for each in others:
        text = whole_message(each.text)
        if text and text not in known and not text.startswith(_SCHEDULING):
            known.add(text)
            head = each.condition or str(each.thrown.getClass().getSimpleName())
            lines.append(f"[{head}] {text}")
    return "\n".join(lines)


def _out_of_resources(caught: BaseException, causes: Sequence[_Cause]) -> ServerError | None:
    texts = [str(caught), *(f"{each.thrown.toString()}" for each in causes)]
    if any("direct buffer memory" in text for text in texts):
        return ServerError(
            code="OUT_OF_MEMORY",
            sqlstate="53200",
            message="The engine ran out of direct memory.",
            hint="Raise engine.driver_memory, or -XX:MaxDirectMemorySize in "
            "engine.settings.spark.driver.extraJavaOptions.",
            detail="\n".join(texts),
        )
    if isinstance(caught, MemoryError) or any("java.lang.OutOfMemoryError" in t for t in texts):
        return _out_of_memory()
    if any("No space left on device" in text for text in texts):
        return ServerError(
            code="DISK_FULL",
            sqlstate="53100",
            message="The disk is full.",
            hint="Free space under the data directory.",
        )
    return None


def _out_of_memory() -> ServerError:
    return ServerError(
        code="OUT_OF_MEMORY",
        sqlstate="53200",
        message="The engine ran out of memory.",
        hint="Raise engine.driver_memory or make the query smaller.",
    )


def _jvm_exit() -> int | None:
    """Return the exit code of the JVM, waiting a moment for one that is just ending; None while it
    runs."""
    process: Any = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(_ENDING_SECONDS))
    except subprocess.TimeoutExpired:
        return None


def _too_long_name(causes: Sequence[_Cause]) -> ServerError | None:
    """Return the error of a partition whose directory cannot be named after its value."""
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


def _of_condition(
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
    """Return what to do about some of Spark's conditions that do not say so."""
    if condition == "REQUIRES_SINGLE_PART_NAMESPACE":
        return "A name of three parts begins with a catalog: SHOW CATALOGS lists those there are."
    if condition == "WRONG_COLUMN_DEFAULTS_FOR_DELTA_FEATURE_NOT_ENABLED":
        return (
            "Write TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported') in CREATE "
            "TABLE, or set it with ALTER TABLE ... SET TBLPROPERTIES if the table exists."
        )
    if condition == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION":
        return (
            "CREATE TABLE makes a Delta table unless it says otherwise: for a table over files "
            "that are there write USING and their format."
        )
    if condition == "FAILED_READ_FILE.FILE_NOT_EXIST":
        return (
            "The table was dropped, or its files were replaced, while the statement read it: run "
            "it again."
        )
    if condition == "DELTA_MERGE_UNRESOLVED_EXPRESSION":
        return (
            "UPDATE SET * and INSERT * take every column of the target from the source: list the "
            "columns to set, or write MERGE WITH SCHEMA EVOLUTION INTO."
        )
    twice = condition == "AMBIGUOUS_REFERENCE_TO_FIELDS" and _FEED_KIND.search(message)
    if condition in _FEED_NAMES or twice:
        return (
            "Delta's change feed has columns of these names: rename yours, or turn the feed off "
            "by the table property 'delta.enableChangeDataFeed' = 'false'."
        )
    if condition == "INVALID_ATTRIBUTE_NAME_SYNTAX" and _FEED_COLUMN.search(message):
        return (
            "Delta cannot write the change feed of a column with a backtick in its name: turn the "
            "feed off with ALTER TABLE ... SET TBLPROPERTIES ('delta.enableChangeDataFeed' = "
            "'false'), or rename the column."
        )
    if condition == "PARSE_SYNTAX_ERROR" and "'MATERIALIZED'" in message:
        return (
            "A statement for a materialized table stands alone, not in BEGIN ... END or "
            "EXECUTE IMMEDIATE; EXPLAIN takes CREATE, ALTER ... AS and REFRESH."
        )
    return ""


def _position(thrown: Any) -> tuple[int | None, int | None]:
    """Return line and column counted from 1, which only parse and analysis errors have."""
    line, start = _call(thrown, "line"), _call(thrown, "startPosition")
    if line is None or start is None or line.isEmpty() or start.isEmpty():
        return None, None
    return int(line.get()), int(start.get()) + 1
