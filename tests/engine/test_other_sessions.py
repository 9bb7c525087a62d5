"""What one session does to a table of files, all sessions see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import Client, EngineProcess, Session
from tidegate_server.core.messages.requests import CloseSession
from tidegate_server.engine.session.file_changes import FileChanges

pytestmark = pytest.mark.spark


@pytest.fixture
def other(engine: EngineProcess, client: Client, schema: str) -> Iterator[Session]:
    """Another session with the same current schema."""
    opened = Session(client)
    opened.execute(f"USE {schema}")
    yield opened
    client.call(CloseSession(session_id=opened.id))


def visible_rows(session: Session, query: str = "SELECT * FROM t") -> list[tuple[object, ...]]:
    """Return a query's rows in a fixed order."""
    answer = session.execute(query)
    rows = session.table(answer).to_pylist() if answer.rows else []
    return sorted((tuple(row.values()) for row in rows), key=repr)


FORMATS = {
    "parquet": "USING parquet",
    "orc": "USING orc",
    "csv": "USING csv",
    "json": "USING json",
    "hive": "STORED AS PARQUET",
    "text": "ROW FORMAT DELIMITED FIELDS TERMINATED BY ','",
    "partitioned": "USING parquet PARTITIONED BY (b)",
}


@pytest.mark.thorough
@pytest.mark.parametrize("format", FORMATS)
def test_rows_that_another_session_wrote_are_read(
    session: Session, other: Session, format: str
) -> None:
    session.execute(f"CREATE TABLE t (a INT, b INT) {FORMATS[format]}")
    session.execute("CREATE VIEW v AS SELECT a FROM t WHERE a > 1")
    session.execute("INSERT INTO t VALUES (1, 1)")
    assert (visible_rows(other), visible_rows(other, "SELECT * FROM v")) == ([(1, 1)], [])
    session.execute("INSERT INTO t VALUES (2, 2)")
    assert (visible_rows(other), visible_rows(other, "SELECT * FROM v")) == (
        [(1, 1), (2, 2)],
        [(2,)],
    )
    session.execute("INSERT OVERWRITE t VALUES (3, 3)")
    wanted = [(3, 3)]
    assert (visible_rows(other), visible_rows(other, "SELECT * FROM v")) == (wanted, [(3,)])
    session.execute("TRUNCATE TABLE t")
    assert visible_rows(other) == []
    session.execute("DROP TABLE t")
    session.execute(f"CREATE TABLE t (b INT, a INT) {FORMATS[format]}")
    session.execute("INSERT INTO t (a, b) VALUES (5, 4)")
    assert visible_rows(other, "SELECT a, b FROM t") == [(5, 4)]
    assert visible_rows(other, "SELECT * FROM v") == [(5,)]


def test_columns_and_partitions_that_another_session_changed_are_known(
    session: Session, other: Session, tmp_path: Path
) -> None:
    session.execute("CREATE TABLE t (a INT, p INT) USING parquet PARTITIONED BY (p)")
    session.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    assert visible_rows(other) == [(1, 1), (2, 2)]
    session.execute("ALTER TABLE t DROP PARTITION (p = 1)")
    assert visible_rows(other) == [(2, 2)]
    session.execute("ALTER TABLE t ADD COLUMNS (c INT)")
    session.execute("INSERT INTO t PARTITION (p = 3) VALUES (3, 30)")
    session.execute("ANALYZE TABLE t COMPUTE STATISTICS")
    assert visible_rows(other, "SELECT a, c, p FROM t") == [(2, None, 2), (3, 30, 3)]
    session.execute("ALTER TABLE t RENAME TO u")
    assert visible_rows(other, "SELECT a FROM u") == [(2,), (3,)]
    (tmp_path / "loaded").write_text("7,8\n")
    session.execute("CREATE TABLE l (a INT, b INT) ROW FORMAT DELIMITED FIELDS TERMINATED BY ','")
    assert visible_rows(other, "SELECT * FROM l") == []
    session.execute(f"LOAD DATA LOCAL INPATH '{tmp_path}/loaded' INTO TABLE l")
    assert visible_rows(other, "SELECT * FROM l") == [(7, 8)]


def test_files_written_by_their_path_are_read_through_tables_and_temporary_views(
    session: Session, other: Session, tmp_path: Path
) -> None:
    place = tmp_path / "files"
    session.execute(f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT 1 AS a")
    session.execute(f"CREATE TABLE t USING parquet LOCATION '{place}'")
    other.execute(f"CREATE TEMPORARY VIEW tmp USING parquet OPTIONS (path '{place}')")
    both = "SELECT t.a, tmp.a AS b FROM t CROSS JOIN tmp"
    assert visible_rows(other, both) == [(1, 1)]
    session.execute(f"INSERT OVERWRITE DIRECTORY '{place}' USING parquet SELECT 2 AS a")
    assert visible_rows(other, both) == [(2, 2)]
    session.execute("INSERT INTO t VALUES (3)")
    assert len(visible_rows(other, both)) == 4
    # What no statement did is known after REFRESH, in all sessions.
    next(place.glob("*.parquet")).unlink()
    session.execute("-- files were removed\nREFRESH TABLE t")
    assert len(visible_rows(other, both)) == 1


def test_what_is_cached_is_read_again(session: Session, other: Session) -> None:
    session.execute("CREATE TABLE t (a INT) USING parquet")
    other.execute("CACHE TABLE t")
    session.execute("INSERT INTO t VALUES (1)")
    assert visible_rows(other) == [(1,)]
    session.execute("INSERT OVERWRITE t VALUES (2)")
    assert visible_rows(other) == [(2,)]
    session.execute("DROP TABLE t")
    session.execute("CREATE TABLE t (a INT) USING parquet")
    session.execute("INSERT INTO t VALUES (3)")
    assert visible_rows(other) == [(3,)]


def test_a_script_and_a_failed_statement_count_as_changes(session: Session, other: Session) -> None:
    session.execute("CREATE TABLE t (a INT) USING parquet")
    assert visible_rows(other) == []
    session.execute(
        "BEGIN INSERT INTO t VALUES (1); EXECUTE IMMEDIATE 'INSERT INTO t VALUES (2)'; END"
    )
    assert visible_rows(other) == [(1,), (2,)]
    script = "BEGIN INSERT INTO t VALUES (3); SELECT raise_error('no'); END"
    session.failure(script)
    assert visible_rows(other) == [(1,), (2,), (3,)]


def test_changes_are_counted_while_they_are_made() -> None:
    changes = FileChanges()
    before = changes.state()
    with changes.count_change():
        assert changes.state() is None
    after = changes.state()
    assert after not in (before, None)
    with pytest.raises(ValueError, match="no"), changes.count_change():
        raise ValueError("no")
    assert changes.state() not in (before, after, None)
