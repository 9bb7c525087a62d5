"""Sessions that sleep while they are unused, and their state when they wake up."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from tests.support.fixtures.spark import Lake
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.engine.session.sessions import Sessions

pytestmark = pytest.mark.spark

AWAKE = 2


@pytest.fixture
def sessions(lake: Lake) -> Sessions:
    return Sessions(lake.root, awake=AWAKE)


@pytest.fixture
def schema(lake: Lake) -> Iterator[str]:
    lake.session.sql("CREATE SCHEMA sleepers")
    yield "sleepers"
    lake.session.sql("DROP SCHEMA IF EXISTS sleepers CASCADE")


def run(sessions: Sessions, session_id: str, *texts: str) -> list[tuple[Any, ...]]:
    """Run statements in a session; return the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    with sessions.using(session_id) as child:
        for text in texts:
            rows = [tuple(row) for row in child.spark.sql(text).collect()]
    return rows


def open_and_let_sleep(sessions: Sessions, session_id: str, *texts: str) -> None:
    """Open a session, run statements in it, then use so many others that it may sleep."""
    sessions.open(session_id, {}, None)
    run(sessions, session_id, *texts)
    for other in range(AWAKE):
        sessions.open(f"other {other}", {}, None)


def test_only_the_last_used_stay_awake(sessions: Sessions) -> None:
    for number in range(10):
        sessions.open(f"s{number}", {}, None)
        run(sessions, f"s{number}", "SELECT 1")
    assert sessions.count_awake() == AWAKE


def test_settings_and_schema_are_there_when_it_awakes(sessions: Sessions, schema: str) -> None:
    open_and_let_sleep(
        sessions,
        "s",
        f"USE {schema}",
        "SET spark.sql.shuffle.partitions=17",
        "SET TIME ZONE 'Asia/Tokyo'",
        "SET `some.key.of.mine`=`with = and ; and ü`",
    )
    assert sessions.count_awake() == AWAKE
    told = run(sessions, "s", "SELECT current_schema(), current_timezone(), current_catalog()")
    assert told == [(schema, "Asia/Tokyo", "spark_catalog")]
    with sessions.using("s") as child:
        assert child.spark.conf.get("spark.sql.shuffle.partitions") == "17"
        assert child.spark.conf.get("some.key.of.mine") == "with = and ; and ü"


def test_a_setting_that_was_taken_away_stays_away(sessions: Sessions, lake: Lake) -> None:
    key = "spark.sql.shuffle.partitions"
    assert lake.session.newSession().conf.get(key, None) is not None
    sessions.open("s", {}, None)
    with sessions.using("s") as child:
        child.spark.conf.unset(key)
        alone = child.spark.conf.get(key, None)
    open_and_let_sleep(sessions, "s")
    with sessions.using("s") as child:
        assert child.spark.conf.get(key, None) == alone


@pytest.mark.parametrize(
    ("made", "asked", "rows"),
    [
        ("CREATE TEMPORARY VIEW v AS SELECT 7 AS n", "SELECT n FROM v", [(7,)]),
        ("CREATE TEMPORARY FUNCTION f(x INT) RETURNS INT RETURN x + 1", "SELECT f(6)", [(7,)]),
        (
            "CREATE TEMPORARY FUNCTION t(x INT) RETURNS TABLE (n INT) RETURN SELECT x + 1",
            "SELECT * FROM t(6)",
            [(7,)],
        ),
        ("DECLARE VARIABLE x INT DEFAULT 7", "SELECT x", [(7,)]),
        ("CACHE TABLE kept AS SELECT 7 AS n", "SELECT n FROM kept", [(7,)]),
    ],
)
def test_one_with_temporary_objects_does_not_sleep(
    sessions: Sessions, made: str, asked: str, rows: list[tuple[Any, ...]]
) -> None:
    open_and_let_sleep(sessions, "s", made)
    assert sessions.count_awake() == AWAKE + 1
    assert run(sessions, "s", asked) == rows


def test_one_whose_temporary_objects_are_gone_sleeps(sessions: Sessions) -> None:
    open_and_let_sleep(sessions, "s", "CREATE TEMPORARY VIEW v AS SELECT 1", "DROP VIEW v")
    assert sessions.count_awake() == AWAKE


def test_a_schema_dropped_meanwhile_is_told_once(sessions: Sessions, schema: str) -> None:
    open_and_let_sleep(sessions, "s", f"USE {schema}", "SET spark.sql.shuffle.partitions=17")
    run(sessions, "other 0", f"DROP SCHEMA {schema}")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        run(sessions, "s", "SELECT 1")
    assert run(sessions, "s", "SELECT current_schema()") == [("default",)]
    with sessions.using("s") as child:
        assert child.spark.conf.get("spark.sql.shuffle.partitions") == "17"


def test_one_in_use_does_not_sleep(sessions: Sessions) -> None:
    sessions.open("s", {}, None)
    with sessions.using("s") as child:
        for number in range(AWAKE + 2):
            sessions.open(f"s{number}", {}, None)
        assert sessions.count_awake() == AWAKE + 1
        with sessions.using("s") as again:
            assert again is child


def test_a_closed_one_is_not_lent(sessions: Sessions) -> None:
    open_and_let_sleep(sessions, "s")
    sessions.close("s")
    with pytest.raises(ServerError) as raised, sessions.using("s"):
        pass
    assert raised.value.code == Code.INVALID_SESSION_HANDLE.name


def test_many_threads_keep_their_settings(sessions: Sessions) -> None:
    """Sessions fall asleep and awake under each other's hands; each keeps its own state."""

    def work(number: int) -> list[str]:
        name = f"s{number}"
        sessions.open(name, {"my.number": str(number)}, None)
        seen = []
        for _ in range(10):
            with sessions.using(name) as child:
                seen.append(child.spark.conf.get("my.number", "lost"))
        return seen

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, range(12)))
    assert found == [[str(number)] * 10 for number in range(12)]
    assert sessions.count_awake() <= AWAKE
