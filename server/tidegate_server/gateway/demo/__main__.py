"""Command line of the demo: `python -m tidegate_server.gateway.demo`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import tidegate
from tidegate_server.gateway.demo.gateway import Gateway, Say, first_line
from tidegate_server.gateway.demo.loader import Loaded, Loader, steps
from tidegate_server.gateway.demo.nyc import MissingFlightsError, read_year
from tidegate_server.gateway.demo.watch import Counts, Watch

INVITATION = """
Try these meanwhile, connected to jdbc:hive2://{host}:{port}/flights

  SHOW MATERIALIZED TABLES;
  SELECT * FROM dws_delays WHERE origin = 'all' ORDER BY flight_month, late DESC;
  SELECT flight_day, COUNT(*), AVG(arr_delay) FROM dwd_flights GROUP BY ALL ORDER BY 1 DESC;
  DESCRIBE EXTENDED dwd_flights;
  ALTER MATERIALIZED TABLE dws_delays REFRESH;
  ALTER MATERIALIZED TABLE dwd_flights SUSPEND;
  ALTER MATERIALIZED TABLE dwd_flights RESUME;
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    options = _parser().parse_args(arguments)
    say = _silent if options.quiet else _say
    # SIGTERM is treated like Ctrl-C, so that the demo exits without a traceback.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-demo-", dir=options.staging) as staging:
            _run(options, say, Path(staging))
    except KeyboardInterrupt:
        say("The demo has stopped; its tables remain and are kept fresh.")
    except (MissingFlightsError, tidegate.Error) as error:
        sys.stderr.write(f"{first_line(error)}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidegate_server.gateway.demo",
        description="Load the flights of New York in 2013 into a gateway, one day every few "
        "seconds, and watch two materialized tables follow.",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=10000)
    parser.add_argument("--history", type=int, default=31, help="days loaded at once (31)")
    parser.add_argument("--days", type=int, help="days loaded one by one (the rest of the year)")
    parser.add_argument("--seconds-per-day", type=float, default=10.0)
    parser.add_argument(
        "--staging", type=Path, help="directory for Parquet files; Spark must be able to read it"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument(
        "--once", action="store_true", help="exit when both tables have everything that arrived"
    )
    ending.add_argument(
        "--keep-running",
        action="store_false",
        dest="once",
        help="keep watching after the last day (the default)",
    )
    return parser


def _run(options: argparse.Namespace, say: Say, staging: Path) -> None:
    say("Reading the flights of 2013 ...")
    year = read_year()
    gateway = Gateway(
        lambda: tidegate.connect(host=options.host, port=options.port, user="demo"), say=say
    )
    try:
        say(f"Asking the gateway at {options.host}:{options.port}; Spark may need a while ...")
        gateway.run("SELECT 1")
        loader = Loader(gateway, year, staging)
        loader.prepare()
        watch = Watch(gateway, say)
        watch.skip()
        say(INVITATION.format(host=options.host, port=options.port))
        for step in steps(loader, history=options.history, days=options.days):
            due = time.monotonic() + options.seconds_per_day
            loaded = step()
            watch.note_change(datetime.now(UTC))
            say(describe(loaded))
            _watch_until(watch, due)
        loader.close_last_day()
        watch.note_change(datetime.now(UTC))
        _follow(watch, say, once=options.once)
    finally:
        gateway.close()


def _watch_until(watch: Watch, due: float) -> None:
    watch.report_new()
    while (left := due - time.monotonic()) > 0:
        time.sleep(min(2.0, left))
        watch.report_new()


def _follow(watch: Watch, say: Say, *, once: bool) -> None:
    """Keep watching; with ``once`` only until both tables have everything."""
    counts = watch.counts()
    while True:
        if counts.level:
            say(summary(counts))
            if once:
                return
        while not watch.report_new():
            time.sleep(2.0)
        counts = watch.counts()


def describe(loaded: Loaded) -> str:
    """Return one arrival as a human-readable line."""
    days = f"{loaded.first}" if loaded.first == loaded.last else f"{loaded.first} to {loaded.last}"
    corrected = f", {loaded.corrected} landings corrected" if loaded.corrected else ""
    return f"{days}: {loaded.flights:,} flights arrived{corrected}"


def summary(counts: Counts) -> str:
    """Return the row counts once both tables have everything."""
    return (
        f"ods_flights {counts.ods:,} = dwd_flights {counts.dwd:,} = dws_delays {counts.dws:,}: "
        "everything that arrived is in both tables."
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _silent(line: str) -> None:
    """Print nothing."""


if __name__ == "__main__":
    sys.exit(main())
