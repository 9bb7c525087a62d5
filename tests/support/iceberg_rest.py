"""A REST catalog of Iceberg's: the server that Iceberg's own tests use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

import pyspark

from tests.support.postgres import free_port
from tests.support.waiting import wait_until_listening
from tidegate_server.engine.jvm.jars import cache_dir
from tidegate_server.gateway.link.java import find_java

_SHIPPED: Final = Path(pyspark.__file__).parent / "jars"
_SECONDS: Final = 60
_FETCH_SECONDS: Final = 600
_ICEBERG, _JETTY = "1.10.1", "11.0.26"
_JARS: Final = (
    ("org.apache.iceberg", "iceberg-open-api", _ICEBERG, "test-fixtures"),
    ("org.apache.iceberg", "iceberg-core", _ICEBERG, "tests"),
    *(
        ("org.apache.iceberg", f"iceberg-{name}", _ICEBERG, "")
        for name in ("api", "common", "core")
    ),
    ("org.apache.iceberg", "iceberg-bundled-guava", _ICEBERG, ""),
    ("org.apache.httpcomponents.client5", "httpclient5", "5.5", ""),
    ("org.apache.httpcomponents.core5", "httpcore5", "5.3.4", ""),
    ("org.apache.httpcomponents.core5", "httpcore5-h2", "5.3.4", ""),
    ("com.github.ben-manes.caffeine", "caffeine", "2.9.3", ""),
    *(
        ("org.eclipse.jetty", f"jetty-{name}", _JETTY, "")
        for name in ("http", "io", "security", "server", "servlet", "util")
    ),
    ("org.eclipse.jetty.toolchain", "jetty-jakarta-servlet-api", "5.0.2", ""),
    ("org.xerial", "sqlite-jdbc", "3.47.1.0", ""),
)
"""Organisation, name, revision and classifier; PySpark has the other ones, among them Hadoop."""


@contextmanager
def running_rest_catalog(folder: Path) -> Iterator[str]:
    """Start a catalog whose tables are below a directory; yield its URI."""
    java, port = find_java().home, free_port()
    jars = _fetched(java)
    environment = {
        **os.environ,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
    }
    path = ":".join([*map(str, jars), f"{_SHIPPED}/*"])
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


def _fetched(java: Path) -> list[Path]:
    """Return the jars, fetched with Ivy into a directory of the cache."""
    place = cache_dir() / f"iceberg-rest-{_ICEBERG}"
    wanted = [
        place / f"{name}-{revision}{'-' + classifier if classifier else ''}.jar"
        for _, name, revision, classifier in _JARS
    ]
    if all(each.exists() for each in wanted):
        return wanted
    place.mkdir(parents=True, exist_ok=True)
    modules = dict.fromkeys(each[:3] for each in _JARS)
    listed = "".join(
        f"<dependency org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(revision)} "
        f'transitive="false">{"".join(_artifact(each) for each in _JARS if each[1] == name)}'
        "</dependency>"
        for org, name, revision in modules
    )
    module = place / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tidegate" module="rest"/>'
        f"<dependencies>{listed}</dependencies></ivy-module>"
    )
    ivy = [str(java / "bin" / "java"), "-cp", f"{_SHIPPED}/*", "org.apache.ivy.Main"]
    ivy += ["-cache", str(place / "ivy"), "-ivy", str(module)]
    if settings := os.environ.get("TIDEGATE_IVY_SETTINGS"):
        ivy += ["-settings", settings]
    ivy += ["-retrieve", str(place / "[artifact]-[revision](-[classifier]).[ext]")]
    subprocess.run(ivy, check=True, capture_output=True, timeout=_FETCH_SECONDS)
    missing = [each.name for each in wanted if not each.exists()]
    assert not missing, missing
    return wanted


def _artifact(jar: tuple[str, str, str, str]) -> str:
    _, name, _, classifier = jar
    of = f" m:classifier={quoteattr(classifier)}" if classifier else ""
    return f'<artifact name={quoteattr(name)} type="jar" ext="jar"{of}/>'
