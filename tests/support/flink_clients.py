"""Flink's own clients of its SQL gateway, from Maven Central and PyPI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.ivy import Jar, fetched
from tidegate_server.engine.jvm.jars import cache_dir
from tidegate_server.gateway.link.java import find_java

VERSION: Final = "2.3.0"
_FLINK: Final = "org.apache.flink"
_SLF4J: Final = Jar("org.slf4j", "slf4j-api", "1.7.36")
_JDBC: Final = (Jar(_FLINK, "flink-sql-jdbc-driver-bundle", VERSION), _SLF4J)
_SQL_CLIENT: Final = (
    *(
        Jar(_FLINK, f"flink-{name}", VERSION)
        for name in (
            *("annotations", "clients", "core", "core-api", "json", "runtime", "sql-client"),
            *("sql-gateway", "sql-gateway-api", "table-api-java", "table-common"),
        )
    ),
    Jar(_FLINK, "flink-shaded-guava", "33.5.0-jre-21.0"),
    Jar(_FLINK, "flink-shaded-jackson", "2.20.1-21.0"),
    Jar(_FLINK, "flink-shaded-netty", "4.2.6.Final-21.0"),
    Jar("com.ibm.icu", "icu4j", "67.1"),
    Jar("commons-cli", "commons-cli", "1.5.0"),
    Jar("org.apache.commons", "commons-lang3", "3.18.0"),
    Jar("org.snakeyaml", "snakeyaml-engine", "2.6"),
    _SLF4J,
)
"""What the client needs in gateway mode: neither the planner nor a cluster."""
_GENERATED: Final = "flink-sql-gateway-api==2.1.0"
_STYLES: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_PROGRAM: Final = Path(__file__).parents[1] / "e2e" / "flink_jdbc_program.py"
_SECONDS: Final = 300


def sql_client(address: str, folder: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the command of the SQL client in gateway mode, with its environment before it."""
    configuration = folder / "flink-conf"
    configuration.mkdir(exist_ok=True)
    (configuration / "config.yaml").touch()
    path = os.pathsep.join(map(str, fetched(f"flink-sql-client-{VERSION}", _SQL_CLIENT)))
    settings = {"FLINK_CONF_DIR": str(configuration), **environment}
    return [
        *("env", *(f"{key}={value}" for key, value in settings.items())),
        *(str(find_java().home / "bin" / "java"), "-Xmx256m", "-XX:TieredStopAtLevel=1"),
        *("-cp", path, "org.apache.flink.table.client.SqlClient", "gateway"),
        *("-e", address, "--history", str(folder / "history"), *arguments),
    ]


def run_sql_client(address: str, folder: Path, script: str, **environment: str) -> str:
    """Run a script with the SQL client, and return what it printed, without colours."""
    file = folder / "script.sql"
    file.write_text(script)
    command = sql_client(address, folder, "-f", str(file), **environment)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return without_styles(done.stdout) + done.stderr


def without_styles(text: str) -> str:
    """Return the text of a terminal without its control sequences."""
    return _STYLES.sub("", text)


def run_jdbc(url: str, *steps: Sequence[Any], **environment: str) -> list[Any]:
    """Return what each step gave on a connection of the JDBC driver."""
    jars = [str(each) for each in fetched(f"flink-jdbc-{VERSION}", _JDBC)]
    done = subprocess.run(
        [sys.executable, str(_PROGRAM)],
        input=json.dumps({"jars": jars, "url": url, "steps": steps}),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env={**os.environ, "JAVA_HOME": str(find_java().home), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def generated_client() -> Path:
    """Return the Python of an environment with PyPI's client, which is made if it lacks."""
    place = cache_dir() / "flink-sql-gateway-api"
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        venv.create(place, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", _GENERATED],
            check=True,
            timeout=_SECONDS,
        )
        (place / "complete").touch()
    return python
