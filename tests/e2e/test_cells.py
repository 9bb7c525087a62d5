"""Cell by cell the same as Spark's own Thrift server, for every type, on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from operator import eq
from typing import Any

import numpy as np
import pytest
from pyhive import hive

from bench.servers import spark_thrift_server
from tests.support.fixtures.server import Server
from tests.support.full_run import FULL

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.thorough]

ROWS = 10_000 if FULL else 4_000
PAGE = ROWS // 2
HASH = "xxhash64(id, '{salt}')"
SETTINGS = ("SET spark.sql.session.timeZone=America/St_Johns", "SET spark.sql.ansi.enabled=true")


def extremes(values: tuple[str, ...], otherwise: str) -> str:
    """Return an expression with each extreme value once, a null, and generated values elsewhere."""
    cases = " ".join(f"WHEN {place} THEN {value}" for place, value in enumerate(values))
    return f"CASE id {cases} WHEN {len(values)} THEN NULL ELSE {otherwise} END"


def _integer(kind: str, low: str, high: str) -> str:
    return extremes(
        (f"CAST('{low}' AS {kind})", f"CAST('{high}' AS {kind})", f"CAST(0 AS {kind})"),
        f"CAST(pmod({HASH}, 1L << (id % 62)) % CAST('{high}' AS BIGINT) AS {kind})",
    )


def _decimal(precision: int, scale: int) -> str:
    whole, part = "9" * (precision - scale), "9" * scale
    most = f"{whole or '0'}.{part}" if scale else whole
    kind = f"DECIMAL({precision},{scale})"
    digits = f"CAST(abs({HASH} % 1000000000000000000L) AS STRING)"
    digits = f"concat({digits}, reverse({digits}), {digits})"
    text = (
        f"concat(IF(id % 2 = 0, '-', ''), '0', substr({digits}, 1, id % {precision - scale + 1}), "
        f"'.', substr({digits}, 3, {scale}))"
    )
    return extremes(
        (f"CAST('{most}' AS {kind})", f"CAST('-{most}' AS {kind})", f"CAST(0 AS {kind})"),
        f"CAST({text} AS {kind})",
    )


def _floating(kind: str, extreme: tuple[str, ...]) -> str:
    return extremes(
        (*(f"CAST('{value}' AS {kind})" for value in extreme), f"-CAST(0 AS {kind})"),
        f"CAST({HASH} / pow(10, id % 38) AS {kind})",
    )


_MOMENT = f"pmod({HASH}, 4102444800000000L * 4) - 4102444800000000L"
PLAIN = {
    "boolean": extremes(("true", "false"), f"{HASH} % 2 = 0"),
    "tinyint": _integer("TINYINT", "-128", "127"),
    "smallint": _integer("SMALLINT", "-32768", "32767"),
    "int": _integer("INT", "-2147483648", "2147483647"),
    "bigint": _integer("BIGINT", "-9223372036854775808", "9223372036854775807"),
    "float": _floating("FLOAT", ("NaN", "Infinity", "-Infinity", "1.4E-45", "3.4028235E38", "0.1")),
    "double": _floating("DOUBLE", ("NaN", "Infinity", "-Infinity", "4.9E-324", "1.0E23", "0.1")),
    "decimal_5_2": _decimal(5, 2),
    "decimal_18_6": _decimal(18, 6),
    "decimal_38_0": _decimal(38, 0),
    "decimal_38_18": _decimal(38, 18),
    "decimal_10_10": _decimal(10, 10),
    "string": extremes(
        ("''", "' '", "'é\\n\\t\\\\'", "'\\u0000x'", "'日本語 🚀'", "repeat('long', 5000)"),
        f"concat(char(33 + id % 90), sha2(CAST({HASH} AS STRING), 256), '\\u00df')",
    ),
    "char_8": "CAST(substr(sha2(CAST(id AS STRING), 256), 1, id % 8) AS CHAR(8))",
    "varchar_8": "CAST(substr(sha2(CAST(id AS STRING), 256), 1, id % 8) AS VARCHAR(8))",
    "binary": extremes(("X''", "X'00FF'"), f"unhex(sha2(CAST({HASH} AS STRING), 256))"),
    "date": extremes(
        ("DATE'0001-01-01'", "DATE'9999-12-31'", "DATE'1582-10-15'", "DATE'1969-12-31'"),
        f"date_add(DATE'1900-01-01', CAST(pmod({HASH}, 90000) AS INT))",
    ),
    "timestamp": extremes(
        (
            "TIMESTAMP'1901-01-01 00:00:00.1'",
            "TIMESTAMP'9999-12-31 23:59:59.999999'",
            "TIMESTAMP'2024-03-10 02:30:00'",
            "TIMESTAMP'1969-12-31 23:59:59.999999'",
        ),
        f"timestamp_micros({_MOMENT})",
    ),
    "timestamp_ntz": extremes(
        ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
        f"CAST(timestamp_micros({_MOMENT}) AS TIMESTAMP_NTZ)",
    ),
    "day_time": extremes(
        ("INTERVAL '0' SECOND", "INTERVAL '-1 02:03:04.000005' DAY TO SECOND"),
        f"make_dt_interval(0, 0, 0, pmod({HASH}, 100000000000000L) / 1000000.0 - 40000000)",
    ),
    "year_month": extremes(
        ("INTERVAL '0' MONTH", "INTERVAL '-178956970-8' YEAR TO MONTH"),
        f"make_ym_interval(0, CAST(pmod({HASH}, 100000) - 50000 AS INT))",
    ),
    "hours": "CAST(make_dt_interval(0, CAST(id % 99 AS INT) - 50) AS INTERVAL HOUR TO MINUTE)",
    "days": "CAST(make_dt_interval(CAST(id AS INT) - 5000) AS INTERVAL DAY)",
    "months": "CAST(make_ym_interval(0, CAST(id AS INT) - 5000) AS INTERVAL MONTH)",
    "variant": extremes(
        ("parse_json('null')", "parse_json('\"\"')", "parse_json('1e300')", "parse_json('[]')"),
        'parse_json(concat(\'{{"k": [\', id, \', null, 1.50, "é", {{"b": true}}]}}\'))',
    ),
    "calendar": f"make_interval(CAST(pmod({HASH}, 9) AS INT), CAST(id % 14 AS INT), 0, 3, 4, 5, 6)",
    "nothing": "NULL",
}
NESTED = {
    "array_of_int": "array(CAST(id AS INT), NULL, -1)",
    "array_of_string": "array(concat('q\"', id), '', NULL)",
    "map_of_string": "map(concat('k', id), id, 'none', NULL)",
    "struct": "named_struct('a', id, 'b', array(id > 3, NULL), 'c', struct(CAST(id AS STRING)))",
}
"""Nested values that Spark prints as JSON, so that both can be read and compared."""


@pytest.fixture(scope="module")
def peers(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """A connection to this server and one to Spark's, with the same settings."""
    server.wait_for_engine()
    with (
        spark_thrift_server(tmp_path_factory.mktemp("peer")) as spark,
        closing(hive.connect(server.host, server.port, username="cells")) as ours,
        closing(hive.connect("127.0.0.1", spark.port, username="cells")) as theirs,
    ):
        for connection in (ours, theirs):
            for setting in SETTINGS:
                connection.cursor().execute(setting)
        yield ours, theirs


