"""A Spark without Tidegate, which fills a Hive Metastore as other users of it do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.spark_settings import BRIEF
from tidegate_server.engine.jvm.jars import resolve_jars

_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").enableHiveSupport()
for key, value in json.loads(sys.argv[1]).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
for line in sys.stdin:
    try:
        spark.sql(json.loads(line)).collect()
        print("done:", flush=True)
    except Exception as failed:
        print("done:" + json.dumps(str(failed)), flush=True)
"""


@dataclass(frozen=True, slots=True)
class OtherSpark:
    """A process that runs statements."""

    process: subprocess.Popen[str]

    def run(self, *statements: str) -> None:
        """Run statements, one after the other."""
        for statement in statements:
            assert self.process.stdin is not None and self.process.stdout is not None
            self.process.stdin.write(json.dumps(statement) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith("done:"):
                    assert line == "done:\n", line
                    break
            else:
                raise AssertionError(f"Spark ended with {self.process.wait()}")


@contextmanager
def running_spark(folder: Path, metastore: str) -> Iterator[OtherSpark]:
    """Start a Spark whose catalog is a metastore, by its URI; its warehouse is in a folder."""
    settings = {
        **BRIEF,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "600m",
        "spark.jars": ",".join(map(str, resolve_jars())),
        "spark.sql.warehouse.dir": str(folder / "other_warehouse"),
        "spark.hadoop.hive.metastore.uris": metastore,
        "spark.hadoop.hive.exec.dynamic.partition.mode": "nonstrict",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    with (folder / "other_spark.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
        )
    try:
        yield OtherSpark(process)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()  # it ends at the end of its input
        process.wait(60)
        process.stdout.close()
