"""Translated statements have Flink's values, as its documentation and its code say.

Many expressions share one query, since each query takes its time.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random

import pytest

from tests.support.fixtures.spark import Lake
from tidegate_server.core.sql.flink.translate import translate_query

pytestmark = pytest.mark.spark

ROW = r"""
SELECT 7 AS i, CAST(2 AS BIGINT) AS l, CAST(7.50 AS DECIMAL(10, 2)) AS d, CAST(2.5 AS DOUBLE) AS f,
  CAST(1 AS TINYINT) AS y, 'Hello' AS s, CAST(NULL AS STRING) AS n, TRUE AS b,
  TIMESTAMP_NTZ '2024-03-10 02:30:15.123456' AS ts, DATE '2024-03-10' AS dt,
  TIMESTAMP '2024-03-13 10:20:30.5' AS ltz, array('a', NULL, 'c') AS arr, map('k', 1) AS m,
  '{"a": {"b": 1}, "c": "x", "d": [1, 2], "e": null, "f": true}' AS j, 'a_b%c' AS p, 'x\\y' AS bs
"""
"""One row; the session's time zone has no 02:30 on this day."""
ZONE = "America/New_York"
SUFFIX = ", 'DAY')"


def _time(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0
) -> datetime:
    """Return a local time: TIMESTAMP has no zone."""
    return datetime(year, month, day, hour, minute, second, micro)  # noqa: DTZ001


