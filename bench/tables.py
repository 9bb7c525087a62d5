"""Fills a metastore with copies of one table, through the metastore's own client.

The content of the metastore is afterwards the same as after a CREATE TABLE for each, in a
fraction of its time.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from servers import DRIVER_MEMORY

from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.engine.jvm.session import Directories, start_spark

CLIENTS = 4


def main() -> None:
    """Take the data directory, the schema and the number of tables."""
    data, schema, tables = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    directories = Directories(data.resolve())
    directories.prepare()
    # Nothing is lost if the machine dies now, so Derby need not wait for the disk.
    java = {"spark.driver.extraJavaOptions": "-Dderby.system.durability=test"}
    options = EngineOptions(
        socket="",
        data=str(data),
        master="local[2]",
        driver_memory=DRIVER_MEMORY,
        java_home="",
        direct_bytes=1 << 20,
        spool_quota=1 << 30,
        settings=java,
    )
    spark = start_spark(options, directories)
    spark.sql(f"CREATE SCHEMA {schema}")
    spark.sql(
        f"CREATE TABLE {schema}.t0 (id BIGINT, name STRING, at TIMESTAMP) "
        "USING parquet COMMENT 'number 0'"
    )
    copy(spark, schema, tables)
    spark.stop()


def copy(spark: Any, schema: str, tables: int) -> None:
    """Register the table under the other numbers, with several clients at a time."""
    hive = spark._jvm.org.apache.hadoop.hive
    settings = hive.conf.HiveConf()
    settings.addResource(spark.sparkContext._jsc.hadoopConfiguration())

    def register(numbers: range) -> None:
        client = hive.metastore.HiveMetaStoreClient(settings)
        table = client.getTable(schema, "t0")
        location = table.getSd().getLocation().removesuffix("t0")
        for number in numbers:
            table.setTableName(f"t{number}")
            table.putToParameters("comment", f"number {number}")
            table.getSd().setLocation(f"{location}t{number}")
            client.createTable(table)
        client.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(register, (range(1 + n, tables, CLIENTS) for n in range(CLIENTS))))


if __name__ == "__main__":
    main()
