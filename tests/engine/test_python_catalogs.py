"""Catalogs written in Python within one engine: threads, sessions, failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tidegate_server.core.catalogs.base import CatalogError, CatalogTable, TableColumn
from tidegate_server.core.catalogs.options import CatalogOption
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import CatalogDefinition, ListCatalog
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.engine.gate import python_catalogs
from tidegate_server.engine.gate.catalogs import check_catalog, inspect_catalog, put_catalogs
from tidegate_server.engine.gate.gate import catalogs, places, suspended
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.metastore.foreign import list_catalog
from tidegate_server.engine.storage.jvm import compiled_instance

pytestmark = pytest.mark.engine
_SECONDS = 60
SECRET = "hush-hush"


class Meeting:
    """A catalog of one table of files; ``meet`` waits until as many threads ask for it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.barrier: threading.Barrier | None = None
        self.closed = 0

    def schemas(self) -> Sequence[str]:
        return ["s"]

    def tables(self, schema: str) -> Sequence[str]:
        return ["t"] if schema == "s" else []

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        match name:
            case "broken":
                raise RuntimeError(f"the password {SECRET} is wrong")
            case "strange":
                return CatalogTable(format="noop", columns=(TableColumn(name="a", type="int"),))
            case "misnamed":
                return CatalogTable(
                    format="org.apache.spark.sql.delta.sources.DeltaDataSource",
                    location=str(self.place),
                )
            case "nowhere":
                return CatalogTable(format="delta")
            case "untyped":
                column = TableColumn(name="a", type="no such type")
                return CatalogTable(format="csv", columns=(column,), location=str(self.place))
            case "meet" if self.barrier is not None:
                self.barrier.wait(_SECONDS)
            case other if other != "t":
                return None
        column = TableColumn(name="a", type="int", nullable=False, comment="one")
        return CatalogTable(
            format="csv", columns=(column,), location=str(self.place), comment="of a test"
        )

    def close(self) -> None:
        self.closed += 1


class MeetingType:
    name = "meeting"
    description = "A table of a test."
    options = (CatalogOption(name="password", description="A secret."),)

    def __init__(self, catalog: Meeting) -> None:
        self.catalog = catalog

    def open(self, options: dict[str, str]) -> Meeting:
        if options.get("password") != SECRET:
            raise CatalogError("the password is wrong")
        return self.catalog


def definition(password: str = SECRET) -> CatalogDefinition:
    """Return the catalog ``meeting`` as the gateway sends it."""
    return CatalogDefinition(
        kind=SecuredKind.CATALOG,
        name="meeting",
        class_name="",
        options={"password": password},
        python_type="meeting",
        secret=("password",),
    )


@pytest.fixture
def meeting(
    spark_root: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Meeting]:
    """The catalog of all sessions."""
    (tmp_path / "part.csv").write_text("1\n2\n")
    found = Meeting(tmp_path)
    monkeypatch.setattr(python_catalogs, "load_type", lambda name: MeetingType(found))
    put_catalogs(spark_root, [definition()])
    yield found
    put_catalogs(spark_root, [])


def _rows(spark: SparkSession, text: str) -> list[tuple[object, ...]]:
    session = spark.newSession()
    with suspended(session):
        return [tuple(row) for row in session.sql(text).collect()]


def _error(spark: SparkSession, text: str) -> ServerError:
    with pytest.raises(Exception) as caught:
        _rows(spark, text)
    return to_server_error(caught.value)


def test_threads_call_it_at_the_same_time(spark_root: SparkSession, meeting: Meeting) -> None:
    meeting.barrier = threading.Barrier(4)
    text = "SELECT sum(a) FROM meeting.s.meet"
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(_rows, spark_root, text) for _ in range(4)]
        assert [each.result(_SECONDS) for each in found] == [[(3,)]] * 4


def test_threads_call_it_after_a_stream_has_called_python(
    spark_root: SparkSession, meeting: Meeting
) -> None:
    text = "SELECT sum(a) FROM meeting.s.t"
    with ThreadPoolExecutor(1) as before, ThreadPoolExecutor(1) as after:
        assert before.submit(_rows, spark_root, text).result(_SECONDS) == [(3,)]
        # As PySpark does when the first stream begins.
        ensure_callback_server_started(spark_root.sparkContext._gateway)
        for pool in (before, after):
            assert pool.submit(_rows, spark_root, text).result(_SECONDS) == [(3,)]
        # As a second gate of the process does.
        put_catalogs(spark_root, [])
        python = python_catalogs.python_catalogs(spark_root, uses=places(spark_root))
        python_catalogs.connect_python(spark_root, python)
        put_catalogs(spark_root, [definition()])
        for pool in (before, after):
            assert pool.submit(_rows, spark_root, text).result(_SECONDS) == [(3,)]


