"""Results in Arrow's format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Context, Decimal, localcontext
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate
from tests.driver.fake_server import Answer, FakeServer
from tidegate import aio
from tidegate.arrow import _column_values
from tidegate.wire.schema import WireType

NATIVE = {"tidegate.result.format": "arrow"}


def stream(compression: str | None = None, **columns: pa.Array) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@contextmanager
def cursor_on(
    columns: Sequence[tuple[str, str | WireType]], pages: Sequence[Sequence[bytes]]
) -> Iterator[tidegate.Cursor]:
    answers = {"q": Answer(columns, streams=pages)}
    with (
        FakeServer(answers, configuration=NATIVE) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor.execute("q")


AT = datetime(2020, 7, 1, 10, tzinfo=UTC)
VALUES: list[tuple[str | WireType, pa.Array, list[Any]]] = [
    ("INT", pa.array([1, None], pa.int32()), [1, None]),
    ("DOUBLE", pa.array([0.5, None]), [0.5, None]),
    (
        "FLOAT",
        pa.array([1.1, 3.4028235e38, 1e-45, float("inf"), None], pa.float32()),
        [1.1, 3.4028235e38, 1e-45, float("inf"), None],
    ),
    ("BOOLEAN", pa.array([True, None]), [True, None]),
    ("STRING", pa.array(["ä", None]), ["ä", None]),
    ("BINARY", pa.array([b"\xff", None]), [b"\xff", None]),
    ("DECIMAL", pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)), [Decimal("1.50"), None]),
    ("DATE", pa.array([date(2020, 1, 2), None]), [date(2020, 1, 2), None]),
    (
        "TIMESTAMP",
        pa.array([AT.replace(tzinfo=None), None], pa.timestamp("us")),
        [AT.replace(tzinfo=None), None],
    ),
    (
        "TIMESTAMP",
        pa.array([AT, None], pa.timestamp("us", tz="UTC")),
        [AT.replace(tzinfo=None), None],
    ),
    (
        WireType("TIMESTAMP", zone="Europe/Berlin"),
        pa.array([AT, None], pa.timestamp("us", tz="UTC")),
        [AT.replace(tzinfo=None, hour=12), None],
    ),
    ("ARRAY", pa.array(["[1]", None]), [[1], None]),
    ("STRUCT", pa.array(['{"a":1}', None]), [{"a": 1}, None]),
    ("INTERVAL_YEAR_MONTH", pa.array(["1-2", None]), ["1-2", None]),
]


@pytest.mark.parametrize(("kind", "array", "values"), VALUES)
def test_a_value_arrives_in_its_python_type(
    kind: str | WireType, array: pa.Array, values: list[Any]
) -> None:
    with cursor_on([("v", kind)], [[stream(v=array)]]) as cursor:
        assert cursor.fetchall() == [(value,) for value in values]


@given(data=st.data(), digits=st.integers(1, 38), scale=st.integers(0, 38))
def test_decimals_are_exact_whatever_the_precision_of_the_thread(
    data: st.DataObject, digits: int, scale: int
) -> None:
    scale = min(scale, digits)
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1)
    numbers = data.draw(st.lists(st.none() | unscaled, max_size=9))
    with localcontext(Context(prec=60)):
        values = [None if n is None else Decimal(n).scaleb(-scale) for n in numbers]
    whole = pa.array(values, pa.decimal128(digits, scale))
    chunks = pa.chunked_array([whole.slice(len(whole) // 3), whole[: len(whole) // 3]], whole.type)
    with localcontext(Context(prec=1)):
        found = _column_values(chunks, WireType("DECIMAL"))
    # The text also tells the number of digits after the point.
    assert [str(value) for value in found] == [str(value) for value in chunks.to_pylist()]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_streams_may_be_compressed(compression: str | None) -> None:
    sent = stream(compression, n=pa.array(range(1000)))
    with cursor_on([("n", "BIGINT")], [[sent]]) as cursor:
        assert len(cursor.fetchall()) == 1000


def test_a_page_may_hold_several_streams() -> None:
    pages = [[stream(n=pa.array([1])), stream(n=pa.array([2, 3]))], [stream(n=pa.array([4]))]]
    with cursor_on([("n", "BIGINT")], pages) as cursor:
        assert [n for (n,) in cursor] == [1, 2, 3, 4]


def test_a_page_without_streams_is_an_empty_result() -> None:
    with cursor_on([("n", "BIGINT")], [[]]) as cursor:
        assert cursor.fetchall() == []


def test_an_empty_page_with_more_to_come_is_not_the_end() -> None:
    with cursor_on([("n", "BIGINT")], [[], [stream(n=pa.array([1]))]]) as cursor:
        assert cursor.fetchall() == [(1,)]


def test_a_table_has_all_rows_that_are_left_under_the_servers_names() -> None:
    pages = [[stream(x=pa.array([1, 2]))], [stream(x=pa.array([3]))]]
    with cursor_on([("count(1)", "BIGINT")], pages) as cursor:
        cursor.fetchone()
        assert cursor.fetch_arrow_table().to_pydict() == {"count(1)": [2, 3]}


@pytest.mark.parametrize(
    ("given", "of_rows", "of_tables"), [(None, 10_000, 50_000), (7, 7, 7), (60_000, 60_000, 60_000)]
)
def test_tables_are_fetched_in_larger_pages(
    given: int | None, of_rows: int, of_tables: int
) -> None:
    answers = {"q": Answer([("n", "INT")], streams=[[stream(n=pa.array([1], pa.int32()))]])}
    with (
        FakeServer(answers, configuration=NATIVE) as server,
        tidegate.connect("127.0.0.1", server.port, fetch_size=given) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("q").fetchall()
        cursor.execute("q").fetchmany_arrow(3)
        cursor.execute("q").fetch_arrow_table()
        cursor.execute("q").fetch_record_batches().read_all()
        asked = [request.maxRows for request in server.requests("FetchResults")]
    assert asked == [of_rows, of_rows, of_tables, of_tables]


def test_tables_come_in_the_size_asked_for_across_pages() -> None:
    pages = [[stream(n=pa.array([1, 2]))], [stream(n=pa.array([3]))]]
    with cursor_on([("n", "BIGINT")], pages) as cursor:
        assert [cursor.fetchmany_arrow(2).num_rows for _ in range(3)] == [2, 1, 0]


def test_an_empty_table_has_the_types_of_its_columns() -> None:
    columns = [("d", WireType("DECIMAL", 9, 2)), ("t", "TIMESTAMP"), ("a", "ARRAY")]
    with cursor_on(columns, [[]]) as cursor:
        types = cursor.fetch_arrow_table().schema.types
    assert types == [pa.decimal128(9, 2), pa.timestamp("us"), pa.string()]


def test_a_timestamp_beyond_pythons_years_is_a_data_error() -> None:
    far = pa.array([400_000_000_000_000_000], pa.timestamp("us"))
    with (
        cursor_on([("t", "TIMESTAMP")], [[stream(t=far)]]) as cursor,
        pytest.raises(tidegate.DataError, match="1 to 9999"),
    ):
        cursor.fetchall()


def test_a_table_is_made_of_thrift_columns_where_the_server_sends_no_arrow() -> None:
    answer = Answer(
        [("n", "INT"), ("d", "DATE"), ("a", "ARRAY"), ("m", WireType("DECIMAL", 5, 1))],
        [(1, "2020-01-02", "[1]", "1.5"), (None, None, None, None)],
    )
    with (
        FakeServer({"q": answer}) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
    ):
        table = connection.cursor().execute("q").fetch_arrow_table()
    assert table.schema.types == [pa.int32(), pa.date32(), pa.string(), pa.decimal128(5, 1)]
    assert table.to_pylist()[0] == {
        "n": 1,
        "d": date(2020, 1, 2),
        "a": "[1]",
        "m": Decimal("1.5"),
    }


def test_rows_become_a_data_frame() -> None:
    with cursor_on([("n", "BIGINT")], [[stream(n=pa.array([1, 2]))]]) as cursor:
        assert list(cursor.fetch_pandas()["n"]) == [1, 2]


def numbered_pages(count: int) -> list[list[bytes]]:
    return [[stream(n=pa.array(range(at * 10, at * 10 + 10), pa.int32()))] for at in range(count)]


def test_record_batches_are_fetched_while_they_are_read() -> None:
    answers = {"q": Answer([("n", "INT")], streams=numbered_pages(6))}
    with (
        FakeServer(answers, configuration=NATIVE) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("q")
        assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
        reader = cursor.fetch_record_batches()
        assert reader.schema == pa.schema({"n": pa.int32()})
        assert reader.read_next_batch().column(0).to_pylist() == list(range(3, 10))
        assert len(server.requests("FetchResults")) == 1
        assert reader.read_next_batch().column(0).to_pylist() == list(range(10, 20))
        assert len(server.requests("FetchResults")) == 2
        assert reader.read_all()["n"].to_pylist() == list(range(20, 60))
        assert cursor.fetchone() is None


def test_record_batches_of_no_rows_have_the_columns() -> None:
    with cursor_on([("n", "INT"), ("at", "TIMESTAMP")], []) as cursor:
        table = cursor.fetch_record_batches().read_all()
        assert (table.num_rows, table.column_names) == (0, ["n", "at"])


def test_record_batches_come_without_the_servers_arrow() -> None:
    answer = Answer([("n", "INT")], [(n,) for n in range(25)], page=10)
    with (
        FakeServer({"q": answer}) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
        connection.cursor() as cursor,
    ):
        batches = list(cursor.execute("q").fetch_record_batches())
        assert [batch.num_rows for batch in batches] == [10, 10, 5]


def test_a_lost_connection_is_an_error_of_the_reader() -> None:
    answers = {"q": Answer([("n", "INT")], streams=numbered_pages(3))}
    with (
        FakeServer(answers, configuration=NATIVE) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
        connection.cursor() as cursor,
    ):
        reader = cursor.execute("q").fetch_record_batches()
        reader.read_next_batch()
        server.drop_connections()
        with pytest.raises(tidegate.OperationalError, match="connection lost"):
            reader.read_all()


def test_other_libraries_read_the_cursor() -> None:
    pages = numbered_pages(3)
    with cursor_on([("n", "INT")], pages) as cursor:
        assert pl.DataFrame(cursor)["n"].sum() == 435
    with cursor_on([("n", "INT")], pages) as cursor:
        assert pa.table(cursor).num_rows == 30
    with cursor_on([("n", "INT")], pages) as cursor:
        relation = duckdb.from_arrow(cursor)
        assert relation.sum("n").fetchall() == [(435,)]
        with pytest.raises(duckdb.Error, match="the rows were read before"):
            relation.sum("n").fetchall()
    with cursor_on([("n", "INT")], pages) as cursor:
        assert cursor.fetch_polars().shape == (30, 1)


def test_batches_are_awaited() -> None:
    async def work(port: int) -> None:
        async with aio.connect("127.0.0.1", port=port) as connection:
            cursor = await connection.cursor().execute("q")
            sizes = [batch.num_rows async for batch in cursor.fetch_record_batches()]
            assert sizes == [10, 10, 10]
            await cursor.execute("q")
            assert (await cursor.fetch_polars()).shape == (30, 1)

    answers = {"q": Answer([("n", "INT")], streams=numbered_pages(3))}
    with FakeServer(answers, configuration=NATIVE) as server:
        asyncio.run(work(server.port))
