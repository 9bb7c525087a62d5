"""What clients show of an error: the whole message, and nothing of the server's inside."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

import tidegate
from tests.support.fixtures.jdbc import Ask
from tests.support.fixtures.server import Beeline, Server, last_rows, named_rows

pytestmark = pytest.mark.spark

INSIDE = ("Traceback", ".py", "py4j", "site-packages", "at org.apache", "\tat ")
WHOLE = ("CHECK constraint positive (x > 0) violated by row with values", " - x : -1")


@pytest.fixture(scope="module")
def violation(server: Server) -> Iterator[str]:
    """A statement that violates a CHECK constraint."""
    schema = f"said_{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        last_rows(
            cursor,
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {schema}.t (x INT, y STRING)",
            f"ALTER TABLE {schema}.t ADD CONSTRAINT positive CHECK (x > 0)",
        )
        yield f"INSERT INTO {schema}.t VALUES (-1, 'a')"
        cursor.execute(f"DROP SCHEMA {schema} CASCADE")


def check(shown: str) -> None:
    """Check that a text has the whole message and nothing of the server's."""
    for part in WHOLE:
        assert part in shown
    for part in INSIDE:
        assert part not in shown


def test_the_driver_raises_the_whole_message(server: Server, violation: str) -> None:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        with pytest.raises(tidegate.IntegrityError) as caught:
            cursor.execute(violation)
        assert str(caught.value) == (
            f"[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] {WHOLE[0]}:\n{WHOLE[1]}"
        )
        check(str(caught.value.detail))


def test_the_command_line_prints_the_whole_message(server: Server, violation: str) -> None:
    main = "import sys; from tidegate.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, "-u", server.url, "-e", violation],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    check(done.stderr)


def test_pyhive_shows_the_whole_message_and_little_else(server: Server, violation: str) -> None:
    hive = pytest.importorskip("pyhive.hive")
    with closing(hive.connect(host=server.host, port=server.port, username="eva")) as connection:
        with closing(connection.cursor()) as cursor, pytest.raises(Exception) as caught:
            cursor.execute(violation)
        check(str(caught.value))
        assert len(str(caught.value)) < 1_000


def test_impyla_shows_the_whole_message(server: Server, violation: str) -> None:
    dbapi = pytest.importorskip("impala.dbapi")
    with (
        closing(dbapi.connect(server.host, server.port, auth_mechanism="NOSASL")) as connection,
        closing(connection.cursor(user="eva")) as cursor,
    ):
        with pytest.raises(Exception) as caught:
            cursor.execute(violation)
        check(str(caught.value))


@pytest.mark.jdbc
def test_beeline_prints_the_whole_message(beeline: Beeline, violation: str) -> None:
    done = beeline.run(violation)
    assert done.returncode != 0
    check(done.stderr)


@pytest.mark.jdbc
def test_jdbc_throws_the_whole_message(jdbc: Ask, violation: str) -> None:
    failed = jdbc(("failed", "update", violation))["failed"]
    assert failed["state"] == "23001"
    check(failed["error"])


def test_a_refresh_that_fails_while_writing_keeps_its_reason(server: Server) -> None:
    schema = f"said_{uuid.uuid4().hex[:8]}"
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        last_rows(
            cursor,
            f"CREATE SCHEMA {schema}",
            f"CREATE TABLE {schema}.src AS SELECT '1' AS s",
            f"CREATE MATERIALIZED TABLE {schema}.mt FRESHNESS = INTERVAL '1' HOUR "
            f"REFRESH_MODE = FULL AS SELECT CAST(s AS INT) AS n FROM {schema}.src",
            f"INSERT INTO {schema}.src VALUES ('abc')",
        )
        with pytest.raises(tidegate.DataError, match="'abc' of the type \"STRING\"") as caught:
            cursor.execute(f"ALTER MATERIALIZED TABLE {schema}.mt REFRESH")
        assert (caught.value.code, caught.value.sqlstate) == ("CAST_INVALID_INPUT", "22018")
        history = named_rows(server, f"SHOW REFRESH HISTORY FOR {schema}.mt")
        assert history[0]["error_class"] == "CAST_INVALID_INPUT"
        assert "'abc' of the type" in str(history[0]["error_message"])
        last_rows(cursor, f"DROP MATERIALIZED TABLE {schema}.mt", f"DROP SCHEMA {schema} CASCADE")
