"""Tables of files that one connection changes while others read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa

from tests.support.fixtures.server import Server, last_rows

pytestmark = pytest.mark.spark

Run = Callable[..., Any]


@pytest.fixture
def both(server: Server) -> Iterator[tuple[Run, Run]]:
    """Execute statements of two connections in one schema."""
    with ExitStack() as stack:
        runs = []
        for _ in range(2):
            connection = stack.enter_context(closing(server.connect()))
            cursor = stack.enter_context(closing(connection.cursor()))
            runs.append(partial(last_rows, cursor))
        first, second = runs
        first("CREATE SCHEMA shared", "USE shared")
        second("USE shared")
        yield first, second
        first("DROP SCHEMA shared CASCADE")


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_both_connections_see_what_either_writes(both: tuple[Run, Run], format: str) -> None:
    first, second = both
    first(f"CREATE TABLE t (a INT) USING {format}", "INSERT INTO t VALUES (1)")
    assert second("SELECT a FROM t") == [(1,)]
    first("INSERT INTO t VALUES (2)")
    assert second("SELECT a FROM t ORDER BY a") == [(1,), (2,)]
    second("INSERT OVERWRITE t VALUES (3)")
    assert first("SELECT a FROM t") == [(3,)]
    first("DROP TABLE t", f"CREATE TABLE t (a STRING, b INT) USING {format}")
    first("INSERT INTO t VALUES ('x', 4)")
    assert second("SELECT * FROM t") == [("x", 4)]


def test_a_table_that_pandas_replaces_is_read_over_every_connection_of_a_pool(
    both: tuple[Run, Run], server: Server
) -> None:
    url = f"tidegate://ada@{server.host}:{server.port}/shared"
    engine = sa.create_engine(url, pool_size=2)
    read = sa.text("SELECT a FROM t")
    with engine.connect() as one, engine.connect() as other:
        for number in range(3):
            frame = pd.DataFrame({"a": [number], **({"b": ["x"]} if number else {})})
            frame.to_sql("t", one, index=False, if_exists="replace")
            assert [c.execute(read).scalars().all() for c in (one, other)] == [[number]] * 2
    engine.dispose()
