"""What the engine reports for exceptions with little information."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from tests.engine.conftest import Session
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.jvm.messages import LONGEST, whole_message


@pytest.mark.parametrize(
    ("caught", "code"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "ENGINE_LOST"),
        (ConnectionRefusedError("[Errno 111] Connection refused"), "ENGINE_LOST"),
        (Py4JError("An error occurred while calling o8.statusTracker"), "ENGINE_LOST"),
        (Py4JError("An error occurred while calling o8.x. Trace:\nno such method"), "INTERNAL"),
        (ValueError("something"), "INTERNAL"),
    ],
)
def test_a_jvm_that_does_not_answer_is_a_lost_engine(caught: Exception, code: str) -> None:
    assert to_server_error(caught).code == code


class Ended:
    """An exception in a JVM that ended before it could say more of it."""

    _target_id = "o1"

    @property
    def _gateway_client(self) -> Ended:
        return self

    def __getattr__(self, call: str) -> Callable[..., str]:
        def fail_without_answer(*_: object) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")

        return fail_without_answer


def test_a_jvm_that_ends_while_its_exception_is_read_is_a_lost_engine() -> None:
    caught = Py4JJavaError("An error occurred while calling o8.collect.\n", Ended())
    assert to_server_error(caught).code == "ENGINE_LOST"


def test_whatever_a_canceled_operation_dies_of_it_was_canceled() -> None:
    assert to_server_error(ValueError(), canceled=True).code == "OPERATION_CANCELED"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[A.B] one\ntwo. SQLSTATE: 42P01; line 1 pos 14;\n'Project [*]\n+- 'X", "one\ntwo."),
        ("[A] one. SQLSTATE: 42K03;\n'Project [*]", "one."),
        ("\n[A] one. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\nselect\n---^^^\n", "one."),
        ("[A] one.\n== SQL (line 1, position 8) ==\nselect 1/0\n       ^^^\n", "one."),
        ("[A] Cannot resolve y.; line 1 pos 0", "Cannot resolve y."),
        ("[A] row with values:\n - x : 1", "row with values:\n - x : 1"),
        ("it broke\n\tat org.a.B$.run(B.scala:1)\n\tat java.base/x.Y.z(Y.java:2)", "it broke"),
        ("said so\nTraceback (most recent call last):\n  File 'x'", "said so"),
        ("at the end of line 1 pos 2; more", "at the end of line 1 pos 2; more"),
        ("", ""),
    ],
)
def test_a_message_is_whole_and_ends_where_places_plans_and_stacks_begin(
    text: str, message: str
) -> None:
    assert whole_message(text) == message


def test_a_message_that_quotes_a_long_value_is_cut() -> None:
    shown = whole_message("x" * (LONGEST + 7))
    assert shown == "x" * LONGEST + "... (7 more characters)"


@pytest.mark.spark
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("statement", "code", "sqlstate", "said"),
    [
        ("INSERT INTO t SELECT CAST(y AS INT), 'x' FROM t", "CAST_INVALID_INPUT", "22018", "'abc'"),
        ("INSERT INTO t SELECT CAST(1 / (x - 1) AS INT), y FROM t", "DIVIDE_BY_ZERO", "22012", ""),
        ("INSERT INTO t SELECT x + 2147483647, y FROM t", "ARITHMETIC_OVERFLOW", "22003", ""),
        (
            "INSERT INTO p SELECT x, repeat('ä', 150) FROM t",
            "PARTITION_VALUE_TOO_LONG",
            "22001",
            "column y makes a directory name of 302 bytes",
        ),
    ],
)
def test_a_failure_while_rows_are_written_keeps_its_reason(
    session: Session, schema: str, statement: str, code: str, sqlstate: str, said: str
) -> None:
    session.execute("CREATE TABLE t (x INT, y STRING) USING delta")
    session.execute("CREATE TABLE p (x INT, y STRING) USING delta PARTITIONED BY (y)")
    session.execute("INSERT INTO t VALUES (1, 'abc')")
    failed = session.failure(statement)
    assert (failed.code, failed.sqlstate) == (code, sqlstate)
    assert said in failed.message
    assert failed.detail == "" or failed.detail.startswith("[TASK_WRITE_FAILED] Task failed")
    assert session.rows("SELECT count(*) FROM t") == [(1,)]


@pytest.mark.spark
def test_messages_of_several_lines_are_whole(session: Session, schema: str) -> None:
    session.execute("CREATE TABLE t (x INT, y STRING) USING delta")
    session.execute("ALTER TABLE t ADD CONSTRAINT positive CHECK (x > 0)")
    violated = session.failure("INSERT INTO t VALUES (-1, 'a')")
    assert violated.message.endswith("violated by row with values:\n - x : -1")
    session.execute("INSERT INTO t VALUES (1, 'a')")
    twice = session.failure(
        "MERGE INTO t USING (SELECT 1 AS k, v FROM VALUES ('p'), ('q') AS s(v)) s ON t.x = s.k "
        "WHEN MATCHED THEN UPDATE SET y = s.v"
    )
    assert "attempted to modify the same\ntarget row" in twice.message
    assert "eliminate the possibility of\nmultiple matches" in twice.message
    pattern = session.failure("SELECT date_format(now(), 'u')")
    assert 'set "spark.sql.legacy.timeParserPolicy" to "LEGACY"' in pattern.message
    assert "use the SQL function EXTRACT" in pattern.detail
    for failed in (violated, twice, pattern):
        for inside in ("Traceback", ".py", "py4j", "\tat "):
            assert inside not in failed.message + failed.detail


@pytest.mark.spark
def test_a_condition_of_delta_that_pyspark_does_not_know_is_reported_as_it_is(
    session: Session, schema: str
) -> None:
    session.execute("CREATE TABLE t (x INT, y STRING) USING delta")
    merge = "MERGE {} INTO t USING (SELECT 1 AS x) s ON t.x = s.x WHEN MATCHED THEN UPDATE SET *"
    failed = session.failure(merge.format(""))
    assert (failed.code, failed.sqlstate) == ("DELTA_MERGE_UNRESOLVED_EXPRESSION", "42601")
    assert failed.message == "Cannot resolve y in UPDATE clause given columns s.x."
    assert "list the columns to set" in failed.hint
    session.execute(merge.format("WITH SCHEMA EVOLUTION"))


@pytest.mark.parametrize(
    "caught",
    [RuntimeError("calling parsePlan\n: java.lang.StackOverflowError"), RecursionError("maximum")],
)
def test_an_exhausted_stack_is_said_to_be_the_statements(caught: Exception) -> None:
    failed = to_server_error(caught)
    assert (failed.code, failed.sqlstate) == ("STATEMENT_TOO_COMPLEX", "54001")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "ran out of memory"),
        (
            "java.lang.OutOfMemoryError: Cannot reserve 127586304 bytes of direct buffer memory",
            "ran out of direct memory",
        ),
    ],
)
def test_which_memory_ran_out_is_said(text: str, words: str) -> None:
    failed = to_server_error(RuntimeError(text))
    assert (failed.code, failed.sqlstate) == ("OUT_OF_MEMORY", "53200")
    assert words in failed.message
    assert "engine.driver_memory" in failed.hint
