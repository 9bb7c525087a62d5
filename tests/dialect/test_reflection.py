"""The dialect on a fake connection of the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

import tidegate
from tidegate_sqlalchemy import ARRAY, TidegateDialect

TABLE_ROW = ("TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS")
COLUMN_ROW = (
    *("TABLE_NAME", "COLUMN_NAME", "TYPE_NAME", "COLUMN_SIZE", "DECIMAL_DIGITS", "REMARKS"),
    *("COLUMN_DEF", "ORDINAL_POSITION", "IS_NULLABLE"),
)
KEY_ROW = ("COLUMN_NAME", "KEY_SEQ", "PK_NAME")

Answer = tuple[Sequence[str], list[Sequence[Any]]]


@dataclass
class FakeConnection:
    """Answers statements and metadata calls out of a table, and remembers what was asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)
    pings: int = 0

    def cursor(self) -> FakeCursor:
        return FakeCursor(self)

    def ping(self) -> None:
        self.pings += 1

    def rollback(self) -> None:
        raise AssertionError("there are no transactions")

    commit = rollback

    def close(self) -> None:
        pass


class FakeCursor:
    rowcount = -1

    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection
        self.description: list[Any] | None = None
        self._rows: list[Sequence[Any]] = []

    def execute(self, sql: str, parameters: Any = None) -> None:
        self._take(sql, sql, parameters)

    def close(self) -> None:
        self._rows = []

    def fetchone(self) -> Sequence[Any] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Sequence[Any]]:
        taken, self._rows = self._rows, []
        return taken

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in ("schemas", "tables", "columns", "primary_keys"):
            raise AttributeError(name)

        def call(*arguments: Any, catalog: str | None = None) -> None:
            self._take(name, name, *arguments, *([] if catalog is None else [catalog]))

        return call

    def _take(self, key: str, *asked: Any) -> None:
        self._connection.asked.append(asked)
        if key in self._connection.failures:
            raise self._connection.failures[key]
        columns, rows = self._connection.answers.get(key, ((), []))
        self.description = [(name, "STRING", *[None] * 5) for name in columns] or None
        self._rows = list(rows)


@pytest.fixture
def driver() -> FakeConnection:
    tables = [
        ("c", "s", "a_b", "TABLE", "it's"),
        ("c", "s", "axb", "TABLE", ""),
    ]
    columns = [
        ("a_b", "n", "DECIMAL", 12, 2, "", None, 2, "YES"),
        ("a_b", "id", "BIGINT", 19, 0, "the key", None, 1, "NO"),
        ("a_b", "v", "VARCHAR", 7, None, "", None, 3, "YES"),
        ("a_b", "l", "ARRAY<INT>", None, None, "", None, 4, "YES"),
        ("axb", "other", "INT", 10, 0, "", None, 1, "YES"),
    ]
    return FakeConnection(
        {
            "SELECT version()": (["version()"], [("4.1.4 abcdef",)]),
            "SELECT current_database()": (["current_database()"], [("s",)]),
            "schemas": (["TABLE_SCHEM", "TABLE_CATALOG"], [("default", "c"), ("s", "c")]),
            "tables": (TABLE_ROW, list(tables)),
            "columns": (COLUMN_ROW, list(columns)),
            "primary_keys": (KEY_ROW, [("b", 2, "PK"), ("a", 1, "PK")]),
        }
    )


@pytest.fixture
def engine(driver: FakeConnection) -> Iterator[sa.Engine]:
    engine = sa.create_engine("tidegate://x/s", creator=lambda: driver, poolclass=StaticPool)
    yield engine
    engine.dispose()


def test_version_and_default_schema_are_asked_once(engine: sa.Engine) -> None:
    with engine.connect():
        dialect: Any = engine.dialect
        assert dialect.server_version_info == (4, 1, 4)
        assert dialect.default_schema_name == "s"


