"""Drives Flink's JDBC driver inside this process's own JVM.

Standard input is a JSON object with ``jars``, a ``url`` and ``steps``, which are carried out on one
connection; the last line of standard output is the JSON array of their answers.

A step is ``[name, argument...]`` with a name of :data:`_STEPS`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import jpype


def main() -> None:
    """Carry out the steps of standard input."""
    asked = json.load(sys.stdin)
    jpype.startJVM("-XX:TieredStopAtLevel=1", classpath=asked["jars"], convertStrings=True)
    jpype.JClass("org.apache.flink.table.jdbc.FlinkDriver")
    connection = jpype.JClass("java.sql.DriverManager").getConnection(asked["url"])
    answers = [_step(connection, *step) for step in asked["steps"]]
    connection.close()
    sys.stdout.write(f"\n{json.dumps(answers)}\n")
    sys.stdout.flush()
    os._exit(0)  # the driver's threads would keep the JVM up


def _step(connection: Any, name: str, *arguments: Any) -> Any:
    try:
        return _STEPS[name](connection, *arguments)
    except jpype.JException as failure:
        reason = failure
        while reason.getCause() is not None:
            reason = reason.getCause()
        return {"error": str(reason.getMessage()), "class": type(reason).__name__}


def _query(connection: Any, sql: str) -> list[list[Any]]:
    return _rows(connection.createStatement().executeQuery(sql))


def _execute(connection: Any, sql: str) -> Any:
    """Return the rows of a statement that has some, else False."""
    statement = connection.createStatement()
    return _rows(statement.getResultSet()) if statement.execute(sql) else False


def _types(connection: Any, sql: str) -> list[list[str]]:
    """Return the columns of a query by their labels and types."""
    described = connection.createStatement().executeQuery(sql).getMetaData()
    count = described.getColumnCount()
    return [
        [str(described.getColumnLabel(i)), str(described.getColumnTypeName(i))]
        for i in range(1, count + 1)
    ]


def _count(connection: Any, sql: str) -> list[int]:
    """Return the number of rows and of distinct first columns."""
    result = connection.createStatement().executeQuery(sql)
    seen = []
    while result.next():
        seen.append(int(result.getLong(1)))
    return [len(seen), len(set(seen))]


def _metadata(connection: Any, method: str, *arguments: Any) -> Any:
    return _rows(getattr(connection.getMetaData(), method)(*arguments))


def _call(connection: Any, method: str, *arguments: Any) -> Any:
    answer = getattr(connection, method)(*arguments)
    return answer if isinstance(answer, (str, int, bool, type(None))) else str(answer)


def _close_while_reading(connection: Any, sql: str) -> float:
    """Close a statement from another thread during its first rows; return the seconds it took."""
    statement = connection.createStatement()
    result = statement.executeQuery(sql)
    closing = threading.Timer(0.2, statement.close)
    began = time.monotonic()
    closing.start()
    closing.join()
    assert result.isClosed()
    return time.monotonic() - began


def _rows(result: Any) -> list[list[Any]]:
    columns = range(1, result.getMetaData().getColumnCount() + 1)
    rows = []
    while result.next():
        rows.append([_plain(result.getObject(i)) for i in columns])
    return rows


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    name = str(value.getClass().getName()) if hasattr(value, "getClass") else ""
    match name:
        case "java.lang.Boolean":
            return bool(value)
        case "java.lang.Float" | "java.lang.Double":
            return float(value)
        case "java.lang.Byte" | "java.lang.Short" | "java.lang.Integer" | "java.lang.Long":
            return int(value)
    if isinstance(value, jpype.JArray):
        return bytes(value).hex()
    return str(value.toString())


_STEPS = {
    "query": _query,
    "execute": _execute,
    "types": _types,
    "count": _count,
    "metadata": _metadata,
    "call": _call,
    "close": _close_while_reading,
}

if __name__ == "__main__":
    main()
