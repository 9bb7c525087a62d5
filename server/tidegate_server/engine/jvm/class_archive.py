"""The archive of the engine's Java classes, which halves the JVM's start-up time.

Java calls this application class data sharing (JEP 350): the archive holds parsed and verified
classes. It fits one Java and one class path; the JVM ignores any other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.engine.jvm.jars import resolve_jars
from tidegate_server.engine.jvm.session import Directories, class_archive, start_spark

_EXIT_SECONDS = 300.0


def _exercise(spark: SparkSession) -> None:
    """Load the classes of a typical workload: create, change, merge into and read tables."""
    for text in (
        "CREATE TABLE a (k INT, v DECIMAL(10,2), s STRING) USING delta",
        "INSERT INTO a VALUES (1, 1.5, 'x'), (2, NULL, 'y')",
        "UPDATE a SET v = v + 1 WHERE k = 1",
        "DELETE FROM a WHERE k = 2",
        "CREATE TABLE b USING delta AS SELECT k, sum(v) AS v, count(*) AS c FROM a GROUP BY k",
        (
            "MERGE INTO b USING (SELECT 1 AS k, 2 AS c) n ON b.k <=> n.k "
            "WHEN MATCHED THEN UPDATE SET c = n.c WHEN NOT MATCHED THEN INSERT (k, c) VALUES (k, c)"
        ),
        "INSERT OVERWRITE b SELECT k, row_number() OVER (PARTITION BY s ORDER BY k), 1 FROM a",
    ):
        spark.sql(text)
    for text in (
        "SELECT * FROM table_changes('a', 0)",
        "SELECT a.*, b.c FROM a VERSION AS OF 1 LEFT JOIN b USING (k) ORDER BY k LIMIT 5",
        "SELECT count(DISTINCT s), collect_list(k), current_timestamp() FROM a",
    ):
        spark.sql(text).toArrow()


def _write_archive(archive: Path) -> bool:
    """Have a separate JVM write the archive at exit, then move it into place.

    :return: False if this Java wrote none, as happens if it ships without a base archive.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=archive.parent) as work:
        written = Path(work) / archive.name
        directories = Directories(Path(work))
        directories.prepare()
        options = EngineOptions(
            socket="",
            data=work,
            master="local[2]",
            driver_memory="1g",
            java_home="",
            direct_bytes=1 << 20,
            spool_quota=1 << 20,
            settings={
                "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={written}",
                # The engine's own is loaded from a directory, whose name differs each time.
                "spark.delta.logStore.class": "io.delta.storage.HDFSLogStore",
            },
        )
        spark = start_spark(options, directories)
        _exercise(spark)
        _stop(spark)
        if not written.exists():
            return False
        written.replace(archive)
    return True


def _stop(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM."""
    gateway: Any = spark.sparkContext._gateway
    process: subprocess.Popen[bytes] = gateway.proc
    spark.stop()
    gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def main() -> None:
    """Create the archive unless it exists."""
    archive = class_archive("", resolve_jars(os.environ.get("JAVA_HOME", "")))
    if archive.exists() or _write_archive(archive):
        sys.stdout.write(f"{archive.stat().st_size >> 20} MiB in {archive}\n")
    else:
        sys.stdout.write("This Java cannot write an archive; engines start without one.\n")


if __name__ == "__main__":
    main()