NUMBERS: dict[str, object] = {
    "i / l": 3,
    "-i / 2": -3,
    "i / -2": -3,
    "1 / 2": 0,
    "i / 2 * 2": 6,
    "2 * i / 4": 3,
    "i / 2 / 2": 1,
    "d / 2": Decimal("3.7500000000000"),
    "d / i": Decimal("1.0714285714286"),
    "1 / 2.0": Decimal("0.500000"),
    "f / 2": 1.25,
    "f / 0": float("inf"),
    "-f / 0": float("-inf"),
    "i / CAST(2 AS FLOAT)": 3.5,
    "n / 2": None,
    "MOD(i, 4)": 3,
    "i % 4": 3,
    "FLOOR(f)": 2.0,
    "CEIL(-f)": -2.0,
    "FLOOR(d)": Decimal("7"),
    "CEIL(i)": 7,
    "TRUNCATE(d, 1)": Decimal("7.5"),
    "TRUNCATE(-42.345, 2)": Decimal("-42.34"),
    "TRUNCATE(f)": 2.0,
    "TRUNCATE(i, 0)": 7,
    "ROUND(f)": 3.0,
    "GREATEST(1, NULL, 3)": None,
    "LEAST(3, 1)": 1,
    "HEX(255)": "FF",
    "BIN(4)": "100",
    "CAST(b AS STRING)": "TRUE",
    "CAST(i AS STRING)": "7",
    "CAST('abcdef' AS VARCHAR(3))": "abc",
    "CAST('ab' AS CHAR(4))": "ab  ",
    "CAST('abcdef' AS CHAR(4))": "abcd",
    "CAST('abc' AS BYTES)": bytearray(b"abc"),
    "CAST('abc' AS BINARY(4))": bytearray(b"abc\0"),
    "CAST('abc' AS VARBINARY(2))": bytearray(b"ab"),
    "TRY_CAST('x' AS INT)": None,
    "CAST(1.5 AS DECIMAL)": Decimal("2"),
}
STRINGS: dict[str, object] = {
    r"'a\nb'": "a\\nb",
    r"'it''s \'": "it's \\",
    r"U&'\0041\+000042'": "AB",
    "SUBSTRING(s, 2, 3)": "ell",
    "SUBSTRING(s FROM 2)": "ello",
    "SUBSTRING(s, 0, 2)": "He",
    "SUBSTRING(s, -2)": "lo",
    "SUBSTRING(s, -9, 5)": "",
    "SUBSTRING(s, 2, -1)": None,
    "SUBSTRING(s, i - 6, 2)": "He",
    "POSITION('l' IN s)": 3,
    "LOCATE('l', s, 4)": 4,
    "INSTR(s, 'l')": 3,
    "SPLIT_INDEX('a|b||c', '|', 1)": "b",
    "SPLIT_INDEX('a|b||c', '|', 2)": "",
    "SPLIT_INDEX('a|b', '|', 5)": None,
    "SPLIT_INDEX('a|b', '|', -1)": None,
    "SPLIT_INDEX('', '|', 0)": None,
    "SPLIT_INDEX('a.b', SUBSTRING('.', 1), 1)": "b",
    r"REGEXP_EXTRACT('ab12', '([a-z]+)(\d+)', 2)": "12",
    r"REGEXP_EXTRACT('ab12', '[a-z]+')": "ab",
    "REGEXP_EXTRACT(s, 'z')": None,
    "REGEXP_REPLACE('foobar', 'oo|ar', '')": "fb",
    "REGEXP_REPLACE('ab', '(a)', '$1x')": "$1xb",
    r"REGEXP_REPLACE('ab', 'a', '\')": "\\b",
    "REGEXP_REPLACE('ab', 'a', CONCAT('$', '1'))": "$1b",
    "REGEXP('foobar', 'ob')": True,
    "LTRIM('  x')": "x",
    "LTRIM('xxay', 'x')": "ay",
    "RTRIM('axyy', 'y')": "ax",
    "BTRIM('  x ')": "x",
    "TRIM(BOTH 'x' FROM 'xax')": "a",
    "LPAD('hi', 4, '?')": "??hi",
    "LPAD('hi', -1, '?')": None,
    "CONCAT(s, n)": None,
    "CONCAT_WS('~', s, n, 'x')": "Hello~x",
    "s || n": None,
    "CHAR_LENGTH(s)": 5,
    r"bs LIKE 'x\y'": True,
    r"bs LIKE CONCAT('x\', '%')": True,
    "p LIKE 'a!_b!%c' ESCAPE '!'": True,
    "s NOT LIKE 'h%'": True,
    "FROM_BASE64('aGVsbG8=')": "hello",
    "TO_BASE64('hello')": "aGVsbG8=",
    "SHA256('')": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "STR_TO_MAP('a=1,b=2')": {"a": "1", "b": "2"},
    "OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6)": "xxxxxxxxx",
    "IFNULL(n, s)": "Hello",
    "n IS DISTINCT FROM s": True,
    "CASE WHEN i / 2 = 3 THEN 'three' ELSE 'other' END": "three",
}
TIMES: dict[str, object] = {
    "FLOOR(ts TO DAY)": _time(2024, 3, 10),
    "FLOOR(ts TO HOUR)": _time(2024, 3, 10, 2),
    "FLOOR(ts TO WEEK)": _time(2024, 3, 10),
    "FLOOR(TIMESTAMP '2024-03-13 01:00:00' TO WEEK)": _time(2024, 3, 10),
    "CEIL(ts TO HOUR)": _time(2024, 3, 10, 3),
    "CEIL(TIMESTAMP '2024-03-10 02:00:00' TO HOUR)": _time(2024, 3, 10, 2),
    "CEIL(ts TO MONTH)": _time(2024, 4, 1),
    "CEIL(TIMESTAMP '2024-01-31 00:00:00' TO MONTH)": _time(2024, 2, 1),
    "FLOOR(dt TO YEAR)": date(2024, 1, 1),
    "CEIL(dt TO QUARTER)": date(2024, 4, 1),
    "FLOOR(TIMESTAMP '1969-12-31 23:30:00' TO DAY)": _time(1969, 12, 31),
    "CAST(ts AS TIMESTAMP(3))": _time(2024, 3, 10, 2, 30, 15, 123000),
    "CAST(ts AS TIMESTAMP(0))": _time(2024, 3, 10, 2, 30, 15),
    "CAST(ts AS TIMESTAMP)": _time(2024, 3, 10, 2, 30, 15, 123456),
    "CAST(TIMESTAMP '1969-12-31 23:59:59.999999' AS TIMESTAMP(3))": _time(
        1969, 12, 31, 23, 59, 59, 999000
    ),
    "CAST(ltz AS TIMESTAMP(0))": _time(2024, 3, 13, 10, 20, 30),
    "TIMESTAMP '2024-03-10 02:30:00'": _time(2024, 3, 10, 2, 30),
    "DATE_FORMAT(ts, 'yyyyMMdd HH:mm')": "20240310 02:30",
    "DATE_FORMAT(ltz, 'yyyy-MM-dd HH')": "2024-03-13 10",
    "DATE_FORMAT('2024-03-10 02:30:00', 'HH')": "02",
    "TO_TIMESTAMP('2024-03-10 02:30:00')": _time(2024, 3, 10, 2, 30),
    "TO_TIMESTAMP('10.03.2024 02:30', 'dd.MM.yyyy HH:mm')": _time(2024, 3, 10, 2, 30),
    "TO_TIMESTAMP('soon')": None,
    "TO_TIMESTAMP('soon', 'yyyy')": None,
    "TO_DATE('2024-02-30')": None,
    "TO_DATE('2024-02-29')": date(2024, 2, 29),
    "CAST(TO_TIMESTAMP_LTZ(100, 3) AS STRING)": "1969-12-31 19:00:00.1",
    "CAST(TO_TIMESTAMP_LTZ(100, 0) AS STRING)": "1969-12-31 19:01:40",
    "EXTRACT(SECOND FROM ts)": 15,
    "EXTRACT(MONTH FROM dt)": 3,
    "EXTRACT(DOW FROM dt)": 1,
    "EXTRACT(ISODOW FROM dt)": 7,
    "DAYOFWEEK(dt)": 1,
    "WEEK(dt)": 10,
    "HOUR(ts)": 2,
    "TIMESTAMPDIFF(HOUR, TIMESTAMP '2024-03-10 00:00:00', ts)": 2,
    "TIMESTAMPDIFF(HOUR, TIMESTAMP '2024-03-10 00:00:00', TIMESTAMP '2024-03-10 05:00:00')": 5,
    "TIMESTAMPDIFF(DAY, TIMESTAMP '2003-01-02 10:00:00', TIMESTAMP '2003-01-03 10:00:00')": 1,
    "TIMESTAMPDIFF(MONTH, dt, DATE '2024-05-09')": 1,
    "TIMESTAMPADD(HOUR, 1, TIMESTAMP '2024-03-10 01:30:00')": _time(2024, 3, 10, 2, 30),
    "TIMESTAMPADD(WEEK, 1, dt)": date(2024, 3, 17),
    "TIMESTAMPADD(MONTH, 1, DATE '2024-01-31')": date(2024, 2, 29),
    "ts + INTERVAL '1:30' MINUTE TO SECOND": _time(2024, 3, 10, 2, 31, 45, 123456),
    "CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')": "1969-12-31 16:00:00",
    "PROCTIME() = CURRENT_TIMESTAMP": True,
    "CURRENT_ROW_TIMESTAMP() = NOW()": True,
}
COLLECTIONS: dict[str, object] = {
    "arr[1]": "a",
    "arr[2]": None,
    "arr[4]": None,
    "m['k']": 1,
    "m['z']": None,
    "CARDINALITY(arr)": 3,
    "ARRAY[1, 2][2]": 2,
    "MAP['x', 1]['x']": 1,
    "ROW(1, 'x')": (1, "x"),
    "CAST(ROW(1, 'x') AS ROW<a INT, b STRING>).b": "x",
    "ARRAY_CONCAT(ARRAY[1], ARRAY[2])": [1, 2],
    "ARRAY_SORT(ARRAY[2, NULL, 1])": [None, 1, 2],
    "JSON_VALUE(j, '$.c')": "x",
    "JSON_VALUE(j, '$.a.b')": "1",
    "JSON_VALUE(j, 'lax $.a.b' RETURNING INT)": 1,
    "JSON_VALUE(j, '$.a')": None,
    "JSON_VALUE(j, '$.d[1]')": "2",
    "JSON_VALUE(j, '$.e')": None,
    "JSON_VALUE(j, '$.z' NULL ON EMPTY NULL ON ERROR)": None,
    "JSON_VALUE(j, '$.f' RETURNING BOOLEAN)": True,
    "JSON_VALUE(n, '$.a')": None,
    "JSON_VALUE('no json', '$.a')": None,
    "JSON_QUERY(j, '$.a')": '{"b":1}',
    "JSON_QUERY(j, '$.d')": "[1,2]",
    "JSON_QUERY(j, '$.c')": None,
    "JSON_EXISTS(j, '$.a.b')": True,
    "JSON_EXISTS(j, '$.z')": False,
}


