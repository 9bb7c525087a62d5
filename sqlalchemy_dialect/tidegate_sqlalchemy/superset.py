"""The engine spec of Superset for ``tidegate://`` databases, found by its entry point."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib import parse

from sqlalchemy import Column, types
from superset.common.db_query_status import QueryStatus
from superset.constants import TimeGrain
from superset.db_engine_specs.base import BaseEngineSpec
from superset.extensions import db
from superset.sql.parse import SQLGLOT_DIALECTS, SQLScript, Table

from tidegate_sqlalchemy.superset_sql import ENGINE, TidegateSQL, TidegateStatement

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

SQLGLOT_DIALECTS[ENGINE] = TidegateSQL
SQLScript.special_engines[ENGINE] = TidegateStatement

_AT = "CAST({col} AS TIMESTAMP)"
_STEPS = {
    TimeGrain.FIVE_SECONDS: ("MINUTE", "SECOND", 5),
    TimeGrain.THIRTY_SECONDS: ("MINUTE", "SECOND", 30),
    TimeGrain.FIVE_MINUTES: ("HOUR", "MINUTE", 5),
    TimeGrain.TEN_MINUTES: ("HOUR", "MINUTE", 10),
    TimeGrain.FIFTEEN_MINUTES: ("HOUR", "MINUTE", 15),
    TimeGrain.HALF_HOUR: ("HOUR", "MINUTE", 30),
}
_UNITS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


def _step(whole: str, unit: str, size: int) -> str:
    steps = f"CAST({unit.lower()}({_AT}) AS INT) DIV {size} * {size}"
    return f"date_trunc('{whole}', {{col}}) + INTERVAL '1' {unit} * ({steps})"


class TidegateEngineSpec(BaseEngineSpec):  # type: ignore[misc]  # Superset has no types here
    """Spark SQL over Tidegate: progress, cancel, latest partitions, time grains."""

    engine = ENGINE
    engine_name = "Tidegate"
    drivers = {"tidegate": "The driver of Tidegate"}
    default_driver = "tidegate"
    sqlalchemy_uri_placeholder = "tidegate://user:password@host:10000/schema"

    supports_dynamic_schema = True
    supports_multivalues_insert = True
    has_query_id_before_execute = False
    max_column_name_length = 255

    _time_grain_expressions = {
        None: "{col}",
        **{getattr(TimeGrain, unit): f"date_trunc('{unit}', {{col}})" for unit in _UNITS},
        **{grain: _step(*step) for grain, step in _STEPS.items()},
        TimeGrain.WEEK_STARTING_MONDAY: "date_trunc('WEEK', {col})",
        TimeGrain.WEEK_ENDING_SUNDAY: "date_trunc('WEEK', {col}) + INTERVAL '6' DAY",
        TimeGrain.WEEK_STARTING_SUNDAY: (
            f"date_trunc('WEEK', {_AT} + INTERVAL '1' DAY) - INTERVAL '1' DAY"
        ),
        TimeGrain.WEEK_ENDING_SATURDAY: (
            f"date_trunc('WEEK', {_AT} + INTERVAL '1' DAY) + INTERVAL '5' DAY"
        ),
    }

    @classmethod
    def epoch_to_dttm(cls) -> str:
        """Return seconds since 1970 as a timestamp."""
        return "timestamp_seconds({col})"

    @classmethod
    def epoch_ms_to_dttm(cls) -> str:
        """Return milliseconds since 1970 as a timestamp."""
        return "timestamp_millis({col})"

    @classmethod
    def convert_dttm(
        cls, target_type: str, dttm: datetime, db_extra: dict[str, Any] | None = None
    ) -> str | None:
        """Return the literal of a moment, None for a column of another type."""
        kind = cls.get_sqla_column_type(target_type)
        if isinstance(kind, types.Date):
            return f"DATE '{dttm.date().isoformat()}'"
        if isinstance(kind, types.DateTime):
            return f"TIMESTAMP '{dttm.isoformat(sep=' ', timespec='microseconds')}'"
        return None

    @classmethod
    def adjust_engine_params(
        cls,
        uri: URL,
        connect_args: dict[str, Any],
        catalog: str | None = None,
        schema: str | None = None,
    ) -> tuple[URL, dict[str, Any]]:
        """Connect to the schema that was chosen."""
        if schema:
            uri = uri.set(database=parse.quote(schema, safe=""))
        return uri, connect_args

    @classmethod
    def get_schema_from_engine_params(
        cls, sqlalchemy_uri: URL, connect_args: dict[str, Any]
    ) -> str | None:
        """Return the schema of a URL."""
        found = sqlalchemy_uri.database
        return parse.unquote(found) if found else None

    @classmethod
    def impersonate_user(
        cls,
        database: Any,
        username: str | None,
        user_token: str | None,
        url: URL,
        engine_kwargs: dict[str, Any],
    ) -> tuple[URL, dict[str, Any]]:
        """Log in as the database's user and impersonate Superset's user."""
        if username is not None:
            url = url.update_query_dict({"hive.server2.proxy.user": username})
        return url, engine_kwargs

    @classmethod
    def execute(cls, cursor: Any, query: str, database: Any, **kwargs: Any) -> None:
        """Run a statement; with ``async_`` start it, and ``handle_cursor`` follows it."""
        if not kwargs.get("async_"):
            super().execute(cursor, query, database)
            return
        try:
            cursor.execute_async(query)
        except Exception as error:
            raise cls.get_dbapi_mapped_exception(error) from error

    @classmethod
    def handle_cursor(cls, cursor: Any, query: Any) -> None:
        """Follow a statement to its end: progress, the page of its job, a stop."""
        while not (status := cursor.poll()).finished:
            db.session.refresh(query)
            if query.status == QueryStatus.STOPPED:
                cursor.cancel()
                break
            changed = cls._note_progress(query, status.progress)
            if cls._note_job(query, cursor.fetch_logs()) or changed:
                db.session.commit()
            time.sleep(0.1)  # the server holds its reply while there is nothing new

    @classmethod
    def _note_progress(cls, query: Any, progress: float | None) -> bool:
        percent = int(100 * (progress or 0))
        if percent <= query.progress:
            return False
        query.progress = percent
        return True

    @classmethod
    def _note_job(cls, query: Any, lines: list[str]) -> bool:
        pages = [line.partition("Tracking URL = ")[2] for line in lines]
        page = next((page for page in pages if page), None)
        if page is None or query.tracking_url_raw:
            return False
        query.tracking_url_raw = page
        return True

    @classmethod
    def get_cancel_query_id(cls, cursor: Any, query: Any) -> str | None:
        """Return the handle of the operation, with which any connection can cancel it."""
        handle: str | None = cursor.operation_handle
        return handle

    @classmethod
    def cancel_query(cls, cursor: Any, query: Any, cancel_query_id: str) -> bool:
        """Cancel a statement by its handle; False if the server no longer has it."""
        connection = cursor.connection
        try:
            connection.cancel_operation(cancel_query_id)
        except connection.Error:
            return False
        return True

    @classmethod
    def fetch_data(cls, cursor: Any, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return at most ``limit`` rows, none for a statement that has no result."""
        if cursor.description is None:
            return []
        try:
            return list(cursor.fetchmany(limit) if limit else cursor.fetchall())
        except Exception as error:
            raise cls.get_dbapi_mapped_exception(error) from error

    @classmethod
    def get_datatype(cls, type_code: Any) -> str | None:
        """Return the name of a type."""
        return str(type_code).upper() or None

    @classmethod
    def _extract_error_message(cls, ex: Exception) -> str:
        cause = getattr(ex, "orig", None) or ex
        hint = getattr(cause, "hint", None)
        return f"{cause}\nHint: {hint}" if hint and hint not in str(cause) else str(cause)

    @classmethod
    def get_function_names(cls, database: Any) -> list[str]:
        """Return the functions that SQL Lab completes."""
        return [str(name) for name in database.get_df("SHOW FUNCTIONS").iloc[:, 0]]

    @classmethod
    def latest_partition(
        cls, database: Any, table: Table, show_first: bool = False, indexes: Any = None
    ) -> tuple[list[str], list[Any] | None]:
        """Return the columns of a table's partitions and the values of the last one.

        The values are None if the table has no rows, or no partitions.
        """
        columns = cls._partition_columns(database, table)
        if not columns:
            return [], None
        frame = database.get_df(cls._latest_partition_query(table, columns), schema=table.schema)
        return columns, None if frame.empty else list(frame.iloc[0])

    @classmethod
    def where_latest_partition(
        cls, database: Any, table: Table, query: Any, columns: list[Any] | None = None
    ) -> Any | None:
        """Bound a query to a table's last partition; None if the table has no partitions."""
        names, values = cls.latest_partition(database, table)
        if not values or columns is None:
            return None
        types_of = {column.get("column_name", column.get("name")): column for column in columns}
        for name, value in zip(names, values, strict=True):
            if name in types_of:
                query = query.where(Column(name, types_of[name].get("type")) == value)
        return query

    @classmethod
    def get_extra_table_metadata(cls, database: Any, table: Table) -> dict[str, Any]:
        """Return the partitions that SQL Lab shows beside a table's columns."""
        columns, values = cls.latest_partition(database, table)
        if not columns:
            return {}
        latest = dict(zip(columns, values or [None] * len(columns), strict=True))
        query = cls._latest_partition_query(table, columns)
        return {"partitions": {"cols": columns, "latest": latest, "partitionQuery": query}}

    @classmethod
    def _partition_columns(cls, database: Any, table: Table) -> list[str]:
        rows = database.get_df(f"DESCRIBE TABLE {_name(table)}", schema=table.schema)
        names = [str(name) for name in rows.iloc[:, 0]]
        if "# Partition Information" not in names:
            return []
        begin = names.index("# Partition Information") + 2
        return [name for name in names[begin:] if name and not name.startswith("#")]

    @classmethod
    def _latest_partition_query(cls, table: Table, columns: list[str]) -> str:
        listed = ", ".join(_quote(column) for column in columns)
        order = ", ".join(f"{_quote(column)} DESC NULLS LAST" for column in columns)
        return f"SELECT {listed} FROM {_name(table)} ORDER BY {order} LIMIT 1"


def _name(table: Table) -> str:
    parts = (table.catalog, table.schema, table.table)
    return ".".join(_quote(part) for part in parts if part)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
