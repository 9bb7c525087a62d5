"""Statements and their rows, over a socket."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import tidegate
from tests.driver.fake_server import Answer, FakeServer, failure
from tidegate.wire.schema import WireType


@contextmanager
def open_connection(
    answers: dict[str, Answer] | Callable[[str], Answer] | None = None, **options: Any
) -> Iterator[tuple[FakeServer, tidegate.Connection]]:
    with (
        FakeServer(answers, **options) as server,
        tidegate.connect("127.0.0.1", server.port, user="ann") as connection,
    ):
        yield server, connection


@contextmanager
def cursor_on(answer: Answer, **options: Any) -> Iterator[tidegate.Cursor]:
    """A cursor that has executed a statement with this answer."""
    with (
        open_connection({"q": answer}, **options) as (_, connection),
        connection.cursor() as cursor,
    ):
        yield cursor.execute("q")


NUMBERS = Answer([("n", "INT")], [(n,) for n in range(7)], page=3)


def test_rows_come_one_by_one() -> None:
    with cursor_on(NUMBERS) as cursor:
        assert [cursor.fetchone() for _ in range(8)] == [*((n,) for n in range(7)), None]


def test_rows_come_in_the_size_asked_for_across_pages() -> None:
    with cursor_on(NUMBERS) as cursor:
        assert [len(cursor.fetchmany(4)) for _ in range(3)] == [4, 3, 0]


def test_fetchmany_takes_arraysize() -> None:
    with cursor_on(NUMBERS) as cursor:
        cursor.arraysize = 2
        assert cursor.fetchmany() == [(0,), (1,)]


def test_all_rows_that_are_left_come_at_once() -> None:
    with cursor_on(NUMBERS) as cursor:
        cursor.fetchone()
        assert cursor.fetchall() == [(n,) for n in range(1, 7)]


def test_a_cursor_is_iterated() -> None:
    with cursor_on(NUMBERS) as cursor:
        assert [n for (n,) in cursor] == list(range(7))


def test_the_description_tells_name_type_and_sizes() -> None:
    columns = [("d", WireType("DECIMAL", 10, 2)), ("s", "STRING")]
    with cursor_on(Answer(columns)) as cursor:
        assert cursor.description == [
            ("d", "DECIMAL", None, None, 10, 2, None),
            ("s", "STRING", None, None, None, None, None),
        ]


def test_type_codes_equal_the_type_objects() -> None:
    with cursor_on(Answer([("d", "DATE"), ("n", "INT"), ("b", "BINARY")])) as cursor:
        codes = [column[1] for column in cursor.description or ()]
    assert codes == [tidegate.DATETIME, tidegate.NUMBER, tidegate.BINARY]
    assert codes[0] != tidegate.STRING


@pytest.mark.parametrize("name", ["ARRAY", "MAP", "STRUCT"])
def test_the_type_code_of_a_nested_type_equals_its_name_without_being_text(name: str) -> None:
    with cursor_on(Answer([("a", name)])) as cursor:
        ((_, code, *_),) = cursor.description or ()
    assert code == name == str(code)
    assert [code] == [tidegate.STRING]
    assert [code] == [tidegate.STRING]
    assert code != tidegate.NUMBER
    assert not isinstance(code, str)
    assert pickle.loads(pickle.dumps(code)) == code


def test_another_connection_cancels_a_statement_by_its_handle() -> None:
    with (
        open_connection({"forever": Answer(endless=True)}) as (server, connection),
        tidegate.connect("127.0.0.1", server.port, user="ann") as other,
        connection.cursor() as cursor,
    ):
        assert cursor.operation_handle is None
        cursor.execute_async("forever")
        assert cursor.operation_handle is not None
        other.cancel_operation(cursor.operation_handle)
        with pytest.raises(tidegate.OperationalError, match="canceled"):
            cursor.wait()
        with pytest.raises(tidegate.ProgrammingError, match="not the handle"):
            other.cancel_operation("x")


def test_warnings_and_notes_of_a_statement_are_messages_until_the_next_one() -> None:
    said = ["Warning: the ice is thin", "Note: nothing was changed", "of another server"]
    answers = {"warn": Answer(messages=said), "silent": Answer()}
    with open_connection(answers) as (_, connection), connection.cursor() as cursor:
        messages = cursor.messages
        cursor.execute("warn")
        assert [(str(message), message.severity) for _, message in messages] == [
            ("the ice is thin", "warning"),
            ("nothing was changed", "note"),
            ("of another server", "note"),
        ]
        assert {kind for kind, _ in messages} == {tidegate.Warning}
        cursor.execute("silent")
        assert messages == cursor.messages == []


def test_executemany_keeps_the_messages_of_all_its_statements() -> None:
    answers = {
        "UPDATE t SET a = 1": Answer(messages=["Warning: one"]),
        "UPDATE t SET a = 2": Answer(messages=["Warning: two"]),
    }
    with open_connection(answers) as (_, connection), connection.cursor() as cursor:
        cursor.executemany("UPDATE t SET a = ?", [(1,), (2,)])
        assert [str(message) for _, message in cursor.messages] == ["one", "two"]


VALUES = [
    ("TINYINT", 1, 1),
    ("BIGINT", 2**60, 2**60),
    ("DOUBLE", 0.5, 0.5),
    ("BOOLEAN", True, True),
    ("DECIMAL", "1.50", Decimal("1.50")),
    ("STRING", "ä", "ä"),
    ("BINARY", b"\xff", b"\xff"),
    ("DATE", "2020-01-02", date(2020, 1, 2)),
    ("TIMESTAMP", "2020-01-02 03:04:05.1", datetime.fromisoformat("2020-01-02T03:04:05.1")),
    ("INTERVAL_DAY_TIME", "1 02:03:04.500000000", timedelta(1, 7384, 500000)),
    ("INTERVAL_DAY_TIME", "-0 00:00:01.000000000", timedelta(seconds=-1)),
    ("INTERVAL_YEAR_MONTH", "1-2", "1-2"),
    ("ARRAY", "[1,null]", [1, None]),
    ("MAP", '{"a":1}', {"a": 1}),
    ("STRUCT", '{"a":{"b":[]}}', {"a": {"b": []}}),
    ("MAP", '{1:"not json"}', '{1:"not json"}'),
]


@pytest.mark.parametrize(("kind", "sent", "value"), VALUES)
def test_a_value_arrives_in_its_python_type(kind: str, sent: Any, value: Any) -> None:
    with cursor_on(Answer([("v", kind)], [(sent,), (None,)])) as cursor:
        rows = cursor.fetchall()
    assert rows == [(value,), (None,)]
    assert type(rows[0][0]) is type(value)


def test_a_year_that_python_has_not_is_a_data_error_with_advice() -> None:
    with (
        cursor_on(Answer([("d", "DATE")], [("+12020-01-01",)])) as cursor,
        pytest.raises(tidegate.DataError) as caught,
    ):
        cursor.fetchall()
    assert "AS STRING" in (caught.value.hint or "")


def test_a_statement_without_rows_has_no_description() -> None:
    with cursor_on(Answer(modified=3)) as cursor:
        assert cursor.description is None
        assert cursor.rowcount == 3
        with pytest.raises(tidegate.ProgrammingError, match="no rows"):
            cursor.fetchall()


def test_an_uncounted_statement_has_a_rowcount_of_minus_one() -> None:
    with cursor_on(Answer()) as cursor:
        assert cursor.rowcount == -1


def test_parameters_reach_the_server_as_literals() -> None:
    with open_connection() as (server, connection):
        connection.cursor().execute("SELECT %(a)s", {"a": "x'y"})
        assert server.requests("ExecuteStatement")[0].statement == "SELECT 'x\\'y'"


def test_a_statement_without_parameters_is_sent_as_it_is() -> None:
    with open_connection() as (server, connection):
        connection.cursor().execute("SELECT 5 % 3, '%s'")
        assert server.requests("ExecuteStatement")[0].statement == "SELECT 5 % 3, '%s'"


def test_statements_run_asynchronously_with_their_own_settings() -> None:
    with open_connection() as (server, connection):
        connection.cursor().execute("q", settings={"a": "1"})
        (request,) = server.requests("ExecuteStatement")
        assert (request.runAsync, request.confOverlay) == (True, {"a": "1"})


def test_many_inserts_travel_together_with_one_count() -> None:
    sql = "INSERT INTO t VALUES (1), (2)"
    with open_connection({sql: Answer(modified=2)}) as (server, connection):
        cursor = connection.cursor().executemany("INSERT INTO t VALUES (%s)", [(1,), (2,)])
        assert cursor.rowcount == 2
        assert len(server.requests("ExecuteStatement")) == 1


@pytest.mark.parametrize(
    ("announced", "statements"), [(None, 1), (0, 1), (1 << 30, 1), (300, 4), (50, 10)]
)
def test_inserts_respect_the_size_that_the_server_announces(
    announced: int | None, statements: int
) -> None:
    rows = [(f"{row:080}",) for row in range(10)]
    with open_connection(lambda _: Answer(modified=1), max_statement_bytes=announced) as opened:
        server, connection = opened
        for _ in range(2):
            connection.cursor().executemany("INSERT INTO t VALUES (?)", rows)
        assert len(server.requests("ExecuteStatement")) == 2 * statements
        assert len(server.requests("GetInfo")) == 1


def test_inserts_run_on_a_server_that_announces_nothing() -> None:
    with open_connection(lambda _: Answer(modified=1), unknown=["GetInfo"]) as (_, connection):
        cursor = connection.cursor().executemany("INSERT INTO t VALUES (?)", [(1,)])
        assert cursor.rowcount == 1


def test_an_error_while_running_has_its_class_code_and_query_id() -> None:
    answer = Answer(error=failure("[MT_NOT_FOUND] There is none.", "42P01"))
    with pytest.raises(tidegate.ProgrammingError) as caught, cursor_on(answer):
        raise AssertionError("the statement did not fail")
    error = caught.value
    assert (error.code, error.sqlstate, error.error_code) == ("MT_NOT_FOUND", "42P01", 7)
    assert error.query_id == "query-1"


def test_an_error_at_the_start_has_its_class() -> None:
    answer = Answer(refused=failure("no", "0A000"))
    with pytest.raises(tidegate.NotSupportedError, match="no"), cursor_on(answer):
        raise AssertionError("the statement did not fail")


def test_an_unfinished_statement_is_polled_until_it_is_done() -> None:
    with cursor_on(Answer([("n", "INT")], [(1,)], polls=3)) as cursor:
        assert cursor.fetchall() == [(1,)]


def test_an_asynchronous_statement_tells_how_far_it_is() -> None:
    answer = Answer([("n", "INT")], [(1,)], polls=1)
    with open_connection({"q": answer}) as (_, connection), connection.cursor() as cursor:
        cursor.execute_async("q")
        assert cursor.description is None
        assert [cursor.poll().finished, cursor.poll().finished] == [False, True]
        assert cursor.fetchall() == [(1,)]


def test_fetching_waits_for_an_asynchronous_statement() -> None:
    answer = Answer([("n", "INT")], [(1,)], polls=2)
    with open_connection({"q": answer}) as (_, connection), connection.cursor() as cursor:
        assert cursor.execute_async("q").fetchall() == [(1,)]


def test_another_thread_cancels_while_the_first_waits_on_the_connection() -> None:
    answer = Answer(endless=True)
    with open_connection({"q": answer}) as (server, connection), connection.cursor() as cursor:
        cursor.execute_async("q")
        errors: list[tidegate.Error] = []

        def wait() -> None:
            try:
                cursor.wait()
            except tidegate.Error as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        cursor.cancel()
        waiting.join(20)
        assert [error.sqlstate for error in errors] == ["57014"]
        assert len(server.requests("CancelOperation")) == 1


def test_an_interrupt_cancels_on_the_server_and_leaves_the_connection_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {"q": Answer(endless=True), "n": NUMBERS}
    with open_connection(answers) as (server, connection), connection.cursor() as cursor:
        cursor.execute_async("q")
        inner = connection._line._channel._inner
        real_wait = inner.wait

        def interrupt() -> None:
            monkeypatch.setattr(inner, "wait", real_wait)
            raise KeyboardInterrupt

        monkeypatch.setattr(inner, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cursor.wait()
        assert len(server.requests("CancelOperation")) == 1
        assert cursor.execute("n").fetchone() == (0,)


def test_a_canceled_statement_has_the_servers_words_and_code() -> None:
    answer = Answer(endless=True)
    with open_connection({"q": answer}) as (server, connection), connection.cursor() as cursor:
        cursor.execute_async("q")
        cursor.cancel()
        with pytest.raises(tidegate.OperationalError, match="canceled by a test") as caught:
            cursor.wait()
    assert (caught.value.sqlstate, caught.value.code) == ("57014", "OPERATION_CANCELED")


def test_the_log_is_read_line_by_line() -> None:
    with cursor_on(Answer(log=["one", "two"])) as cursor:
        assert cursor.fetch_logs() == ["one", "two"]
        assert cursor.fetch_logs() == []


def test_the_log_is_followed_to_the_error_that_ends_it() -> None:
    answer = Answer(log=["one"], error=failure("boom", "XX000"))
    with open_connection({"q": answer}) as (_, connection), connection.cursor() as cursor:
        lines = []
        with pytest.raises(tidegate.InternalError, match="boom"):
            for line in cursor.execute_async("q").logs():
                lines.append(line)  # noqa: PERF402 - the lines before the error count
        assert lines == ["one"]


def test_the_query_id_is_the_servers() -> None:
    with cursor_on(Answer()) as cursor:
        assert cursor.query_id == "query-1"


def test_the_query_id_is_that_of_the_handle_where_the_server_gives_none() -> None:
    with cursor_on(Answer(), unknown=["GetQueryId"]) as cursor:
        assert cursor.query_id == "00000000-0000-0000-0000-000000000001"


METADATA = {
    "GetCatalogs": lambda cursor: cursor.catalogs(),
    "GetSchemas": lambda cursor: cursor.schemas("d%"),
    "GetTables": lambda cursor: cursor.tables("s", "t%", ["VIEW"]),
    "GetColumns": lambda cursor: cursor.columns("s", "t", "c%"),
    "GetTableTypes": lambda cursor: cursor.table_types(),
    "GetTypeInfo": lambda cursor: cursor.type_info(),
    "GetFunctions": lambda cursor: cursor.functions("f%"),
    "GetPrimaryKeys": lambda cursor: cursor.primary_keys("s", "t"),
}


@pytest.mark.parametrize("call", METADATA)
def test_metadata_comes_as_rows(call: str) -> None:
    answers = {call: Answer([("NAME", "STRING")], [("x",)])}
    with open_connection(answers) as (server, connection):
        assert METADATA[call](connection.cursor()).fetchall() == [("x",)]
        assert len(server.requests(call)) == 1


def test_tables_are_asked_for_by_schema_pattern_and_types() -> None:
    with open_connection() as (server, connection):
        connection.cursor().tables("s", "t%", ["VIEW"])
        (request,) = server.requests("GetTables")
        assert (request.schemaName, request.tableName, request.tableTypes) == (
            "s",
            "t%",
            ["VIEW"],
        )


def test_rows_can_be_dictionaries() -> None:
    with open_connection({"q": NUMBERS}) as (_, connection):
        cursor = connection.cursor(tidegate.dict_row).execute("q")
        assert cursor.fetchone() == {"n": 0}
        assert cursor.fetchmany(1) == [{"n": 1}]


def test_rows_can_be_named_tuples_whatever_the_columns_are_called() -> None:
    answer = Answer([("a", "INT"), ("count(1)", "INT")], [(1, 2)])
    with open_connection({"q": answer}) as (_, connection):
        (row,) = connection.cursor(tidegate.namedtuple_row).execute("q").fetchall()
        assert (row.a, row._1) == (1, 2)


def test_a_new_statement_frees_the_one_before() -> None:
    with open_connection({"q": NUMBERS}) as (server, connection):
        connection.cursor().execute("q").execute("q")
        assert len(server.requests("CloseOperation")) == 1


def test_a_closed_cursor_frees_its_operation_and_refuses() -> None:
    with open_connection({"q": NUMBERS}) as (server, connection):
        cursor = connection.cursor().execute("q")
        cursor.close()
        cursor.close()
        assert len(server.requests("CloseOperation")) == 1
        with pytest.raises(tidegate.InterfaceError, match="cursor is closed"):
            cursor.fetchall()


def test_fetching_before_a_statement_is_a_programming_error() -> None:
    with (
        open_connection() as (_, connection),
        pytest.raises(tidegate.ProgrammingError, match="no statement"),
    ):
        connection.cursor().fetchone()


def test_procedures_are_not_supported() -> None:
    with open_connection() as (_, connection), pytest.raises(tidegate.NotSupportedError):
        connection.cursor().callproc("p")


def test_what_pep_249_lets_be_empty_is_harmless() -> None:
    with cursor_on(NUMBERS) as cursor:
        cursor.setinputsizes([1])
        cursor.setoutputsize(1)
        assert cursor.nextset() is None


def test_connections_and_cursors_describe_themselves() -> None:
    with open_connection({"q": NUMBERS}) as (server, connection):
        at = f"<tidegate.Connection to 127.0.0.1:{server.port} as ann"
        assert repr(connection) == f"{at}>"
        cursor = connection.cursor()
        assert repr(cursor) == f"<tidegate.Cursor (no statement) of {at}>>"
        cursor.execute("q")
        assert repr(cursor) == f"<tidegate.Cursor (finished) of {at}>>"
        assert not cursor.closed
        cursor.close()
        assert cursor.closed
        assert repr(cursor) == f"<tidegate.Cursor (closed) of {at}>>"
        other = connection.cursor()
    assert other.closed
    assert repr(connection) == f"{at}, closed>"