def _flink(lake: Lake, query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in lake.session.sql(translate_query(query).text).collect()]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "expected",
    [NUMBERS, STRINGS, TIMES, COLLECTIONS],
    ids=["numbers", "strings", "times", "others"],
)
def test_expressions_have_flinks_values(lake: Lake, expected: dict[str, object]) -> None:
    lake.session.conf.set("spark.sql.session.timeZone", ZONE)
    lake.session.sql(f"CREATE TEMPORARY VIEW r AS {ROW}")
    [found] = _flink(lake, f"SELECT {', '.join(expected)} FROM r")
    values = dict(zip(expected, found, strict=True))
    wrong = {key: (values[key], value) for key, value in expected.items() if values[key] != value}
    assert wrong == {}


def test_results_have_flinks_types(lake: Lake) -> None:
    lake.session.sql(f"CREATE TEMPORARY VIEW r AS {ROW}")
    expected = {
        "i / 2": "int",
        "i / l": "bigint",
        "y / y": "tinyint",
        "d / d": "decimal(23,13)",
        "CAST(1 AS FLOAT) / i": "float",
        "AVG(i)": "int",
        "AVG(l)": "bigint",
        "AVG(d)": "decimal(38,6)",
        "AVG(f)": "double",
        "FLOOR(MAX(ts) TO DAY)": "timestamp_ntz",
        "FLOOR(MAX(ltz) TO DAY)": "timestamp",
        "FLOOR(MAX(dt) TO MONTH)": "date",
        "TIMESTAMPDIFF(DAY, MAX(ts), MAX(ts))": "int",
        "EXTRACT(YEAR FROM MAX(ts))": "bigint",
        "TO_TIMESTAMP('x')": "timestamp_ntz",
    }
    listed = ", ".join(f"{each} AS c{i}" for i, each in enumerate(expected))
    query = translate_query(f"SELECT {listed} FROM r GROUP BY i, l, d, f, y").text
    types = [kind for _, kind in lake.session.sql(query).dtypes]
    assert dict(zip(expected, types, strict=True)) == expected


