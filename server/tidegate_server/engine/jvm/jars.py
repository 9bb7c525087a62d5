"""The jars of Delta and of options: pinned versions, fetched once with Spark's own Ivy."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tidegate_server.core.errors import Code, error

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact by its Maven coordinates."""

    organisation: str
    name: str
    revision: str

    @property
    def file(self) -> str:
        """The file name in the cache."""
        return f"{self.name}-{self.revision}.jar"


# PySpark ships all their dependencies.
JARS = (
    Jar("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    Jar("io.delta", "delta-storage", "4.4.0"),
    Jar("org.apache.spark", "spark-avro_2.13", "4.1.1"),
)
KAFKA = (
    Jar("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.1"),
    Jar("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.1"),
    Jar("org.apache.kafka", "kafka-clients", "3.9.1"),
    Jar("org.apache.commons", "commons-pool2", "2.12.1"),
)
"""The jars that STREAM read_kafka needs."""
ICEBERG = (Jar("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),)
"""The jar that catalogs of the type iceberg need."""
CACHE_VARIABLE = "TIDEGATE_CACHE"
"""The environment variable with the cache directory."""
_TIMEOUT = 600.0


def cache_dir() -> Path:
    """Return the cache directory, by $TIDEGATE_CACHE or $XDG_CACHE_HOME, or below ~/.cache."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tidegate" / "jars"


def resolve_jars(java_home: str = "") -> tuple[Path, ...]:
    """Return the paths of the jars of every engine, fetching missing ones.

    :raises ServerError: ENGINE_UNAVAILABLE if a jar is not cached and cannot be fetched.
    """
    return fetch_jars(JARS, java_home)


def optional_jars(
    java_home: str = "", *, kafka: bool = False, iceberg: bool = False
) -> tuple[Path, ...]:
    """Return the paths of the jars for Kafka and Iceberg; raises as :func:`resolve_jars`."""
    return fetch_jars((*(KAFKA if kafka else ()), *(ICEBERG if iceberg else ())), java_home)


def fetch_jars(jars: Sequence[Jar], java_home: str = "") -> tuple[Path, ...]:
    """Return the paths of jars in the cache; raises as :func:`resolve_jars`."""
    cache = cache_dir()
    missing = [jar for jar in jars if not (cache / jar.file).exists()]
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        for jar in missing:
            _fetch(jar, cache, java_home)
    return tuple(cache / jar.file for jar in jars)


def _fetch(jar: Jar, cache: Path, java_home: str) -> None:
    """Fetch into a temporary directory, then rename: two processes may do this at once."""
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=cache))
    try:
        done = _run_ivy(jar, work, java_home)
        fetched = work / jar.file
        if not fetched.exists():
            lines = (done.stdout + done.stderr).strip().splitlines()
            reasons = [line.strip() for line in lines if "ERROR" in line or "not found" in line]
            logger.error("Ivy did not fetch %s:\n%s", jar.file, "\n".join(lines))
            raise error(
                Code.ENGINE_UNAVAILABLE,
                reason=f"{jar.file} is not in {cache} and could not be fetched "
                f"({reasons[0] if reasons else f'Ivy ended with {done.returncode}'})",
            )
        fetched.replace(cache / jar.file)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_ivy(jar: Jar, work: Path, java_home: str) -> subprocess.CompletedProcess[str]:
    shipped = Path(pyspark.__file__).parent / "jars"
    java = str(Path(java_home) / "bin" / "java") if java_home else "java"
    command = [java, "-cp", f"{shipped}/*", "org.apache.ivy.Main", "-cache", str(work / "ivy")]
    if settings := os.environ.get("TIDEGATE_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-dependency", jar.organisation, jar.name, jar.revision, "-notransitive"]
    command += ["-confs", "default", "-types", "jar"]
    command += ["-retrieve", str(work / "[artifact]-[revision].[ext]")]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except FileNotFoundError as caught:
        raise error(
            Code.ENGINE_UNAVAILABLE,
            reason="java was not found; install it, for example openjdk-17-jre-headless",
        ) from caught
    except subprocess.TimeoutExpired as caught:
        raise error(
            Code.ENGINE_UNAVAILABLE, reason=f"fetching {jar.file} took over {_TIMEOUT:.0f} s"
        ) from caught


def main() -> None:
    """Fetch the jars, so that the engine can start without a network."""
    paths = resolve_jars(os.environ.get("JAVA_HOME", ""))
    sys.stdout.write(f"{len(paths)} jars in {cache_dir()}\n")


if __name__ == "__main__":
    main()
