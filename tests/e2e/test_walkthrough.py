"""The walkthrough script gives what Python computes from the same rules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parents[2] / "examples" / "walkthrough.sql"
COMMAND = Path(sys.executable).with_name("tidegate")
FIRST = datetime(2024, 12, 15, tzinfo=UTC)
LAST_PRODUCT = 899


@pytest.fixture(scope="module")
def walkthrough_server(server: Any) -> Iterator[Any]:
    """A server on which the command line has run the whole script."""
    _drop(server)
    ended = subprocess.run(
        [COMMAND, "-u", server.url, "-f", SCRIPT],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    yield server
    _drop(server)


def test_every_view_of_a_known_product_is_in_the_dwd_table(walkthrough_server: Any) -> None:
    sql = (
        "SELECT ds, item_id, user_id, brand_id, seller_id, "
        "date_format(vtime, 'yyyy-MM-dd HH:mm:ss') FROM walkthrough.dwd_user_log_product"
    )
    expected = sorted(
        (
            f"{at:%Y%m%d}",
            item,
            user,
            1000 + item % 50,
            1000 + item % 20,
            f"{at:%Y-%m-%d %H:%M:%S}",
        )
        for item, user, at in _views()
        if item <= LAST_PRODUCT
    )
    assert sorted(_rows(walkthrough_server, sql)) == expected


def test_views_and_visitors_are_counted_per_hour_and_per_day(walkthrough_server: Any) -> None:
    visitors: dict[tuple[str, str], list[int]] = {}
    for item, user, at in _views():
        if item <= LAST_PRODUCT:
            for hour in (f"{at:%H}", "day"):
                visitors.setdefault((f"{at:%Y%m%d}", hour), []).append(user)
    expected = sorted((*key, len(users), len(set(users))) for key, users in visitors.items())
    assert len(expected) == 2 * (24 + 1)
    assert (
        sorted(_rows(walkthrough_server, "SELECT ds, hh, pv, uv FROM walkthrough.dws_overall"))
        == expected
    )


def test_minutes_of_freshness_made_both_tables_continuous(walkthrough_server: Any) -> None:
    shown = _rows(
        walkthrough_server, "SHOW CREATE MATERIALIZED TABLE walkthrough.dwd_user_log_product"
    )[0][0]
    assert "FRESHNESS = INTERVAL '1' MINUTE" in shown
    assert "REFRESH_MODE = CONTINUOUS" in shown


def _views() -> Iterator[tuple[int, int, datetime]]:
    """Yield item, user and time of every page view the script generates."""
    for number in range(6912):
        at = FIRST + timedelta(seconds=25 * number)
        yield (number * 7) % 1000, (number * number) % 997, at
    for item in range(5):
        yield item, 777, datetime(2024, 12, 16, 23, 59, 59, tzinfo=UTC)


def _rows(server: Any, sql: str) -> list[tuple[Any, ...]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return [tuple(row) for row in cursor.fetchall()]


def _drop(server: Any) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA IF NOT EXISTS walkthrough")
        for name in ("dws_overall", "dwd_user_log_product"):
            cursor.execute(f"DROP MATERIALIZED TABLE IF EXISTS walkthrough.{name}")
        for name in ("ods_user_log", "ods_dim_product"):
            cursor.execute(f"DROP TABLE IF EXISTS walkthrough.{name}")
        cursor.execute("DROP SCHEMA walkthrough")
