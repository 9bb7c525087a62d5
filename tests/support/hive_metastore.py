"""A Hive Metastore of this run's own: the server is in the jars of PySpark."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.support.postgres import free_port
from tests.support.waiting import wait_until_listening
from tidegate_server.gateway.link.java import find_java

_SHIPPED = Path(pyspark.__file__).parent / "jars"
_SECONDS = 120


@contextmanager
def running_hive_metastore(folder: Path) -> Iterator[str]:
    """Start a metastore with an empty database of Derby, without locks; yield its URI."""
    port = free_port()
    url = f"jdbc:derby:;databaseName={folder / 'derby'};create=true"
    settings = {
        "javax.jdo.option.ConnectionURL": url,
        "datanucleus.schema.autoCreateAll": "true",
        # Of the pools that it knows, this one is among the jars.
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
    }
    given = [word for key, value in settings.items() for word in ("--hiveconf", f"{key}={value}")]
    java = find_java().home / "bin" / "java"
    # The library of asynchronous logs is not among the jars.
    options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dhive.async.log.enabled=false"]
    options.append(f"-Dhive.log.dir={folder}")
    server = "org.apache.hadoop.hive.metastore.HiveMetaStore"
    command = [str(java), *options, "-cp", f"{_SHIPPED}/*", server, "-p", str(port), *given]
    with (folder / "metastore.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        wait_until_listening(process, port, _SECONDS)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
