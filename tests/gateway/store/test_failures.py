"""A store that is locked, full, damaged or gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert, text

from tests.contract.examples import name, table
from tidegate_server import __main__ as command
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.catalog.sql import SqlCatalog
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import leases
from tidegate_server.gateway.store.watch import StoreWatch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def database(file: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{file}", busy_seconds=0.2)
    database.open()
    yield database
    database.close()


@contextmanager
def lock_store(file: Path) -> Iterator[None]:
    """Hold the store's write lock, as another program does."""
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def refusal(work: Any) -> ServerError:
    with pytest.raises(ServerError) as caught:
        work()
    return caught.value


def fill(catalog: SqlCatalog, count: int) -> None:
    """Add so many tables."""
    for n in range(count):
        catalog.create(table(id=f"t{n}", name=name(f"t{n}")))


def overwrite(file: Path, start: int) -> None:
    """Put noise into a file from a position on."""
    content = file.read_bytes()
    file.write_bytes(content[:start] + b"\xa5" * (len(content) - start))


def test_a_locked_store_is_busy_and_works_again_afterwards(database: Database, file: Path) -> None:
    catalog = SqlCatalog(database)
    with lock_store(file):
        failed = refusal(lambda: catalog.create(table()))
        assert (failed.code, failed.sqlstate) == ("STORE_BUSY", "40001")
        assert catalog.find(name("daily")) is None  # readers do not wait
        assert database.trouble is not None
    catalog.create(table())
    assert database.trouble is None
    assert database.failures == {"STORE_BUSY": 1}


def test_a_full_store_says_so(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    database.open()
    database.close()

    @event.listens_for(database.engine, "connect")
    def limit_pages(connection: sqlite3.Connection, _record: Any) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the pages there are

    catalog = SqlCatalog(database)
    with closing(database):
        failed = refusal(lambda: fill(catalog, 99))
        assert (failed.code, failed.sqlstate) == ("STORE_FULL", "53100")
        assert len(catalog.tables()) < 99
        assert database.trouble is not None


def test_a_damaged_store_is_found_at_start(file: Path, database: Database) -> None:
    database.close()
    overwrite(file, 8192)
    failed = refusal(Database(f"sqlite:///{file}").open)
    assert (failed.code, failed.sqlstate) == ("STORE_DAMAGED", "58030")
    assert "--recover-catalog" in failed.hint


def test_damage_that_is_found_later_stays_until_the_next_start(
    file: Path, database: Database
) -> None:
    catalog = SqlCatalog(database)
    fill(catalog, 50)
    database.engine.dispose()
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        root = other.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'materialized_tables'"
        ).fetchone()[0]
    content = bytearray(file.read_bytes())
    content[(root - 1) * 4096 : root * 4096] = b"\xa5" * 4096
    file.write_bytes(bytes(content))
    assert refusal(catalog.tables).code == "STORE_DAMAGED"
    with database.begin() as connection:
        connection.execute(insert(leases).values(table_id="t", epoch=1))
    assert database.trouble is not None
    assert database.trouble.code == "STORE_DAMAGED"


def test_a_file_that_is_no_database_is_damaged(file: Path) -> None:
    file.write_text("this is a letter, which is longer than the header of a database file\n" * 9)
    assert refusal(Database(f"sqlite:///{file}").open).code == "STORE_DAMAGED"


def test_a_store_without_its_tables_is_damaged(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text("DROP TABLE materialized_tables"))
    assert refusal(SqlCatalog(database).tables).code == "STORE_DAMAGED"


def test_a_mistake_of_ours_is_no_failure_of_the_store(database: Database) -> None:
    with pytest.raises(Exception, match="no such column"), database.read() as connection:
        connection.execute(text("SELECT mistake FROM leases"))
    assert database.trouble is None


def test_a_deleted_store_is_never_written_to(database: Database, file: Path) -> None:
    for each in file.parent.glob("store.db*"):
        each.unlink()
    failed = refusal(lambda: SqlCatalog(database).create(table()))
    assert failed.code == "STORE_DAMAGED"
    assert "deleted" in failed.message
    assert refusal(SqlCatalog(database).tables).code == "STORE_DAMAGED"
    assert database.trouble is not None
    assert not file.exists()


def test_a_store_that_was_moved_away_and_back_works_again(database: Database, file: Path) -> None:
    away = file.with_name("away.db")
    file.rename(away)
    assert refusal(database.check).code == "STORE_DAMAGED"
    away.rename(file)
    database.check()
    assert database.trouble is None


def test_a_replaced_store_is_not_mixed_with_the_one_before(database: Database, file: Path) -> None:
    copy = file.with_name("copy.db")
    copy.write_bytes(file.read_bytes())
    copy.replace(file)
    assert "was replaced" in refusal(database.check).message


def test_a_store_without_room_for_its_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    failed = refusal(Database(f"sqlite:///{tmp_path / 'store.db'}").open)
    assert (failed.code, failed.sqlstate) == ("STORE_UNAVAILABLE", "08006")


def test_the_watch_announces_a_failure_once_and_its_end(database: Database, file: Path) -> None:
    said: list[str] = []
    watch = StoreWatch(database, said.append)
    watch.check()
    with lock_store(file):
        watch.check()
        watch.check()
    watch.check()
    watch.check()
    assert [line[:12] for line in said] == ["[STORE_BUSY]", "The store wo"]


@pytest.mark.parametrize("noise", [b"", b"SQLite format 3\0"])
def test_a_gateway_does_not_start_on_a_damaged_store_and_says_so_in_sentences(
    tmp_path: Path, noise: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gateway.lock").touch()
    (tmp_path / "store.db").write_bytes(noise + b"\xa5" * 9000)
    assert command.main(["--data", str(tmp_path), "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    first, second = said.splitlines()
    assert first.startswith("tidegate-server: The store is damaged:")
    assert "--recover-catalog" in first
    assert second == f"tidegate-server: The store is {tmp_path / 'store.db'}."
