"""A data directory of version 0.1.0 is opened, refreshed and verified.

The archive holds what 0.1.0 wrote: commits with the state of incremental refreshes, definitions
in table properties, the store, the metastore. Paths in it are absolute, so that it has to be
unpacked where it was made.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures.server import Server, StartServer, last_rows, named_rows
from tidegate import Cursor
from tidegate_server.gateway.scheduler.misfires import MISFIRE_OPTION

_SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11.0 to 3.11.3 do not know filters."""

pytestmark = pytest.mark.spark

PLACE = Path("/tmp/tidegate-0.1.0")
ARCHIVE = Path(__file__).parent / "data_directory_0.1.0.tar.xz"
ID = "004cc673-0936-4e7e-873d-21c2752a7075"
INCREMENTAL = ("totals", "overall", "top2", "ranked", "old")


@pytest.fixture
def opened(start_server: StartServer) -> Iterator[Server]:
    """A server on the old data directory."""
    if PLACE.exists():
        assert json.loads((PLACE / "tidegate.json").read_text("utf-8"))["id"] == ID, "not ours"
        shutil.rmtree(PLACE)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(PLACE.parent, **_SAFE)
    # A fire that was missed since the archive was made would refresh a table before the test does.
    server = start_server("--data", str(PLACE), f"--set=options.{MISFIRE_OPTION}=SKIP")
    server.wait_for_engine()
    yield server
    server.stop()
    shutil.rmtree(PLACE)


def refresh(cursor: Cursor, table: str, how: str = "") -> str:
    """Refresh a table; return the strategy."""
    cursor.execute(f"ALTER MATERIALIZED TABLE shop.{table} REFRESH {how}")
    ((_, details),) = cursor.fetchall()
    return str(details["action"])


def test_a_data_directory_of_0_1_0_goes_on(opened: Server) -> None:
    with closing(opened.connect()) as connection, closing(connection.cursor()) as cursor:
        stale = [(1, 10), (3, 30), (4, 40)]
        assert sorted(last_rows(cursor, "SELECT * FROM shop.held"))[:1] == stale[:1]
        cursor.execute("ALTER MATERIALIZED TABLE shop.held PUBLISH HELD VERSION")
        assert sorted(last_rows(cursor, "SELECT * FROM shop.held")) == [(3, 30), (4, 40), (5, 50)]
        # The rows deleted since the last refresh, and a new one, by the state in the old commits.
        cursor.execute("INSERT INTO shop.orders VALUES (6, 'ann', '2026-01-04', 60)")
        strategies = {table: refresh(cursor, table, "INCREMENTAL") for table in INCREMENTAL}
        assert strategies == dict.fromkeys(INCREMENTAL, "INCREMENTAL")
        assert refresh(cursor, "days") == "FULL"
        for table in (*INCREMENTAL, "days", "held"):
            cursor.execute(f"VERIFY MATERIALIZED TABLE shop.{table}")
        totals = sorted(last_rows(cursor, "SELECT * FROM shop.totals"))
        assert totals == [("ann", 2, 90), ("bob", 1, 50), ("eve", 1, 40)]
        cursor.execute("ALTER MATERIALIZED TABLE shop.totals ROLLBACK TO VERSION 1")
        totals = sorted(last_rows(cursor, "SELECT * FROM shop.totals"))
        assert totals == [("ann", 2, 40), ("bob", 1, 20), ("eve", 1, 40)]
        cursor.execute("ALTER MATERIALIZED TABLE shop.joined RESUME")
    history = named_rows(opened, "SHOW REFRESH HISTORY FOR shop.overall")
    assert [run["strategy_reason_code"] for run in history][-2:] == [
        "GROUPS_COMBINED",
        "FIRST_REFRESH",
    ]
