"""What a PostgreSQL server says when it cannot serve, as errors of the store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from tests.contract.stores import POSTGRES, open_database
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.catalog.sql import SqlCatalog
from tidegate_server.gateway.store.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database("postgresql", tmp_path) as database:
        yield database


def test_a_server_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"postgresql+psycopg://tidegate@/store?host={tmp_path}")
    with pytest.raises(ServerError) as caught:
        database.open()
    assert (caught.value.code, caught.value.sqlstate) == ("STORE_UNAVAILABLE", "08006")
    assert str(tmp_path) not in str(caught.value)


def test_a_refused_login_is_no_silence(database: Database) -> None:
    url = make_url(os.environ[POSTGRES]).set(username="nobody_of_that_name")
    other = Database(url.render_as_string(hide_password=False))
    with pytest.raises(ServerError, match="rejects the connection") as caught:
        other.check()
    assert caught.value.code == "STORE_UNAVAILABLE"


def test_a_connection_that_is_lost_in_a_transaction_fails_it_alone(database: Database) -> None:
    with pytest.raises(ServerError) as caught, database.begin() as victim:
        own = victim.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with database.begin() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": own})
        victim.execute(text("SELECT 1"))
    assert caught.value.code == "STORE_UNAVAILABLE"
    assert database.failures == {"STORE_UNAVAILABLE": 1}
    database.check()
    assert database.trouble is None


def test_a_lock_that_is_not_had_in_time_is_busy(database: Database) -> None:
    with database.begin() as holder:
        holder.execute(text("LOCK TABLE schema_version"))
        with pytest.raises(ServerError) as caught, database.begin() as other:
            other.execute(text("SET LOCAL lock_timeout = '50ms'"))
            other.execute(text("LOCK TABLE schema_version"))
    assert (caught.value.code, caught.value.sqlstate) == ("STORE_BUSY", "40001")


def test_a_server_that_takes_no_changes_is_unavailable(database: Database) -> None:
    with pytest.raises(ServerError, match="is read-only"), database.begin() as standby:
        standby.execute(text("SET TRANSACTION READ ONLY"))
        standby.execute(text("UPDATE schema_version SET version = version"))


def test_tables_that_are_missing_are_damage(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text("DROP TABLE materialized_tables CASCADE"))
    with pytest.raises(ServerError) as caught:
        SqlCatalog(database).tables()
    assert caught.value.code == "STORE_DAMAGED"