def test_aggregates_have_flinks_values(lake: Lake) -> None:
    lake.sql(
        "CREATE TEMPORARY VIEW v AS SELECT * FROM VALUES (1, 'a', 1), (2, NULL, 2), (4, 'b', 3) "
        "AS t(x, s, o)"
    )
    query = (
        "SELECT AVG(x), AVG(DISTINCT x) FILTER (WHERE x > 1), AVG(x / 2), LISTAGG(s), "
        "FIRST_VALUE(CAST(NULL AS INT)), ARRAY_AGG(s IGNORE NULLS) FROM v WHERE x > {}"
    )
    [row] = _flink(lake, query.format(0))
    assert row[:3] == (2, 3, 1)
    assert row[3] in ("a,b", "b,a")
    assert row[4] is None
    assert _flink(lake, query.format(9))[0][:3] == (None, None, None)
    windows = "SELECT x, AVG(x) OVER (ORDER BY o), LAST_VALUE(s) OVER (ORDER BY o) FROM v"
    assert sorted(_flink(lake, windows)) == [(1, 1, "a"), (2, 1, "a"), (4, 2, "b")]


@pytest.mark.thorough
@pytest.mark.parametrize("query", ["SELECT 1 / 0", "SELECT 1.0 / 0", "SELECT CAST('x' AS INT)"])
def test_what_fails_in_flink_fails(lake: Lake, query: str) -> None:
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO|CAST_INVALID_INPUT"):
        _flink(lake, query)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT flink_floor(now(), s) FROM (SELECT 'DAY' AS s)", "NON_FOLDABLE_ARGUMENT"),
        ("SELECT flink_window_start(now(), 1, 2)", "NON_FOLDABLE_ARGUMENT"),
        ("SELECT flink_divide(1)", "WRONG_NUM_ARGS"),
        (f"SELECT {'flink_ceil(' * 30}now(){SUFFIX * 30}", "FAILED_TO_PARSE_TOO_COMPLEX"),
    ],
)
def test_wrong_calls_of_the_functions_fail_as_sparks_do(lake: Lake, query: str, error: str) -> None:
    with pytest.raises(Exception, match=error):
        lake.sql(query)


