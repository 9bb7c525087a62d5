"""What changes whenever the rows of a table in another database may have changed."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.jvm import java, known_instance, scala_object

logger = logging.getLogger(__name__)

DATABASE: Final = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
"""Of Spark's catalogs of the tables of a database."""

_POSTGRESQL: Final = "jdbc:postgresql:"
_SEVERAL_HOSTS: Final = ","
_PLACEHOLDER: Final = re.compile(r"\{(table|schema|name)\}")
_NONE: Final = "none"
_MOST_ROWS: Final = 1000
_SECONDS: Final = 60

# Two statements with the same snapshot see the same rows, because whatever changes rows has a
# transaction id: https://www.postgresql.org/docs/current/functions-info.html. The rows of views,
# foreign tables and tables with policies also depend on something else, those of unlogged tables
# are lost with a crash, and those of Citus are on other servers.
_SNAPSHOT: Final = """
WITH RECURSIVE parts (oid) AS (
  SELECT {literal}::pg_catalog.regclass::pg_catalog.oid
  UNION SELECT inhrelid FROM pg_catalog.pg_inherits JOIN parts ON inhparent = parts.oid
)
SELECT pg_catalog.pg_current_snapshot(), system.system_identifier, checkpoint.timeline_id
FROM pg_catalog.pg_control_system() system, pg_catalog.pg_control_checkpoint() checkpoint
WHERE pg_catalog.version() ~ '^PostgreSQL [0-9.]+ '
  AND pg_catalog.version() !~* 'greenplum|yugabyte'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus')
  AND NOT EXISTS (
    SELECT FROM parts JOIN pg_catalog.pg_class USING (oid)
    WHERE relkind NOT IN ('r', 'p', 'm') OR relpersistence <> 'p' OR relrowsecurity)
"""


def database_facts(spark: SparkSession, name: TableName, table: Any) -> tuple[str, ...] | None:
    """Return texts that change with the rows of a table in another database.

    They are the rows of the query in the option ``versionQuery`` of its connection or catalog.
    PostgreSQL has a default.

    :param table: Spark's ``JDBCTable``.
    :return: None if there is no query, or it fails.
    """
    gate = known_instance("tidegate.Gate")
    version_query = None if gate is None else gate.catalogs().versionQuery(name.catalog)
    options = table.jdbcOptions()
    url, quoted = str(options.url()), str(options.tableOrQuery())
    if version_query is None:
        query = _snapshot_query(url, quoted)
    elif version_query.strip().lower() == _NONE:
        query = ""
    else:
        values = {"table": quoted, "schema": _literal(name.schema), "name": _literal(name.table)}
        query = _PLACEHOLDER.sub(lambda found: values[found[1]], version_query)
    if not query:
        return None
    try:
        rows = _ask(spark, options, query)
    except Py4JError as problem:
        logger.warning("the version query of %s failed: %s", name, _first_line(problem))
        return None
    return (url, quoted, query, *rows) if rows else None


def _snapshot_query(url: str, quoted: str) -> str:
    """Return the default query for a kind of database; empty if there is none.

    Of several hosts, one may answer the query and another one, which lags behind, be read.
    """
    if not url.startswith(_POSTGRESQL) or _SEVERAL_HOSTS in url.partition("?")[0]:
        return ""
    return _SNAPSHOT.format(literal=_literal(quoted))


def _literal(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def _ask(spark: SparkSession, options: Any, query: str) -> tuple[str, ...]:
    """Return the rows of a query, each as one text; empty if they are too many."""
    jvm = java(spark)
    dialects = scala_object(jvm, "org.apache.spark.sql.jdbc.JdbcDialects")
    connection = dialects.get(options.url()).createConnectionFactory(options).apply(-1)
    try:
        statement = connection.createStatement()
        statement.setQueryTimeout(_SECONDS)
        statement.setMaxRows(_MOST_ROWS + 1)
        found = statement.executeQuery(query)
        columns = range(1, found.getMetaData().getColumnCount() + 1)
        rows: list[str] = []
        while found.next():
            rows.append(repr([found.getString(column) for column in columns]))
        return tuple(rows) if len(rows) <= _MOST_ROWS else ()
    finally:
        connection.close()


def _first_line(problem: Py4JError) -> str:
    cause = getattr(problem, "java_exception", None)
    return str(problem if cause is None else cause.getMessage()).partition("\n")[0]
