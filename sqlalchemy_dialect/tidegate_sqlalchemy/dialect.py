"""The SQLAlchemy dialect behind ``tidegate://`` URLs."""

from __future__ import annotations

import re
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import types as sqltypes
from sqlalchemy.engine import URL, default

from tidegate_sqlalchemy.compat import IS_1_4
from tidegate_sqlalchemy.compiler import (
    CONSTRUCT_ARGUMENTS,
    TidegateCompiler,
    TidegateDDLCompiler,
    TidegateIdentifierPreparer,
    TidegateTypeCompiler,
)
from tidegate_sqlalchemy.reflection import ReflectionMixin
from tidegate_sqlalchemy.types import (
    SparkBinary,
    SparkDate,
    SparkDateTime,
    SparkEnum,
    SparkString,
)

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIConnection

_VERSION = re.compile(r"\d+(?:\.\d+)*")


if TYPE_CHECKING or not IS_1_4:
    _DefaultDialect = default.DefaultDialect
else:

    class _DefaultDialect(default.DefaultDialect):
        """The default dialect of SQLAlchemy 1.4 with the names of SQLAlchemy 2."""

        type_compiler = TidegateTypeCompiler
        type_compiler_instance = property(lambda self: self.type_compiler)
        loaded_dbapi = property(lambda self: self.dbapi)

        @classmethod
        def dbapi(cls) -> ModuleType:
            """Return the driver's module."""
            return cls.import_dbapi()


class TidegateDialect(ReflectionMixin, _DefaultDialect):
    """Spark SQL over HiveServer2, with materialized tables; there are no transactions."""

    name = "tidegate"
    driver = "tidegate"

    preparer = TidegateIdentifierPreparer  # type: ignore[assignment]  # declared as the base class
    statement_compiler = TidegateCompiler
    ddl_compiler = TidegateDDLCompiler
    type_compiler_cls = TidegateTypeCompiler
    construct_arguments = CONSTRUCT_ARGUMENTS
    colspecs = {
        sqltypes.String: SparkString,
        sqltypes.Enum: SparkEnum,
        sqltypes.Date: SparkDate,
        sqltypes.DateTime: SparkDateTime,
        sqltypes.LargeBinary: SparkBinary,
    }

    default_paramstyle = "pyformat"
    max_identifier_length = 128
    supports_statement_cache = True
    supports_alter = True
    supports_comments = True
    inline_comments = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = True
    supports_is_distinct_from = True
    supports_default_values = False
    supports_default_metavalue = True
    supports_empty_insert = False
    supports_sequences = False
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    postfetch_lastrowid = False
    insert_returning = False
    update_returning = False
    delete_returning = False
    use_insertmanyvalues = False
    div_is_floordiv = False
    cte_follows_insert = True

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """Return the driver's module."""
        import tidegate

        return tidegate

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Hand the URL to the driver, which reads ``tidegate://`` itself."""
        plain = url.set(drivername="tidegate")
        return (plain.render_as_string(hide_password=False),), {}

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        """Run a statement; text that SQLAlchemy did not compile is sent unchanged.

        Compiled text has doubled percent signs, other text does not. DDL without an equivalent
        in Spark, such as that of an index, compiles to nothing and is not sent.
        """
        if not statement:
            return
        by_hand = context is not None and context.compiled is None and not parameters
        cursor.execute(statement, None if by_hand else parameters)

    def do_ping(self, dbapi_connection: DBAPIConnection) -> bool:
        """Return whether the session still answers, without asking Spark."""
        session: Any = dbapi_connection
        session.ping()
        return True

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:
        """Return whether an error means that the session is gone."""
        if not isinstance(e, self.loaded_dbapi.Error):
            return False
        code = getattr(e, "code", None) or ""
        # A lost engine is replaced, and the session continues.
        if code.startswith("ENGINE_"):
            return False
        sqlstate = getattr(e, "sqlstate", None) or ""
        return sqlstate.startswith("08") or "Invalid SessionHandle" in str(e)

    def do_begin(self, dbapi_connection: Any) -> None:
        """Do nothing: every statement is its own transaction."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """Do nothing: every statement is its own transaction."""

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Do nothing: there is no transaction to roll back."""

    def get_isolation_level_values(self, dbapi_connection: Any) -> list[Any]:
        """Return the only isolation level."""
        return ["AUTOCOMMIT"]

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        """Return the only isolation level."""
        return "AUTOCOMMIT"

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        """Return the only isolation level."""
        return "AUTOCOMMIT"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Accept the only isolation level."""

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        """Return True: every statement commits itself."""
        return True

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...] | None:
        text = connection.exec_driver_sql("SELECT version()").scalar()
        match = _VERSION.search(str(text or ""))
        return tuple(int(part) for part in match.group().split(".")) if match else None

    def _get_default_schema_name(self, connection: Any) -> str:
        return str(connection.exec_driver_sql("SELECT current_database()").scalar())