BIDS = """
CREATE TEMPORARY VIEW bids AS SELECT CAST('2020-04-15 ' || at AS TIMESTAMP_NTZ) AS bidtime, price,
  item
FROM VALUES ('08:05', 4.00, 'A'), ('08:07', 2.00, 'B'), ('08:09', 5.00, 'A'), ('08:11', 3.00, 'B'),
  ('08:13', 1.00, 'A'), ('08:17', 6.00, 'B'), (NULL, 9.00, 'A') AS t(at, price, item)
"""
"""The example of Flink's page on window table functions, and a row without a time."""
T10 = "INTERVAL '10' MINUTES"


def _hours(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(
        tuple(f"{value:%H:%M}" if isinstance(value, datetime) else value for value in row)
        for row in rows
    )


def test_windows_are_those_of_flinks_pages(lake: Lake) -> None:
    lake.sql(BIDS)

    def totals(table: str) -> list[tuple[object, ...]]:
        return _hours(
            _flink(
                lake,
                "SELECT window_start, window_end, CAST(SUM(price) AS INT) FROM "
                f"TABLE({table}) GROUP BY window_start, window_end",
            )
        )

    tumble = [("08:00", "08:10", 11), ("08:10", "08:20", 10)]
    assert totals(f"TUMBLE(TABLE bids, DESCRIPTOR(bidtime), {T10})") == tumble
    assert totals(f"HOP(TABLE bids, DESCRIPTOR(bidtime), INTERVAL '5' MINUTES, {T10})") == [
        ("08:00", "08:10", 11),
        ("08:05", "08:15", 15),
        ("08:10", "08:20", 10),
        ("08:15", "08:25", 6),
    ]
    assert totals(f"CUMULATE(TABLE bids, DESCRIPTOR(bidtime), INTERVAL '2' MINUTES, {T10})") == [
        ("08:00", "08:06", 4),
        ("08:00", "08:08", 6),
        ("08:00", "08:10", 11),
        ("08:10", "08:12", 3),
        ("08:10", "08:14", 4),
        ("08:10", "08:16", 4),
        ("08:10", "08:18", 10),
        ("08:10", "08:20", 10),
    ]
    sessions = _flink(
        lake,
        "SELECT window_start, window_end, item, COUNT(*) FROM TABLE(SESSION(TABLE bids "
        "PARTITION BY item, DESCRIPTOR(bidtime), INTERVAL '4' MINUTES)) "
        "GROUP BY window_start, window_end, item",
    )
    assert _hours(sessions) == [
        ("08:05", "08:17", "A", 3),
        ("08:07", "08:15", "B", 2),
        ("08:17", "08:21", "B", 1),
    ]
    offset = f"TUMBLE(TABLE bids, DESCRIPTOR(bidtime), {T10}, INTERVAL '1' MINUTES)"
    assert totals(offset) == [("08:01", "08:11", 11), ("08:11", "08:21", 10)]
    rows = _flink(lake, f"SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(bidtime), {T10}))")
    assert len(rows) == 6
    assert {row[-1] for row in rows} == {
        _time(2020, 4, 15, 8, 9, 59, 999000),
        _time(2020, 4, 15, 8, 19, 59, 999000),
    }


def _start(millis: int, offset: int, size: int) -> int:
    """Return a window's start as Flink computes it, with Java's remainder."""
    remainder = abs(millis - offset) % size * (1 if millis >= offset else -1)
    return millis - (remainder + size if remainder < 0 else remainder)


def test_windows_of_any_time_are_those_that_flink_computes(lake: Lake) -> None:
    random = Random(20)
    times = [random.randrange(-4_000_000_000, 4_000_000_000) * 37 for _ in range(40)]
    times += [0, -1, 1, -600_000, 600_000, -599_999]
    epoch, milli = _time(1970, 1, 1), timedelta(milliseconds=1)
    shown = ", ".join(f"({t}, TIMESTAMP_NTZ '{epoch + milli * t}')" for t in times)
    lake.sql(f"CREATE TEMPORARY VIEW e AS SELECT * FROM VALUES {shown} AS t(m, ts)")
    size, part, offset = 600_000, 200_000, -70_001
    given = "TABLE e, DESCRIPTOR(ts)"
    last = "INTERVAL '600' SECOND, INTERVAL '-70.001' SECOND"
    found = {
        kind: {
            (m, (start - epoch) // milli, (end - epoch) // milli)
            for m, start, end in _flink(
                lake, f"SELECT m, window_start, window_end FROM TABLE({kind}({given}, {rest}))"
            )
        }
        for kind, rest in {
            "TUMBLE": last,
            "HOP": f"INTERVAL '200' SECOND, {last}",
            "CUMULATE": f"INTERVAL '200' SECOND, {last}",
        }.items()
    }
    whole = {t: _start(t, offset, size) for t in times}
    assert found["TUMBLE"] == {(t, at, at + size) for t, at in whole.items()}
    assert found["HOP"] == {
        (t, at, at + size) for t in times for at in range(_start(t, offset, part), t - size, -part)
    }
    assert found["CUMULATE"] == {
        (t, at, end)
        for t, at in whole.items()
        for end in range(at + part, at + size + 1, part)
        if end > t
    }


def test_group_windows_agree_with_table_functions(lake: Lake) -> None:
    lake.sql(BIDS)
    assert _hours(
        _flink(
            lake,
            f"SELECT TUMBLE_START(bidtime, {T10}), TUMBLE_END(bidtime, {T10}), COUNT(*), "
            f"TUMBLE_ROWTIME(bidtime, {T10}) FROM bids WHERE price > 1 OR price < 0 "
            f"GROUP BY TUMBLE(bidtime, {T10}) HAVING COUNT(*) > 0 ORDER BY 1",
        )
    ) == [("08:00", "08:10", 3, "08:09"), ("08:10", "08:20", 2, "08:19")]
    assert _hours(
        _flink(
            lake,
            f"SELECT HOP_START(bidtime, INTERVAL '5' MINUTES, {T10}) AS w, COUNT(*) FROM bids "
            f"GROUP BY HOP(bidtime, INTERVAL '5' MINUTES, {T10}) ORDER BY w",
        )
    ) == [("08:00", 3), ("08:05", 5), ("08:10", 3), ("08:15", 1)]
    assert _hours(
        _flink(
            lake,
            "SELECT item, SESSION_START(bidtime, INTERVAL '4' MINUTES), "
            "SESSION_END(bidtime, INTERVAL '4' MINUTES) FROM bids "
            "GROUP BY item, SESSION(bidtime, INTERVAL '4' MINUTES)",
        )
    ) == [("A", "08:05", "08:17"), ("B", "08:07", "08:15"), ("B", "08:17", "08:21")]


def test_windows_of_points_in_time_are_those_of_local_time(lake: Lake) -> None:
    lake.session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    lake.sql(
        "CREATE TEMPORARY VIEW e AS SELECT * FROM VALUES (TIMESTAMP '2020-01-01 00:10:00'), "
        "(TIMESTAMP '1969-12-31 23:50:00') AS t(ts)"
    )
    day = _flink(
        lake,
        "SELECT window_start, CAST(window_time AS STRING) "
        "FROM TABLE(TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' DAY))",
    )
    assert sorted(day) == [
        (_time(1969, 12, 31), "1969-12-31 23:59:59.999"),
        (_time(2020, 1, 1), "2020-01-01 23:59:59.999"),
    ]


def test_relations_have_flinks_rows(lake: Lake) -> None:
    lake.sql(
        "CREATE TEMPORARY VIEW t AS SELECT * FROM VALUES (1, array('a', 'b'), map('k', 5), "
        "array(struct(1 AS p, 'x' AS q))), (2, NULL, NULL, NULL) AS t(id, a, m, r)"
    )
    for query, expected in {
        "SELECT id, x FROM t CROSS JOIN UNNEST(a) AS u(x)": [(1, "a"), (1, "b")],
        "SELECT id, x FROM t LEFT JOIN UNNEST(a) AS u(x) ON TRUE": [
            (1, "a"),
            (1, "b"),
            (2, None),
        ],
        "SELECT id, k, v FROM t, UNNEST(m) AS u(k, v)": [(1, "k", 5)],
        "SELECT id, p, q FROM t, UNNEST(r) AS u(p, q)": [(1, 1, "x")],
        "SELECT x, n FROM t CROSS JOIN UNNEST(a) WITH ORDINALITY AS u(x, n)": [("a", 1), ("b", 2)],
        "SELECT id, x FROM t, LATERAL TABLE(explode(a)) AS u(x)": [(1, "a"), (1, "b")],
        "SELECT a, b FROM (VALUES ROW(1, 'x'), ROW(2, 'y')) AS v(a, b)": [(1, "x"), (2, "y")],
        "SELECT id FROM t ORDER BY id OFFSET 1 ROWS FETCH NEXT 5 ROWS ONLY": [(2,)],
        "SELECT t.id FROM t JOIN t FOR SYSTEM_TIME AS OF t.proctime AS d ON t.id = d.id": [
            (1,),
            (2,),
        ],
    }.items():
        assert sorted(_flink(lake, query), key=repr) == expected, query


def test_a_view_may_use_the_functions(lake: Lake) -> None:
    lake.sql("CREATE TABLE s USING delta AS SELECT 7 AS a")
    lake.sql(translate_query("SELECT 1").text)
    lake.sql("CREATE VIEW w AS " + translate_query("SELECT a / 2 AS h FROM s").text)
    assert lake.rows("SELECT h FROM w") == [(3,)]


def test_options_in_hints_reach_the_reader(lake: Lake) -> None:
    lake.sql("CREATE TABLE s USING delta AS SELECT 1 AS a", "INSERT INTO s VALUES (2)")
    query = "SELECT COUNT(*) FROM s /*+ OPTIONS('versionAsOf' = '0') */ AS x"
    assert _flink(lake, query) == [(1,)]
    assert _flink(lake, "SELECT COUNT(*) FROM s FOR SYSTEM_TIME AS OF NOW()") == [(2,)]
