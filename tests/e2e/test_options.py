"""Options and settings through a real server: each works, is refused, or is warned of."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyhive import hive

import tidegate
from tests.support.fixtures.server import Server

pytestmark = pytest.mark.spark

ZONE = {"spark.sql.session.timeZone": "Nowhere/Bad"}


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    """A cursor in a new schema, with a Delta table of 1000 rows."""
    schema = f"o{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"USE {schema}")
        cursor.execute(
            "CREATE TABLE t USING delta AS SELECT id AS a, id % 20 AS b FROM range(1000)"
        )
        yield cursor
        cursor.execute("DROP MATERIALIZED TABLE IF EXISTS m")
        cursor.execute(f"DROP SCHEMA {schema} CASCADE")


def test_what_set_refuses_opens_no_session(server: Server, cursor: tidegate.Cursor) -> None:
    for key, value, code in (
        ("spark.sql.session.timeZone", "Nowhere/Bad", "INVALID_CONF_VALUE.TIME_ZONE"),
        ("spark.driver.memory", "8g", "CANNOT_MODIFY_CONFIG"),
        ("execution.mode", "nowhere", "MT_EXECUTION_MODE"),
        ("materialized-table.initialise", "ON_CREATE", "MT_OPTION_UNKNOWN"),
    ):
        setting = f"{key} = {value}" if key.startswith("spark.") else f"'{key}' = '{value}'"
        with pytest.raises(tidegate.Error) as refused:
            cursor.execute(f"SET {setting}")
        with pytest.raises(tidegate.Error) as unopened:
            server.connect(settings={key: value})
        assert unopened.value.code == refused.value.code == code
        # Superset looks for the message of a call between double quotes, so it has none itself.
        assert str(unopened.value) == str(refused.value).replace('"', "'")
        with pytest.raises(hive.Error, match=code.replace(".", r"\.")):
            hive.connect(server.host, server.port, configuration={key: value})


def test_settings_of_a_statement_are_checked(cursor: tidegate.Cursor) -> None:
    with pytest.raises(tidegate.Error, match="Nowhere/Bad"):
        cursor.execute("SELECT 1", settings=ZONE)
    cursor.execute("SELECT current_timezone()")
    assert cursor.fetchall() != [("Nowhere/Bad",)]


def test_a_refresh_writes_as_many_files_as_there_are_buckets(cursor: tidegate.Cursor) -> None:
    cursor.execute(
        "CREATE MATERIALIZED TABLE m DISTRIBUTED BY HASH (a) INTO 6 BUCKETS "
        "WITH ('materialized-table.initialize' = 'ON_CREATE') FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT * FROM t"
    )
    cursor.execute("SELECT count(DISTINCT _metadata.file_name), count(*) FROM m")
    assert cursor.fetchall() == [(6, 1000)]


def test_a_missing_jar_is_an_error(cursor: tidegate.Cursor) -> None:
    with pytest.raises(tidegate.Error, match=r"ADD JAR: there is no file /nowhere/x\.jar"):
        cursor.execute("ADD JAR /nowhere/x.jar")


def test_a_resume_tries_settings_of_spark_first(cursor: tidegate.Cursor) -> None:
    cursor.execute("CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM t")
    cursor.execute("ALTER MATERIALIZED TABLE m SUSPEND")
    resume = "ALTER MATERIALIZED TABLE m RESUME WITH ('spark.sql.session.timeZone' = '{}')"
    with pytest.raises(tidegate.Error, match="Nowhere/Bad"):
        cursor.execute(resume.format("Nowhere/Bad"))
    cursor.execute(resume.format("Asia/Tokyo"))
