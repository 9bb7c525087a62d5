"""Drives a JDBC driver inside this process's own JVM.

The first line of standard input is a JSON array of jars. Each further line is a JSON object with a
``url`` and ``steps``, which are carried out on a connection of their own; one line of JSON answers.

A step is ``[name, method, argument...]``: a method of DatabaseMetaData, or ``query``, ``update``,
``batch`` with a SQL text, or a name of :data:`_STEPS`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import jpype


def main() -> None:
    """Answer each line of standard input."""
    jars = json.loads(sys.stdin.readline())
    jpype.startJVM("-XX:TieredStopAtLevel=1", classpath=jars, convertStrings=True)
    jpype.JClass("org.apache.hive.jdbc.HiveDriver")
    for line in sys.stdin:
        asked = json.loads(line)
        connection = jpype.JClass("java.sql.DriverManager").getConnection(asked["url"])
        answers = {name: _step(connection, *rest) for name, *rest in asked["steps"]}
        connection.close()
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()
    # The fetch threads of Hive 4.1's driver outlive their connection and would keep the JVM up.
    os._exit(0)


def _step(connection: Any, method: str, *arguments: Any) -> Any:
    try:
        if method in _STEPS:
            return _STEPS[method](connection, *arguments)
        answer = getattr(connection.getMetaData(), method)(*arguments)
        return _rows(answer) if hasattr(answer, "getMetaData") else _plain(answer)
    except jpype.JException as failure:
        if not hasattr(failure, "getSQLState"):
            return {"error": str(failure), "state": None, "code": None}
        state, code = failure.getSQLState(), int(failure.getErrorCode())
        return {"error": str(failure.getMessage()), "state": state, "code": code}


def _query(connection: Any, sql: str) -> list[list[Any]]:
    return _rows(connection.createStatement().executeQuery(sql))


def _count(connection: Any, sql: str) -> list[int]:
    """Return the number of rows and of distinct first columns: what parallel fetches may spoil."""
    result = connection.createStatement().executeQuery(sql)
    seen = []
    while result.next():
        seen.append(int(result.getLong(1)))
    return [len(seen), len(set(seen)), int(seen == sorted(seen))]


def _update(connection: Any, sql: str) -> int:
    return int(connection.createStatement().executeUpdate(sql))


def _query_prepared(connection: Any, sql: str, *values: Any) -> list[list[Any]]:
    statement = connection.prepareStatement(sql)
    for place, value in enumerate(values, 1):
        if isinstance(value, int):
            statement.setInt(place, value)
        else:
            statement.setString(place, value)
    return _rows(statement.executeQuery())


def _types(connection: Any, sql: str) -> list[list[Any]]:
    described = connection.createStatement().executeQuery(sql).getMetaData()
    return [
        [
            described.getColumnLabel(i),
            described.getColumnTypeName(i),
            int(described.getColumnType(i)),
        ]
        for i in range(1, described.getColumnCount() + 1)
    ]


def _log(connection: Any, sql: str) -> list[str]:
    """Return the log of a statement, read once its rows are."""
    statement = connection.createStatement()
    if statement.execute(sql):
        _rows(statement.getResultSet())
    return [str(line) for line in statement.getQueryLog()]


def _results(connection: Any, sql: str) -> list[list[list[Any]]]:
    """Return all results of a statement, read in the loop that JDBC describes."""
    statement = connection.createStatement()
    found, has_rows = [], bool(statement.execute(sql))
    while has_rows or int(statement.getUpdateCount()) != -1:
        assert len(found) < 10, "the results do not end"
        found.append(_rows(statement.getResultSet()) if has_rows else [])
        has_rows = bool(statement.getMoreResults())
    return found


def _query_id(connection: Any, sql: str) -> str | None:
    statement = connection.createStatement()
    statement.executeQuery(sql)
    return _plain(statement.getQueryId())


def _client_info(connection: Any, key: str, value: str) -> str | None:
    connection.setClientInfo(key, value)
    return _plain(connection.getClientInfo(key))


def _schema(connection: Any, schema: str) -> str | None:
    connection.setSchema(schema)
    return _plain(connection.getSchema())


def _valid(connection: Any) -> bool:
    return bool(connection.isValid(10))


_STEPS = {
    "query": _query,
    "count": _count,
    "update": _update,
    "prepared": _query_prepared,
    "types": _types,
    "log": _log,
    "results": _results,
    "query_id": _query_id,
    "client_info": _client_info,
    "schema": _schema,
    "valid": _valid,
}


def _rows(result: Any) -> list[list[Any]]:
    """Return the column labels, then the rows as text."""
    width = result.getMetaData().getColumnCount()
    rows = [[str(result.getMetaData().getColumnLabel(i)) for i in range(1, width + 1)]]
    while result.next():
        rows.append([_plain(result.getString(i)) for i in range(1, width + 1)])
    return rows


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


if __name__ == "__main__":
    main()