def test_transactions_are_never_ended(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("x")
    with engine.connect() as connection:
        connection.exec_driver_sql("x")
        connection.rollback()
    assert engine.dialect.get_isolation_level_values(None) == ["AUTOCOMMIT"]


def test_text_by_hand_goes_out_as_it_is(engine: sa.Engine, driver: FakeConnection) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 5 % 2")
    assert driver.asked[-1] == ("SELECT 5 % 2", None)


def test_compiled_text_goes_out_with_parameters(engine: sa.Engine, driver: FakeConnection) -> None:
    with engine.connect() as connection:
        connection.execute(sa.text("SELECT 5 % :x"), {"x": 2})
    assert driver.asked[-1] == ("SELECT 5 %% %(x)s", {"x": 2})


def test_schemas_and_tables_are_listed(engine: sa.Engine, driver: FakeConnection) -> None:
    inspector = sa.inspect(engine)
    assert inspector.get_schema_names() == ["default", "s"]
    assert inspector.get_table_names() == ["a_b", "axb"]
    assert driver.asked[-1] == ("tables", "s", "%", ["TABLE"])


def test_a_table_is_listed_once(engine: sa.Engine, driver: FakeConnection) -> None:
    driver.answers["tables"] = (TABLE_ROW, [("c", "s", "m", "TABLE", "")] * 2)
    assert sa.inspect(engine).get_table_names() == ["m"]


def test_materialized_tables_are_asked_for_by_their_type(
    engine: sa.Engine, driver: FakeConnection
) -> None:
    dialect: Any = engine.dialect
    with engine.connect() as connection:
        dialect.get_materialized_table_names(connection, "cat.my_schema")
    assert driver.asked[-1] == ("tables", r"my\_schema", "%", ["MATERIALIZED_TABLE"], "cat")


def test_the_inspector_lists_materialized_tables(engine: sa.Engine, driver: FakeConnection) -> None:
    sa.inspect(engine).get_materialized_view_names("s")
    assert driver.asked[-1] == ("tables", "s", "%", ["MATERIALIZED_TABLE"])


def test_a_catalog_is_asked_for_by_its_name(engine: sa.Engine, driver: FakeConnection) -> None:
    inspector = sa.inspect(engine)
    inspector.get_schema_names(catalog="my_lake")
    assert driver.asked[-1] == ("schemas", "my_lake")
    inspector.get_table_names("my_lake.s")
    assert driver.asked[-1] == ("tables", "s", "%", ["TABLE"], r"my\_lake")


def test_a_name_with_a_wildcard_means_itself(engine: sa.Engine, driver: FakeConnection) -> None:
    inspector = sa.inspect(engine)
    assert inspector.has_table("a_b")
    assert driver.asked[-1] == ("tables", "s", r"a\_b")
    assert not inspector.has_table("a%b")


def test_columns_have_types_comments_and_nullability(engine: sa.Engine) -> None:
    table = sa.Table("a_b", sa.MetaData(), autoload_with=engine)
    assert [column.name for column in table.c] == ["id", "n", "v", "l"]
    assert not table.c.id.nullable
    assert table.c.id.comment == "the key"
    assert repr(table.c.n.type) == "DECIMAL(precision=12, scale=2)"
    assert repr(table.c.v.type) == "VARCHAR(length=7)"
    assert isinstance(table.c.l.type, ARRAY)
    assert table.comment == "it's"


def test_a_declared_key_is_reflected_in_its_order(
    engine: sa.Engine, driver: FakeConnection
) -> None:
    key = sa.inspect(engine).get_pk_constraint("a_b")
    assert key == {"constrained_columns": ["a", "b"], "name": "PK"}
    # The call takes names: in a pattern the underscore would be escaped.
    assert ("primary_keys", "s", "a_b") in driver.asked


def test_a_server_without_keys_has_none(engine: sa.Engine, driver: FakeConnection) -> None:
    driver.failures["primary_keys"] = tidegate.NotSupportedError("unknown call")
    key = sa.inspect(engine).get_pk_constraint("a_b")
    assert key == {"constrained_columns": [], "name": None}


def test_a_missing_table_is_an_error(engine: sa.Engine) -> None:
    with pytest.raises(sa.exc.NoSuchTableError):
        sa.Table("nope", sa.MetaData(), autoload_with=engine)


def test_an_inspector_asks_once_whether_a_table_is_there(
    engine: sa.Engine, driver: FakeConnection
) -> None:
    inspector = sa.inspect(engine)
    driver.asked.clear()
    assert inspector.has_table("a_b")
    assert inspector.has_table("a_b")
    assert len(driver.asked) == 1
    inspector.clear_cache()
    assert inspector.has_table("a_b")
    assert len(driver.asked) == 2


def test_only_a_view_has_the_definition_of_a_view(engine: sa.Engine) -> None:
    with pytest.raises(sa.exc.NoSuchTableError):
        sa.inspect(engine).get_view_definition("a_b")


def test_an_index_is_not_sent_and_its_table_is(engine: sa.Engine, driver: FakeConnection) -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("a", sa.Integer, index=True))
    with pytest.warns(sa.exc.SAWarning, match="no indexes: ix_t_a was not created"):
        table.create(engine, checkfirst=False)
    sent = [str(statement).split() for statement, *_ in driver.asked]
    assert [words[0] for words in sent] == ["SELECT", "SELECT", "CREATE"]


def test_temporary_views_are_listed(engine: sa.Engine, driver: FakeConnection) -> None:
    columns = ["namespace", "viewName", "isTemporary"]
    driver.answers["SHOW VIEWS"] = (columns, [("", "t", True), ("s", "v", False)])
    assert sa.inspect(engine).get_temp_view_names() == ["t"]


def test_a_ping_asks_no_query(engine: sa.Engine, driver: FakeConnection) -> None:
    dialect: Any = engine.dialect
    assert dialect.do_ping(driver)
    assert (driver.pings, driver.asked) == (1, [])


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (tidegate.OperationalError("connection lost", sqlstate="08006"), True),
        (tidegate.InterfaceError("the connection is closed", sqlstate="08003"), True),
        (tidegate.OperationalError("Invalid SessionHandle: x", sqlstate="HY000"), True),
        (tidegate.OperationalError("died", sqlstate="08006", code="ENGINE_LOST"), False),
        (tidegate.ProgrammingError("no table", sqlstate="42P01"), False),
        (ValueError("08006"), False),
    ],
)
def test_only_a_lost_session_is_a_disconnect(error: Exception, lost: bool) -> None:
    dialect = TidegateDialect(dbapi=tidegate)
    assert dialect.is_disconnect(error, None, None) is lost


def test_the_url_goes_to_the_driver_as_it_is() -> None:
    url = sa.make_url("tidegate://ada:p%40ss@host:10001/sales?auth=LDAP&a.b=1%262")
    arguments, options = TidegateDialect().create_connect_args(url)
    [text] = arguments
    parsed = tidegate.dsn.parse_url(text)
    assert options == {}
    assert (parsed.user, parsed.password, parsed.host, parsed.port) == (
        *("ada", "p@ss", "host"),
        10001,
    )
    assert (parsed.schema, parsed.auth, dict(parsed.settings)) == ("sales", "LDAP", {"a.b": "1&2"})
