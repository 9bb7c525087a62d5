"""Stores the contract suites run on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from tidegate_server.core.model.clock import new_id
from tidegate_server.gateway.store.database import Database

POSTGRES = "TIDEGATE_TEST_POSTGRES"


def sqlite_url(directory: Path) -> str:
    return f"sqlite:///{directory / 'store.db'}"


@contextmanager
def open_database(kind: str, directory: Path) -> Iterator[Database]:
    """Yield an empty open store of a kind; PostgreSQL gets a new database."""
    if kind == "sqlite":
        database = Database(sqlite_url(directory))
        database.open()
        try:
            yield database
        finally:
            database.close()
        return
    url = os.environ.get(POSTGRES)
    if not url:
        pytest.skip(f"{POSTGRES} names no PostgreSQL server")
    name = f"tidegate_{new_id().replace('-', '')}"
    database = Database(make_url(url).set(database=name).render_as_string(hide_password=False))
    database.open()
    try:
        yield database
    finally:
        database.close()
        admin = Database(url)
        with admin.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f'DROP DATABASE "{name}"'))
        admin.close()
