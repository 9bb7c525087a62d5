"""Shows what a call from Python to the JVM takes by the length of its answer, beside PySpark's."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from servers import machine

from tidegate_server.engine.jvm.launch import start_jvm

LENGTHS = (100, 8_000, 9_000, 50_000)
_CALLS = 15


def main() -> int:
    """Measure both in processes of their own, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("pyspark", "tidegate"), help="print the medians of one")
    options = parser.parse_args()
    if options.only:
        print(" ".join(f"{seconds:.6f}" for seconds in _medians(options.only)))
        return 0
    print(machine(), flush=True)
    plain, own = (_run(name) for name in ("pyspark", "tidegate"))
    for length, before, after in zip(LENGTHS, plain, own, strict=True):
        print(
            f"{length:>7,} bytes: PySpark {1000 * before:6.2f} ms, engine {1000 * after:6.2f} ms, "
            f"{before / after:5.1f} times as fast"
        )
    return 0


def _run(name: str) -> list[float]:
    command = [sys.executable, __file__, "--only", name]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(seconds) for seconds in output.split()]


def _medians(name: str) -> list[float]:
    if name == "pyspark":
        SparkContext._ensure_initialized(gateway=launch_gateway())
    else:
        with tempfile.TemporaryDirectory() as folder:
            start_jvm({}, Path(folder))
    return [_median(length) for length in LENGTHS]


def _median(length: int) -> float:
    """Return the median seconds of a call whose answer has this length."""
    repeat = SparkContext._jvm.org.apache.commons.lang3.StringUtils.repeat
    took = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        repeat("x", length)
        took.append(time.perf_counter() - began)
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
