"""Partition values come back from storage as they were, or stop the refresh."""

from __future__ import annotations

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.full_run import FULL
from tests.support.materialized import Materialized
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Assertion, Violation
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.refresh.request import RefreshPolicy

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

GROUPED = "SELECT p, count(*) AS n FROM t GROUP BY p"
TYPES = {
    "BOOLEAN": ("true", "false", "NULL"),
    "TINYINT": ("-128", "0", "NULL"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "DOUBLE": (
        "-0.0D",
        "0.0D",
        "double('NaN')",
        "double('-Infinity')",
        "4.9E-324D",
        "0.1D",
        "NULL",
    ),
    "FLOAT": ("float('-0.0')", "float('0')", "float('NaN')", "float('3.4e38')"),
    "DECIMAL(38,18)": ("-0.000000000000000001", "12345678901234567890.123456789012345678", "0"),
    "DATE": (
        *("DATE'0000-01-01'", "DATE'-0001-12-31'", "DATE'10000-01-01'", "DATE'1582-10-10'"),
        *("date_from_unix_date(2147483647)", "date_from_unix_date(-2147483648)", "NULL"),
    ),
    "TIMESTAMP": (
        *("TIMESTAMP'2025-11-02 05:30:00.123456Z'", "TIMESTAMP'2025-03-09 07:30:00Z'"),
        *("TIMESTAMP'0001-01-01 00:00:00Z'", "timestamp_seconds(253402300800)", "NULL"),
    ),
    "TIMESTAMP_NTZ": (
        *("TIMESTAMP_NTZ'2025-11-02 01:30:00.123456'", "TIMESTAMP_NTZ'2025-03-09 02:30:00'"),
        *("TIMESTAMP_NTZ'0000-02-03 01:02:03'", "TIMESTAMP_NTZ'-0001-02-03 01:02:03'"),
    ),
    "STRING": (
        *(
            "'a/b'",
            "'a%2Fb'",
            "'a%b'",
            "'a=b'",
            "'a\\nb'",
            "' a '",
            "' '",
            "'null'",
            "'..'",
            "'.x'",
        ),
        *("'_x'", "'ä'", "'a\\\\b'", "'\\u0001'", "'?*{[#'", "repeat('x', 253)", "NULL"),
        *("repeat('é', 126)", "repeat('/', 84)", "'a'", "'A'"),
    ),
    "VARCHAR(3)": ("'a '", "'a'", "NULL"),
}
LOST = {
    "''": "the empty string is stored as NULL",
    "'__HIVE_DEFAULT_PARTITION__'": "__HIVE_DEFAULT_PARTITION__ is how NULL is stored",
    "'a\\u0000'": "the name of a directory cannot contain the character U+0000",
    "CAST(X'61FF' AS STRING)": "it is not valid UTF-8",
    "repeat('x', 254)": "the name of a partition's directory is limited to 255 bytes",
    "repeat('/', 85)": "the name of a partition's directory is limited to 255 bytes",
    "repeat('é', 127)": "the name of a partition's directory is limited to 255 bytes",
}
ZONE = {"spark.sql.session.timeZone": "America/New_York"}


def partitioned_table(
    lake: Lake, *values: str, type: str = "STRING", query: str = GROUPED
) -> Materialized:
    """Return the table over ``t``, which has a row of each value; not yet refreshed."""
    rows = ", ".join(f"({number}, CAST({value} AS {type}))" for number, value in enumerate(values))
    lake.sql(f"CREATE TABLE t (id INT, p {type}) USING delta", f"INSERT INTO t VALUES {rows}")
    return Materialized(lake, query, "p")


def rejection(mt: Materialized, **changed: object) -> ServerError:
    """Refresh, which has to leave the table alone; return the error."""
    before = mt.content()
    with pytest.raises(ServerError) as caught:
        mt.refresh(**changed)
    assert (caught.value.code, caught.value.sqlstate) == ("MT_PARTITION_VALUE", "22023")
    assert mt.content() == before
    return caught.value


PLAINER = {"BOOLEAN", "TINYINT", "BIGINT", "FLOAT"}
"""Types whose values are written as those of DOUBLE and DECIMAL; a quick run leaves them out."""


@pytest.mark.parametrize("type", [each for each in TYPES if FULL or each not in PLAINER])
def test_values_of_a_type_are_given_back(lake: Lake, type: str) -> None:
    mt = partitioned_table(lake, *TYPES[type], type=type, query="SELECT id, p FROM t")
    settings = {"settings": ZONE}
    mt.refresh(**settings)
    # As text, since Python has neither a year 0 nor a year 10000.
    stored, wanted = (f"SELECT id, CAST(p AS STRING) AS p FROM {table}" for table in ("mt", "t"))
    assert lake.rows(stored) == lake.rows(wanted)
    lake.sql("UPDATE t SET id = id + 100 WHERE id % 2 = 0")
    assert mt.refresh(**settings).plan.strategy is Strategy.INCREMENTAL
    assert lake.rows(stored) == lake.rows(wanted)


def test_a_text_that_storage_would_lose_stops_a_refresh(lake: Lake) -> None:
    mt = partitioned_table(lake, "NULL")
    for value, reason in LOST.items():
        lake.sql(f"INSERT OVERWRITE t VALUES (0, {value}), (1, NULL), (2, 'a')")
        problem = rejection(mt)
        assert problem.message.endswith(f"in its partition column p: {reason}.")
        assert "nother column." in problem.hint


def test_full_refreshes_and_those_of_partitions_are_looked_at(lake: Lake) -> None:
    mt = partitioned_table(lake, "''", "NULL", "'a'")
    lake.sql("DELETE FROM t WHERE id = 0")
    mt.refresh()
    assert lake.rows("SELECT * FROM mt") == [("a", 1), (None, 1)]
    lake.sql("INSERT INTO t VALUES (3, ''), (4, 'b')")
    rejection(mt)
    rejection(mt, force=True)
    mt.refresh(partitions=({"p": "b"},))
    assert lake.rows("SELECT * FROM mt") == [("a", 1), ("b", 1), (None, 1)]
    lake.sql("DELETE FROM t WHERE id = 3")
    mt.refresh()
    assert mt.verify().equal


def test_a_refresh_of_the_partition_of_the_empty_string(lake: Lake) -> None:
    mt = partitioned_table(lake, "'a'", "NULL")
    mt.refresh()
    before = mt.content()
    mt.refresh(partitions=({"p": ""},))
    assert mt.content() == before
    lake.sql("INSERT INTO t VALUES (3, ''), (4, NULL)")
    rejection(mt, partitions=({"p": ""},))
    mt.refresh(partitions=({"p": "__HIVE_DEFAULT_PARTITION__"},))
    assert lake.rows("SELECT * FROM mt") == [("a", 1), (None, 2)]


def test_appended_and_changed_rows_are_looked_at(lake: Lake) -> None:
    mt = partitioned_table(lake, "'a'", query="SELECT id, p FROM t")
    mt.refresh()
    lake.sql("INSERT INTO t VALUES (2, '')")
    rejection(mt)
    lake.sql("DELETE FROM t WHERE id = 2", "UPDATE t SET p = ''")
    rejection(mt)
    lake.sql("UPDATE t SET p = 'b'")
    assert mt.refresh().plan.strategy is Strategy.INCREMENTAL
    assert lake.rows("SELECT * FROM mt") == [(0, "b")]


def test_rows_that_are_filtered_out_are_no_matter(lake: Lake) -> None:
    mt = partitioned_table(lake, "''", "'a'", query="SELECT id, p FROM t WHERE p <> ''")
    mt.refresh()
    assert lake.rows("SELECT * FROM mt") == [(1, "a")]
    lake.sql("INSERT INTO t VALUES (2, '')", "UPDATE t SET p = 'b' WHERE id = 1")
    mt.refresh()
    assert lake.rows("SELECT * FROM mt") == [(1, "b")]


def test_a_local_time_that_two_moments_share_stops_a_refresh(lake: Lake) -> None:
    shared = "TIMESTAMP'2025-11-02 06:30:00Z'"
    mt = partitioned_table(lake, shared, type="TIMESTAMP")
    problem = rejection(mt, settings=ZONE)
    assert "2025-11-02 01:30:00" in problem.message
    assert "SET TIME ZONE 'UTC'" in problem.hint
    utc = {"settings": {"spark.sql.session.timeZone": "UTC"}}
    mt.refresh(**utc)
    assert mt.verify(**utc).equal
    lake.sql("INSERT INTO t SELECT 2, timestamp_seconds(-99999999999)")
    assert "-1199-02-15" in rejection(mt, **utc).message


def test_a_version_that_could_not_be_published_is_not_held(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id INT, p STRING) USING delta", "INSERT INTO t VALUES (1, 'a')")
    held = Assertion(name="some", condition="row_count < 2", violation=Violation.HOLD)
    mt = Materialized(lake, "SELECT id, p FROM t", "p", assertions=(held,))
    mt.refresh()
    lake.sql("INSERT INTO t VALUES (2, ''), (3, 'b')")
    rejection(mt)
    rejection(mt, policy=RefreshPolicy.FULL)
    assert lake.format.find_held(mt.name, mt.id) is None


def test_a_backfill_is_looked_at(lake: Lake) -> None:
    lake.sql("CREATE TABLE old (id INT, p STRING) USING delta", "INSERT INTO old VALUES (7, '')")
    lake.sql("CREATE TABLE t (id INT, p STRING) USING delta", "INSERT INTO t VALUES (1, 'a')")
    mt = Materialized(lake, "SELECT id, p FROM t", "p", immutable="id > 5")
    with pytest.raises(ServerError, match="MT_PARTITION_VALUE"):
        mt.backfill("old")
    assert not mt.content()