@pytest.mark.parametrize("kind", PLAIN)
def test_cells_are_the_same(peers: tuple[Any, Any], kind: str) -> None:
    query = f"SELECT {PLAIN[kind].format(salt=kind)} AS c FROM range({ROWS}) ORDER BY id"
    ours, theirs = (column(connection, query) for connection in peers)
    same = _same_float if kind == "float" else eq
    cells = enumerate(zip(ours, theirs, strict=True))
    differ = [(place, a, b) for place, (a, b) in cells if not same(a, b)]
    assert len(ours) == ROWS
    assert not differ, f"{len(differ)} cells differ, the first: {differ[:5]}"


@pytest.mark.parametrize("kind", NESTED)
def test_nested_cells_mean_the_same_and_are_json(peers: tuple[Any, Any], kind: str) -> None:
    query = f"SELECT {NESTED[kind]} AS c FROM range({ROWS}) ORDER BY id"
    ours, theirs = (column(connection, query) for connection in peers)
    assert [json.loads(cell) for cell in ours] == [_loose(cell) for cell in theirs]


def column(connection: Any, query: str) -> list[Any]:
    """Return a result's only column as the wire has it, None for nulls; NaN as text."""
    cursor = connection.cursor(arraysize=PAGE)
    cursor.execute(query)
    cells: list[Any] = []
    handle = cursor._operationHandle
    while True:
        request = hive.ttypes.TFetchResultsReq(
            operationHandle=handle,
            orientation=hive.ttypes.TFetchOrientation.FETCH_NEXT,
            maxRows=PAGE,
        )
        page = connection.client.FetchResults(request)
        assert page.status.statusCode == hive.ttypes.TStatusCode.SUCCESS_STATUS, page.status
        read = _cells(page.results.columns[0])
        if not read:
            cursor.close()
            return cells
        cells += read


def _cells(wire: Any) -> list[Any]:
    typed = next(value for value in vars(wire).values() if value is not None)
    nulls = typed.nulls if isinstance(typed.nulls, bytes) else typed.nulls.encode("latin-1")

    def null(place: int) -> bool:
        return place // 8 < len(nulls) and bool(nulls[place // 8] >> place % 8 & 1)

    return [
        None if null(place) else repr(value) if isinstance(value, float) else value
        for place, value in enumerate(typed.values)
    ]


def _same_float(ours: str | None, theirs: str | None) -> bool:
    """Say whether both are the same float and ours is its shortest text.

    Before Java 19 a JVM sometimes prints a digit too many (JDK-4511638).
    """
    if ours is None or theirs is None or ours == theirs:
        return ours == theirs
    single = np.float32(ours)
    return bool(single == np.float32(theirs)) and len(ours) <= len(theirs)


def _loose(cell: str) -> Any:
    """Read Spark's text of a nested value; it leaves quotes inside strings unescaped."""
    return json.loads(cell.replace('q"', 'q\\"'))
