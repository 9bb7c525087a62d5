"""Makes materialized tables, refreshes them, drops them, and prints what each takes of the heap."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from servers import machine, tidegate_server
from sessions import jvm_of, live_mib

import tidegate

TABLES = 20
REFRESHES = 5
WARM = 3
GOAL_MIB = 0.05


def main() -> int:
    """Measure and print; return 1 when a table takes more of the heap than the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--refreshes", type=int, default=REFRESHES, help="of each, at least 2")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="bench-heap-") as directory,
        tidegate_server(Path(directory)) as server,
        closing(tidegate.connect(host="127.0.0.1", port=server.port, user="bench")) as connection,
        closing(connection.cursor()) as cursor,
    ):
        jvm = jvm_of(server)
        cursor.execute("CREATE TABLE source (id INT, kind STRING) USING delta")
        _make(cursor, "warm", WARM)
        _refresh(cursor, "warm", WARM, 2)
        before = live_mib(jvm)
        figures: dict[str, float] = {}

        def note(what: str) -> None:
            figures[what] = (live_mib(jvm) - before) / options.tables
            print(f"{what:<24} {figures[what]:8.3f} MiB a table", flush=True)

        _make(cursor, "t", options.tables)
        note("refreshed once")
        _refresh(cursor, "t", options.tables, options.refreshes - 1)
        note(f"refreshed {options.refreshes} times")
        for number in range(options.tables):
            cursor.execute(f"DROP MATERIALIZED TABLE t{number}")
        note("dropped")
    if options.json:
        report = {"machine": machine(), "tables": options.tables, "mib_a_table": figures}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return int(max(figures.values()) > GOAL_MIB)


def _make(cursor: Any, prefix: str, count: int) -> None:
    """Create tables; the first refresh of each comes with its creation."""
    for number in range(count):
        cursor.execute(
            f"CREATE MATERIALIZED TABLE {prefix}{number} FRESHNESS = INTERVAL '1' DAY "
            "REFRESH_MODE = INCREMENTAL AS "
            f"SELECT kind, count(*) AS n, sum(id) + {number} AS s FROM source GROUP BY kind"
        )
        cursor.execute(f"ALTER MATERIALIZED TABLE {prefix}{number} REFRESH")


def _refresh(cursor: Any, prefix: str, count: int, times: int) -> None:
    """Refresh every table so many times, each time after a change of the source."""
    for turn in range(times):
        cursor.execute(f"INSERT INTO source VALUES ({turn}, 'k{turn % 3}')")
        for number in range(count):
            cursor.execute(f"ALTER MATERIALIZED TABLE {prefix}{number} REFRESH")


if __name__ == "__main__":
    sys.exit(main())
