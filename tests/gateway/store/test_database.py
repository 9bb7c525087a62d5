"""The store's engine on SQLite."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, text

from tests.contract.examples import NOON, run, table
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.catalog.sql import SqlCatalog
from tidegate_server.gateway.scheduler.ledger import SqlLedger
from tidegate_server.gateway.store import migrations
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.maintenance import MaintenanceRuns
from tidegate_server.gateway.store.migrations import current_version, migrate
from tidegate_server.gateway.store.tables import leases


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path / 'made' / 'store.db'}")
    database.open()
    yield database
    database.close()


def _pragma(database: Database, name: str) -> object:
    with database.read() as connection:
        return connection.execute(text(f"PRAGMA {name}")).scalar_one()


def test_a_sqlite_store_is_durable_and_checks_references(database: Database) -> None:
    assert _pragma(database, "journal_mode") == "wal"
    assert _pragma(database, "synchronous") == 2
    assert _pragma(database, "foreign_keys") == 1
    assert not database.shared


def test_a_body_that_raises_leaves_nothing_behind(database: Database) -> None:
    with pytest.raises(RuntimeError, match="halt"), database.begin() as connection:
        connection.execute(insert(leases).values(table_id="t", epoch=1))
        raise RuntimeError("halt")
    with database.read() as connection:
        assert connection.execute(select(leases)).all() == []


def test_a_reader_does_not_wait_for_a_writer(database: Database) -> None:
    with database.begin() as writer:
        writer.execute(insert(leases).values(table_id="t", epoch=1, expires_at=NOON))
        with database.read() as reader:
            assert reader.execute(select(leases)).all() == []
    with database.read() as reader:
        assert reader.execute(select(leases.c.expires_at)).scalar_one() == NOON


def test_transactions_that_read_before_they_write_queue_up(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(insert(leases).values(table_id="t", epoch=0))

    def count() -> None:
        for _ in range(20):
            with database.begin() as connection:
                epoch = connection.execute(select(leases.c.epoch)).scalar_one()
                connection.execute(leases.update().values(epoch=epoch + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert connection.execute(select(leases.c.epoch)).scalar_one() == 80


def test_a_store_can_be_opened_again(database: Database) -> None:
    again = Database(str(database.url))
    again.open()
    again.close()
    with database.read() as connection:
        assert current_version(connection) == len(migrations.MIGRATIONS)


def test_an_older_store_gets_what_it_lacks_and_keeps_its_rows(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(insert(leases).values(table_id="t", epoch=5))

    def add_note(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE leases ADD COLUMN note TEXT DEFAULT 'new'"))

    with database.begin() as connection:
        migrate(connection, (*migrations.MIGRATIONS, add_note))
    with database.read() as connection:
        row = connection.execute(text("SELECT epoch, note FROM leases")).one()
        assert tuple(row) == (5, "new")
        assert current_version(connection) == len(migrations.MIGRATIONS) + 1


def test_a_store_without_past_definitions_keeps_its_tables(database: Database) -> None:
    catalog = SqlCatalog(database)
    catalog.create(table())
    with database.begin() as connection:
        for column in ("defined_by", "defined_at", "restored_from", "leaving"):
            connection.execute(text(f"ALTER TABLE materialized_tables DROP COLUMN {column}"))
        connection.execute(text("DROP TABLE definition_versions"))
        before = migrations.MIGRATIONS.index(migrations.add_definition_versions)
        connection.execute(text(f"UPDATE schema_version SET version = {before}"))
        migrate(connection, migrations.MIGRATIONS[: before + 1])
    assert catalog.tables() == (table(),)
    catalog.replace(table(version=2))
    assert catalog.replaced_definitions() == (table(),)


@pytest.mark.parametrize(
    ("lacks", "since"),
    [
        ("DROP TABLE upkeep_runs", migrations.add_maintenance),
        ("ALTER TABLE upkeep_runs DROP COLUMN compared", migrations.add_comparisons),
    ],
)
def test_a_store_gets_the_record_of_maintenance(
    database: Database, lacks: str, since: migrations.Migration
) -> None:
    with database.begin() as connection:
        connection.execute(text(lacks))
        before = migrations.MIGRATIONS.index(since)
        connection.execute(text(f"UPDATE schema_version SET version = {before}"))
        migrate(connection)
    assert MaintenanceRuns(database).runs(1) == ()


def test_runs_of_earlier_releases_name_no_engine(database: Database) -> None:
    ledger = SqlLedger(database)
    with database.begin() as connection:
        connection.execute(text("ALTER TABLE refresh_runs DROP COLUMN execution_target"))
        before = migrations.MIGRATIONS.index(migrations.add_execution_target)
        connection.execute(text(f"UPDATE schema_version SET version = {before}"))
        migrate(connection)
    ledger.record(run(execution_target="remote/night"))
    assert ledger.runs() == (run(execution_target="remote/night"),)


def test_a_migration_that_fails_changes_nothing(database: Database) -> None:
    def break_half_way(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE half (x INTEGER)"))
        raise RuntimeError("halt")

    with pytest.raises(RuntimeError, match="halt"), database.begin() as connection:
        migrate(connection, (*migrations.MIGRATIONS, break_half_way))
    with database.read() as connection:
        assert current_version(connection) == len(migrations.MIGRATIONS)
        names = connection.execute(text("SELECT name FROM sqlite_master")).scalars().all()
        assert "half" not in names


def test_a_store_of_a_newer_program_is_refused(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text("UPDATE schema_version SET version = 99"))
    with pytest.raises(ServerError) as caught:
        database.open()
    assert caught.value.code == "STORE_VERSION"
    assert "schema version 99" in caught.value.message