def test_a_thread_of_java_is_told_that_it_cannot_call_it(
    spark_root: SparkSession, meeting: Meeting
) -> None:
    catalogs(spark_root).use(spark_root._jsparkSession, "meeting")
    catalog = spark_root._jsparkSession.sessionState().catalogManager().catalog("meeting")
    nothing = spark_root.sparkContext._gateway.new_array(spark_root._jvm.java.lang.Class, 0)
    method = catalog.getClass().getMethod("listNamespaces", nothing)
    source = """
        package tidegate;
        public class Elsewhere implements Runnable {
          public java.lang.reflect.Method method;
          public Object target;
          public String thrown = "";
          public String call(java.lang.reflect.Method method, Object target) throws Exception {
            this.method = method;
            this.target = target;
            Thread thread = new Thread(this);
            thread.start();
            thread.join();
            return thrown;
          }
          public void run() {
            try {
              method.invoke(target, new Object[0]);
            } catch (java.lang.reflect.InvocationTargetException failed) {
              thrown = failed.getCause().getMessage();
            } catch (Exception failed) {
              thrown = failed.toString();
            }
          }
        }
    """
    elsewhere = compiled_instance(spark_root, "tidegate.Elsewhere", source)
    assert "on a thread that Spark had started" in elsewhere.call(method, catalog)


def test_failures_are_told_without_secrets(spark_root: SparkSession, meeting: Meeting) -> None:
    broken = _error(spark_root, "SELECT * FROM meeting.s.broken")
    assert broken.code == "CATALOG_FAILED"
    assert "RuntimeError: the password ***** is wrong" in broken.message
    for name, reason in (
        ("strange", "the format noop"),
        ("misnamed", "the format org.apache.spark.sql.delta"),
        ("nowhere", "has no location"),
        ("untyped", "the type no such type"),
    ):
        error = _error(spark_root, f"SELECT * FROM meeting.s.{name}")
        assert (error.code, reason in error.message) == ("CATALOG_FAILED", True)
    assert _error(spark_root, "SELECT * FROM meeting.s.x").code == "TABLE_OR_VIEW_NOT_FOUND"
    created = _error(spark_root, "CREATE TABLE meeting.s.n (a INT)")
    assert (created.code, "create_table" in created.message) == ("CATALOG_METHOD", True)


def test_a_catalog_is_closed_when_it_is_not_needed(
    spark_root: SparkSession, meeting: Meeting
) -> None:
    check_catalog(spark_root, definition())
    assert meeting.closed == 1
    with pytest.raises(ServerError, match="the password is wrong"):
        check_catalog(spark_root, definition("other"))
    assert _rows(spark_root, "SELECT count(*) FROM meeting.s.t") == [(2,)]
    assert inspect_catalog(spark_root, "meeting").state == "READY"
    put_catalogs(spark_root, [definition()])  # the same one stays open
    assert meeting.closed == 1
    put_catalogs(spark_root, [])
    assert meeting.closed == 2


def test_lists_show_columns_and_comments(spark_root: SparkSession, meeting: Meeting) -> None:
    found = list_catalog(spark_root, ListCatalog(name="meeting", tables="t", with_columns=True))
    [table] = found.tables
    assert (found.schemas, str(table.name), table.comment) == (("s",), "meeting.s.t", "of a test")
    [column] = table.columns
    assert (column.name, column.type, column.nullable, column.comment) == ("a", "int", False, "one")


def test_rows_that_others_write_are_seen_at_once(
    spark_root: SparkSession, meeting: Meeting
) -> None:
    session = spark_root.newSession()
    with suspended(session):
        assert session.sql("SELECT sum(a) FROM meeting.s.t").collect()[0][0] == 3
        (meeting.place / "more.csv").write_text("5\n")
        assert session.sql("SELECT sum(a) FROM meeting.s.t").collect()[0][0] == 8
