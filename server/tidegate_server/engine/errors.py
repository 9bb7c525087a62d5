"""Any exception of Spark, the JVM or Python turned into a ServerError."""

from __future__ import annotations

import re
import traceback
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from tidegate_server.errors import Code, ServerError, error

_PREFIX = re.compile(r"^\s*\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE:\s*\w{5}.*$", re.DOTALL)
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
_CANCELED = re.compile(r"cancelled|canceled|interrupted", re.IGNORECASE)


def to_server_error(caught: BaseException, *, canceled: bool = False) -> ServerError:
    """Return what the gateway is told about ``caught``.

    :param canceled: whether the operation was canceled, whatever its threads died of.
    """
    detail = "".join(traceback.format_exception(caught))
    if canceled:
        return error(Code.OPERATION_CANCELED, by="", detail=detail)
    if isinstance(caught, ServerError):
        return caught
    thrown = _java_exception(caught)
    resources = _out_of_resources(caught, thrown, detail)
    if resources is not None:
        return resources
    if isinstance(caught, PySparkException) and caught.getCondition():
        return _of_condition(
            str(caught.getCondition()), caught.getSqlState(), str(caught), thrown, detail
        )
    found = _first_condition(thrown)
    if found is not None:
        return _of_condition(found.getCondition(), found.getSqlState(), "", found, detail)
    text = _first_line(str(thrown.getMessage() or "")) if thrown is not None else ""
    if thrown is not None and _CANCELED.search(text):
        return error(Code.OPERATION_CANCELED, by="", detail=detail)
    if isinstance(caught, (Py4JNetworkError, ConnectionError)) or _no_answer(caught):
        return error(Code.ENGINE_LOST, detail=detail)
    return error(Code.INTERNAL, reason=text or _first_line(str(caught)), detail=detail)


def _no_answer(caught: BaseException) -> bool:
    """Say whether Py4J, which swallows the error of its socket, got no answer from the JVM."""
    return type(caught) is Py4JError and "Trace:" not in str(caught)


def condition_of(caught: BaseException) -> str | None:
    """Return the error condition of Spark or Delta with which something failed, or None."""
    if isinstance(caught, PySparkException) and caught.getCondition():
        return str(caught.getCondition())
    found = _first_condition(_java_exception(caught))
    return None if found is None else str(found.getCondition())


def exceeds_result_limit(caught: BaseException) -> bool:
    """Say whether Spark gave up because of ``spark.driver.maxResultSize``."""
    return "spark.driver.maxResultSize" in str(caught)


def _java_exception(caught: BaseException) -> Any:
    if isinstance(caught, Py4JJavaError):
        return caught.java_exception
    return getattr(caught, "_origin", None)


def _out_of_resources(caught: BaseException, thrown: Any, detail: str) -> ServerError | None:
    text = detail if thrown is None else f"{thrown.toString()}\n{detail}"
    if isinstance(caught, MemoryError) or "java.lang.OutOfMemoryError" in text:
        return ServerError(
            code="OUT_OF_MEMORY",
            sqlstate="53200",
            message="The engine ran out of memory.",
            hint="Raise engine.driver_memory or make the query smaller.",
            detail=detail,
        )
    if "No space left on device" in text:
        return ServerError(
            code="DISK_FULL",
            sqlstate="53100",
            message="The disk is full.",
            hint="Free space under the data directory.",
            detail=detail,
        )
    return None


def _first_condition(thrown: Any) -> Any:
    """Return the first cause of ``thrown`` that carries a Spark error condition, or None."""
    for _ in range(_CAUSES):
        if thrown is None:
            return None
        getter = getattr(thrown, "getCondition", None)
        if getter is not None and _call(getter):
            return thrown
        thrown = thrown.getCause()
    return None


def _call(getter: Any) -> Any:
    """Call a getter that older Java exceptions do not have."""
    try:
        return getter()
    except Py4JError:
        return None


def _of_condition(
    condition: str, sqlstate: str | None, text: str, thrown: Any, detail: str
) -> ServerError:
    message = str(thrown.getMessage()) if thrown is not None else text
    line, column = _position(thrown)
    return ServerError(
        code=condition,
        sqlstate=sqlstate or "XX000",
        message=_first_line(message),
        hint=_hint(condition, message),
        line=line,
        column=column,
        detail=detail,
    )


def _hint(condition: str, message: str) -> str:
    """Return what to do about some of Spark's conditions that do not say so."""
    if condition == "REQUIRES_SINGLE_PART_NAMESPACE":
        return "A name of three parts begins with a catalog: SHOW CATALOGS lists those there are."
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
    if thrown is None or not hasattr(thrown, "startPosition"):
        return None, None
    line, start = _call(thrown.line), _call(thrown.startPosition)
    if line is None or start is None or line.isEmpty() or start.isEmpty():
        return None, None
    return int(line.get()), int(start.get()) + 1


def _first_line(message: str) -> str:
    text = _PREFIX.sub("", message.strip())
    line = text.split("\n", 1)[0]
    return _SQLSTATE.sub("", line).strip() or "no message"
