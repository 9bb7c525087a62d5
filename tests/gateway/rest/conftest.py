"""A REST interface for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.examples import table
from tests.gateway.rest.parts import Rest, rest_over_sqlite


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    """The interface with one table of id ``t-1``, partitioned by day."""
    with rest_over_sqlite(tmp_path) as parts:
        parts.catalog.create(table())
        yield parts
