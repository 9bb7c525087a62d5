"""A PostgreSQL server of this run's own, where its programs are installed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.contract.stores import POSTGRES
from tests.support.postgres import USER, find_programs, running_postgres


@pytest.fixture(scope="session", autouse=True)
def postgres() -> Iterator[None]:
    """Name a server in the environment, unless the environment names one already."""
    programs = find_programs()
    if os.environ.get(POSTGRES) or programs is None:
        yield
        return
    with running_postgres(programs, "-c listen_addresses=''") as directory:
        os.environ[POSTGRES] = f"postgresql+psycopg://{USER}@/postgres?host={directory}"
        try:
            yield
        finally:
            del os.environ[POSTGRES]
