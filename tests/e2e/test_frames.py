"""Values of numpy, pandas and polars go to the server and come back."""

from __future__ import annotations

from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa

from tests.support.fixtures.server import Server

pytestmark = pytest.mark.spark

NESTED = (
    "SELECT id, array(id, id + 1) AS a, named_struct('x', id, 'y', array('b')) AS s, "
    "array(named_struct('d', DATE'2024-01-01')) AS n, map('k', id) AS m FROM range(3) ORDER BY id"
)


@pytest.mark.parametrize(
    ("value", "spark_type", "answer"),
    [
        (pd.NaT, "void", None),
        (pd.NA, "void", None),
        (np.datetime64("NaT"), "void", None),
        (np.bool_(True), "boolean", True),
        (np.int64(-7), "int", -7),
        (np.float32(0.1), "float", 0.1),
        (np.float32("-inf"), "float", float("-inf")),
        (np.float64(0.1), "double", 0.1),
        (np.datetime64("2024-02-29"), "date", date(2024, 2, 29)),
        (
            np.datetime64("2024-01-02T03:04:05.123456789"),
            "timestamp",
            datetime.fromisoformat("2024-01-02 03:04:05.123456"),
        ),
        (
            pd.Timestamp("2024-01-02 03:04:05.123456789"),
            "timestamp",
            datetime.fromisoformat("2024-01-02 03:04:05.123456"),
        ),
        (np.timedelta64(25, "h"), "interval day to second", timedelta(hours=25)),
        (np.array([[1.5], [2.0]]), "array<array<double>>", [[1.5], [2.0]]),
    ],
)
def test_a_parameter_arrives_with_its_type(
    server: Server, value: Any, spark_type: str, answer: object
) -> None:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT ?, typeof(?)", (value, value))
        assert cursor.fetchall() == [(answer, spark_type)]


def test_markers_are_found_behind_raw_strings_and_nested_comments(server: Server) -> None:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT /* a /* b */ ? */ r'C:\\', ?, 'x?'", (1,))
        assert cursor.fetchall() == [("C:\\", 1, "x?")]


def test_polars_reads_arrays_and_structs(server: Server) -> None:
    with closing(server.connect()) as connection:
        frame = pl.read_database(NESTED, connection)
    assert frame.schema == {
        "id": pl.Int64,
        "a": pl.List(pl.Int64),
        "s": pl.Struct({"x": pl.Int64, "y": pl.List(pl.String)}),
        "n": pl.List(pl.Struct({"d": pl.String})),
        "m": pl.Struct({"k": pl.Int64}),
    }
    assert frame.row(2) == (2, [2, 3], {"x": 2, "y": ["b"]}, [{"d": "2024-01-01"}], {"k": 2})


def test_polars_reads_nested_columns_without_rows(server: Server) -> None:
    with closing(server.connect()) as connection:
        frame = pl.read_database(f"SELECT * FROM ({NESTED}) WHERE id < 0", connection)
    assert frame.columns == ["id", "a", "s", "n", "m"]
    assert frame.height == 0


def test_polars_reads_arrays_and_structs_through_sqlalchemy(server: Server) -> None:
    engine = sa.create_engine(f"tidegate://{server.host}:{server.port}/default")
    with engine.connect() as connection:
        frame = pl.read_database(NESTED, connection)
    engine.dispose()
    assert frame["s"].to_list()[1] == {"x": 1, "y": ["b"]}
    assert frame["a"].to_list() == [[0, 1], [1, 2], [2, 3]]


MANY = (
    "SELECT id, CAST(id AS DECIMAL(12, 2)) AS price, "
    "timestamp_seconds(id) AS at, concat('n', id) AS name FROM range(120000)"
)


def test_polars_and_duckdb_read_a_large_result_from_the_cursor(server: Server) -> None:
    total = 120_000 * 119_999 // 2
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        frame = pl.DataFrame(cursor.execute(MANY))
        assert frame.schema["price"] == pl.Decimal(12, 2)
        assert (frame.height, frame["id"].sum()) == (120_000, total)
        assert cursor.execute(MANY).fetch_polars().equals(frame)
        cursor.execute(MANY)
        found = duckdb.sql("SELECT count(DISTINCT name), sum(price), max(id) FROM cursor")
        assert found.fetchall() == [(120_000, Decimal(total), 119_999)]
        reader = cursor.execute(MANY).fetch_record_batches()
        assert sum(batch.num_rows for batch in reader) == 120_000
