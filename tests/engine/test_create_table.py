"""CREATE TABLE: which format it makes, and what is left of it when it fails."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Client, EngineProcess, Session
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import Cancel

pytestmark = pytest.mark.spark

DEFAULTED = "CREATE TABLE {} (x INT DEFAULT 3) USING delta"
DIVIDED = "CREATE TABLE {} USING {} AS SELECT 1 / (id - id) AS x FROM range(3)"


@pytest.fixture
def folder(session: Session, schema: str) -> Path:
    """The directory of the schema."""
    rows = dict(session.rows(f"DESCRIBE SCHEMA {schema}"))
    return Path(str(rows["Location"]).removeprefix("file:"))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A place that does not exist."""
    return tmp_path / "elsewhere"


def provider(session: Session, table: str) -> str:
    """Return the format of a table."""
    rows = session.rows(f"DESCRIBE EXTENDED {table}")
    return str(next(row[1] for row in rows if row[0] == "Provider"))


# ---- the format --------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (x INT)",
        "CREATE TABLE t (x INT) PARTITIONED BY (p STRING)",
        "CREATE TABLE t AS SELECT 1 AS x",
        "CREATE OR REPLACE TABLE t AS SELECT 1 AS x",
        "CREATE TABLE IF NOT EXISTS t COMMENT 'c' TBLPROPERTIES ('k' = 'v') AS SELECT 1 AS x",
    ],
)
def test_a_table_without_a_format_is_deltas(session: Session, schema: str, statement: str) -> None:
    session.execute(statement)
    assert provider(session, "t") == "delta"
    session.execute("INSERT INTO t (x) VALUES (1)")
    session.execute("UPDATE t SET x = 5")


def test_a_setting_says_otherwise(session: Session, schema: str) -> None:
    session.execute("SET spark.sql.sources.default = parquet")
    session.execute("CREATE TABLE t (x INT)")
    assert provider(session, "t") == "parquet"


def test_what_names_a_format_keeps_it(session: Session, schema: str) -> None:
    session.execute("CREATE TABLE p (x INT) USING parquet")
    session.execute("CREATE TABLE copied LIKE p")
    session.execute("CREATE TABLE stored (x INT) STORED AS orc")
    found = [provider(session, table) for table in ("p", "copied", "stored")]
    assert found == ["parquet", "parquet", "hive"]


def test_files_of_another_format_are_not_taken_for_a_table_of_deltas(
    session: Session, schema: str, elsewhere: Path
) -> None:
    session.execute(f"CREATE TABLE p USING parquet LOCATION '{elsewhere}' AS SELECT 1 AS x")
    failed = session.failure(f"CREATE TABLE t (x INT) LOCATION '{elsewhere}'")
    assert failed.code == "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"
    assert "USING" in failed.hint
    assert session.rows("SELECT * FROM p") == [(1,)]


# ---- what fails --------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(
    "statement",
    [
        DEFAULTED.format("t"),
        DEFAULTED.format("`T`"),
        DIVIDED.format("t", "delta"),
        DIVIDED.format("t", "parquet"),
        DIVIDED.replace("CREATE", "CREATE OR REPLACE").format("t", "delta"),
        "CREATE TABLE t (x INT, i INTERVAL DAY) USING delta",
        f"EXECUTE IMMEDIATE '{DEFAULTED.format('t')}'",
        f"BEGIN {DEFAULTED.format('t')}; END",
    ],
)
def test_a_create_that_fails_leaves_its_name_free(
    session: Session, schema: str, folder: Path, statement: str
) -> None:
    session.failure(statement)
    assert not (folder / "t").exists()
    session.execute("CREATE TABLE t (x INT) USING delta")
    session.execute("INSERT INTO t VALUES (1)")
    assert session.rows("SELECT * FROM t") == [(1,)]


def test_the_hint_says_how_to_have_a_default(session: Session, schema: str) -> None:
    failed = session.failure(DEFAULTED.format("t"))
    assert "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')" in failed.hint
    allowed = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    session.execute(f"{DEFAULTED.format('t')} {allowed}")


def test_a_place_that_was_not_there_is_free_again(
    session: Session, schema: str, elsewhere: Path
) -> None:
    session.failure(f"{DEFAULTED.format('t')} LOCATION '{elsewhere}'")
    assert not elsewhere.exists()
    session.failure(DEFAULTED.format(f"delta.`{elsewhere}`"))
    assert not elsewhere.exists()


def test_files_that_were_there_before_stay(
    session: Session, schema: str, folder: Path, elsewhere: Path
) -> None:
    for place in (elsewhere, folder / "t"):
        place.mkdir(parents=True)
    (folder / "t" / "mine.txt").write_text("mine")
    session.failure(f"{DEFAULTED.format('other')} LOCATION '{elsewhere}'")
    session.failure(DEFAULTED.format("t"))
    assert elsewhere.is_dir()
    assert (folder / "t" / "mine.txt").read_text() == "mine"


def test_a_table_that_was_there_before_stays(session: Session, schema: str) -> None:
    session.execute("CREATE TABLE t AS SELECT 1 AS x")
    for create in ("CREATE TABLE", "CREATE OR REPLACE TABLE"):
        session.failure(f"{create} t AS SELECT 1 / (id - id) AS x FROM range(3)")
        assert session.rows("SELECT * FROM t") == [(1,)]


def test_what_a_script_made_before_it_failed_stays(session: Session, schema: str) -> None:
    session.failure("BEGIN CREATE TABLE t AS SELECT 1 AS x; SELECT raise_error('no'); END")
    assert session.rows("SELECT * FROM t") == [(1,)]


def test_a_create_that_is_canceled_leaves_its_name_free(
    session: Session, client: Client, schema: str, folder: Path
) -> None:
    operation_id = str(uuid.uuid4())
    failures: list[ServerError] = []
    slow = (
        "CREATE TABLE t USING delta AS "
        "SELECT /*+ REPARTITION(8) */ reflect('java.lang.Thread', 'sleep', 3L) AS x, id "
        "FROM range(8)"
    )

    def run() -> None:
        failures.append(session.failure(slow, operation_id=operation_id))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in _seconds(60):
            if (folder / "t").exists():
                break
        client.call(Cancel(operation_id=operation_id))
    finally:
        thread.join(60)
    assert [failure.code for failure in failures] == ["OPERATION_CANCELED"]
    assert not (folder / "t").exists()


def _seconds(limit: float) -> Iterator[None]:
    """Yield again and again until so many seconds are over."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        yield
        time.sleep(0.05)


def test_of_two_that_make_one_table_the_one_that_fails_takes_nothing_from_the_other(
    engine: EngineProcess, session: Session, client: Client, schema: str, folder: Path
) -> None:
    other = Session(engine.client())
    other.execute(f"USE {schema}")
    for number in range(5):
        table = f"t{number}"
        failing = threading.Thread(
            target=lambda table=table: session.failure(DIVIDED.format(table, "delta"))
        )
        failing.start()
        try:
            made = _outcome(other, f"CREATE TABLE {table} USING delta AS SELECT 7 AS x")
        finally:
            failing.join(60)
        if made is None:
            assert session.rows(f"SELECT * FROM {table}") == [(7,)]


def _outcome(session: Session, statement: str) -> ServerError | None:
    try:
        session.execute(statement)
    except ServerError as failed:
        return failed
    return None
