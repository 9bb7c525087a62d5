"""Creates materialized tables, refreshes and drops them, and prints the heap that each uses."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from servers import machine, tidegate_server
from sessions import jvm_of, live_mib

import tidegate

TABLES = 100
OFTEN = 10
REFRESHES = 50
WARM = 8
ROUNDS = 2
"""The same load again: what only the first round adds is no table's, but the JVM's warm-up."""
REST_SECONDS = 660
"""Longer than the ten minutes after which Delta drops the state of an unused table."""
GOAL_MIB = 0.05


def main() -> int:
    """Measure and print; return 1 when a table at rest takes more of the heap than the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=TABLES, help="refreshed once")
    parser.add_argument("--often", type=int, default=OFTEN, help="tables refreshed many times")
    parser.add_argument("--refreshes", type=int, default=REFRESHES, help="of each of these")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="the first one warms the JVM up")
    parser.add_argument("--rest", type=float, default=REST_SECONDS, help="seconds without a use")
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
        figures: dict[str, float] = {}
        start = live_mib(jvm)
        print(f"{'before':<32} {start:8.1f} MiB", flush=True)

        def note(what: str, since: float, count: int) -> float:
            now = live_mib(jvm)
            figures[what] = (now - since) / count
            print(f"{what:<32} {now:8.1f} MiB {figures[what]:8.3f} a table", flush=True)
            return now

        count = options.tables + options.often
        for turn in range(1, options.rounds + 1):
            once = f"once{turn}_"
            often = f"often{turn}_"
            _make(cursor, once, options.tables)
            last = note(f"{turn}: refreshed once", start, options.tables)
            _make(cursor, often, options.often)
            _refresh(cursor, often, options.often, options.refreshes - 1)
            note(f"{turn}: refreshed {options.refreshes} times", last, options.often)
            time.sleep(options.rest)
            # Delta looks for what it kept for too long when another table is read.
            for number in range(WARM):
                cursor.execute(f"SELECT count(*) FROM warm{number}")
            note(f"{turn}: at rest", start, count)
            for prefix, tables in ((once, options.tables), (often, options.often)):
                for number in range(tables):
                    cursor.execute(f"DROP MATERIALIZED TABLE {prefix}{number}")
            start = note(f"{turn}: dropped", start, count)
    if options.json:
        report = {"machine": machine(), "tables": options.tables, "mib_a_table": figures}
        options.json.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return int(figures[f"{options.rounds}: at rest"] > GOAL_MIB)


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
    """Refresh every table repeatedly, each time after a change of the source."""
    for turn in range(times):
        cursor.execute(f"INSERT INTO source VALUES ({turn}, 'k{turn % 3}')")
        for number in range(count):
            cursor.execute(f"ALTER MATERIALIZED TABLE {prefix}{number} REFRESH")


if __name__ == "__main__":
    sys.exit(main())
