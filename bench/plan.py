"""Measures how long ``tidegate plan`` takes over tables that are as the directory defines them."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path

from servers import machine, tidegate_server

import tidegate
from tidegate.cli import main as run_command

_LONGEST_SECONDS_A_THOUSAND = 10.0
_TABLE = """\
CREATE OR ALTER MATERIALIZED TABLE t{number}
COMMENT 'sums of group {number}'
FRESHNESS = INTERVAL '1' DAY
AS SELECT k, sum(id) AS total, count(*) AS n FROM facts WHERE id % 1000 > {number} GROUP BY k;
"""


def main() -> int:
    """Measure and print; return 1 if a plan of a thousand tables takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-plan-") as directory:
        folder = Path(directory) / "tables"
        folder.mkdir()
        for number in range(options.tables):
            (folder / f"t{number}.sql").write_text(_TABLE.format(number=number))
        home = Path(directory) / "server"
        home.mkdir()
        with tidegate_server(home) as server:
            with (
                tidegate.connect(host="127.0.0.1", port=server.port) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("CREATE TABLE facts AS SELECT id, id % 100 AS k FROM range(100000)")
            at = ("--host", "127.0.0.1", "--port", str(server.port))
            created, _ = _timed("apply", str(folder), "--yes", *at)
            plans = [_timed("plan", str(folder), *at) for _ in range(options.runs)]
            analyzed, _ = _timed("plan", str(folder), "--analyze", *at)
    if any("No changes" not in text for _, text in plans):
        print("the plan has changes", file=sys.stderr)
        return 1
    best = min(seconds for seconds, _ in plans)
    print(
        f"{options.tables} tables: created in {created:.1f} s; plan without changes {best:.2f} s "
        f"({1000 * best / options.tables:.1f} ms a table); with --analyze {analyzed:.2f} s; "
        f"ratio {analyzed / best:.1f}"
    )
    return int(best * 1000 / options.tables > _LONGEST_SECONDS_A_THOUSAND)


def _timed(*arguments: str) -> tuple[float, str]:
    """Run the command line in this process; return seconds and what it wrote."""
    out = io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = run_command(list(arguments))
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with status {status}\n{out.getvalue()}")
    return time.monotonic() - began, out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
