"""Statements that write many columns keep fewer values of each in memory."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest

from tests.engine.conftest import Session

pytestmark = pytest.mark.spark

PAGE_ROWS = "parquet.page.row.count.limit"


def values(columns: int) -> str:
    """Return a query of 20,000 rows in which each value occurs twice, far apart."""
    names = ", ".join(f"id % 10000 AS c{number}" for number in range(columns))
    return f"SELECT {names} FROM range(0, 20000, 1, 1)"


def with_dictionary(session: Session, table: str) -> list[bool]:
    """Say of each file that was written with all rows whether its first column has a dictionary.

    It has one if the first page holds values twice.
    """
    [(name,)] = session.rows(f"SELECT min(_metadata.file_path) FROM {table}")
    files = Path(urlparse(str(name)).path).parent.rglob("*.parquet")
    metadata = [pq.read_metadata(file) for file in files]
    whole = [each for each in metadata if each.num_rows == 20_000]
    return [each.row_group(0).column(0).has_dictionary_page for each in whole]


@pytest.mark.parametrize(("columns", "expected"), [(50, True), (100, False)])
def test_what_is_kept_depends_on_the_columns(
    session: Session, schema: str, columns: int, expected: bool
) -> None:
    session.execute(f"CREATE TABLE made USING delta AS {values(columns)}")
    session.execute("UPDATE made SET c1 = -1 WHERE c0 = 7")
    session.execute(
        "MERGE INTO made USING (SELECT 8L AS k) ON c0 = k WHEN MATCHED THEN UPDATE SET c1 = -2"
    )
    assert with_dictionary(session, "made") == [expected] * 3
    session.execute(f"CREATE TABLE filled USING delta AS {values(columns)} WHERE false")
    session.execute(f"INSERT INTO filled {values(columns)}")
    session.execute(f"INSERT OVERWRITE filled {values(columns)}")
    assert with_dictionary(session, "filled") == [expected] * 2
    session.execute(f"CREATE TABLE files USING parquet AS {values(columns)}")
    assert with_dictionary(session, "files") == [expected]
    assert session.rows(f"SET {PAGE_ROWS}") == [(PAGE_ROWS, "<undefined>")]


def test_what_the_user_has_set_is_kept(session: Session, schema: str) -> None:
    session.execute(f"SET {PAGE_ROWS} = 20000")
    session.execute(f"CREATE TABLE made USING delta AS {values(100)}")
    assert with_dictionary(session, "made") == [True]
    assert session.rows(f"SET {PAGE_ROWS}") == [(PAGE_ROWS, "20000")]
