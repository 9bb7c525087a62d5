"""A REST catalog of Iceberg's: the server that Iceberg's own tests use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.ivy import SHIPPED, Jar, fetched
from tests.support.postgres import free_port
from tests.support.waiting import wait_until_listening
from tidegate_server.gateway.link.java import find_java

_SECONDS: Final = 60
_ICEBERG, _JETTY = "1.10.1", "11.0.26"
_JARS: Final = (
    Jar("org.apache.iceberg", "iceberg-open-api", _ICEBERG, "test-fixtures"),
    Jar("org.apache.iceberg", "iceberg-core", _ICEBERG, "tests"),
    *(Jar("org.apache.iceberg", f"iceberg-{name}", _ICEBERG) for name in ("api", "common", "core")),
    Jar("org.apache.iceberg", "iceberg-bundled-guava", _ICEBERG),
    Jar("org.apache.httpcomponents.client5", "httpclient5", "5.5"),
    Jar("org.apache.httpcomponents.core5", "httpcore5", "5.3.4"),
    Jar("org.apache.httpcomponents.core5", "httpcore5-h2", "5.3.4"),
    Jar("com.github.ben-manes.caffeine", "caffeine", "2.9.3"),
    *(
        Jar("org.eclipse.jetty", f"jetty-{name}", _JETTY)
        for name in ("http", "io", "security", "server", "servlet", "util")
    ),
    Jar("org.eclipse.jetty.toolchain", "jetty-jakarta-servlet-api", "5.0.2"),
    Jar("org.xerial", "sqlite-jdbc", "3.47.1.0"),
)
"""PySpark has the other ones, among them Hadoop."""


@contextmanager
def running_rest_catalog(folder: Path) -> Iterator[str]:
    """Start a catalog whose tables are below a directory; yield its URI."""
    java, port = find_java().home, free_port()
    jars = fetched(f"iceberg-rest-{_ICEBERG}", _JARS)
    environment = {
        **os.environ,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
    }
    path = ":".join([*map(str, jars), f"{SHIPPED}/*"])
    server = "org.apache.iceberg.rest.RESTCatalogServer"
    command = [str(java / "bin" / "java"), "-Xmx256m", "-cp", path, server]
    with (folder / "rest.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        wait_until_listening(process, port, _SECONDS)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()
