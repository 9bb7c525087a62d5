"""Submits an engine to a cluster: one line of options and one of an invitation, then spark-submit.

The gateway runs this program. Whoever may look at the cluster sees the arguments of spark-submit,
so these contain no secret but the token of the invitation, which is accepted once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pyspark

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.core.model.secrets import is_sensitive
from tidegate_server.core.sql.redact import redact
from tidegate_server.core.tunnel import INVITATION_VARIABLE
from tidegate_server.engine import agent
from tidegate_server.engine.jvm.jars import optional_jars, resolve_jars
from tidegate_server.engine.jvm.launch import as_properties
from tidegate_server.engine.jvm.log4j import console_log_settings
from tidegate_server.engine.jvm.session import common_java_options

_LOG_FILE = "tidegate-log4j2.properties"
_YARN = "yarn"
_WAIT_MS = "300000"
"""How long YARN lets the engine start before it counts as failed, in milliseconds."""


def submission_settings(
    options: EngineOptions, jars: Sequence[str], invitation: str, log_file: Path
) -> dict[str, str]:
    """Return the settings with which Spark starts an engine's JVM in its cluster.

    :param jars: paths on this machine, which Spark copies to the driver and to the executors.
    :param invitation: as the agent finds it in its environment.
    :param log_file: the configuration of Log4j, which Spark copies, too.
    """
    given = {key: value for key, value in options.settings.items() if not _is_secret(key, value)}
    return {
        # The agent is a program of the same installation, at the same path unless this is set.
        "spark.pyspark.python": sys.executable,
        **given,
        "spark.app.name": app_name(options),
        "spark.driver.memory": options.driver_memory,
        "spark.jars": _joined(",", *jars, given.get("spark.jars")),
        # Spark's own classes refer to those of the jars, so one class loader has to have them all.
        "spark.driver.extraClassPath": _joined(
            ":", *(Path(jar).name for jar in jars), given.get("spark.driver.extraClassPath")
        ),
        "spark.driver.extraJavaOptions": _joined(
            " ",
            f"-Dlog4j2.configurationFile={log_file.name}",
            *common_java_options(options),
            given.get("spark.driver.extraJavaOptions"),
        ),
        "spark.sql.catalogImplementation": "hive",
        f"spark.yarn.appMasterEnv.{INVITATION_VARIABLE}": invitation,
        "spark.yarn.dist.files": _joined(",", str(log_file), given.get("spark.yarn.dist.files")),
        "spark.yarn.tags": _joined(",", "tidegate", options.installation),
        # Another attempt would have an invitation that was used.
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.am.waitTime": given.get("spark.yarn.am.waitTime", _WAIT_MS),
    }


def app_name(options: EngineOptions) -> str:
    """Return the name of an engine's application, as the cluster shows it."""
    return "-".join(["tidegate", *re.findall(r"[A-Za-z0-9]+", options.name)])


def submit_command(master: str, properties: Path) -> list[str]:
    """Return the command that submits an engine."""
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    return [
        str(program),
        *("--master", master),
        *("--deploy-mode", "cluster"),
        *("--properties-file", str(properties)),
        "--load-spark-defaults",
        str(agent.__file__),
    ]


def submit(options: EngineOptions, invitation: bytes, environment: Mapping[str, str]) -> int:
    """Submit an engine, and return the exit code of spark-submit, which waits for its end.

    :raises ServerError: ENGINE_UNAVAILABLE if a jar is unavailable.
    """
    java = options.java_home
    optional = optional_jars(java, kafka=options.kafka, iceberg=options.iceberg)
    jars = [*map(str, (*resolve_jars(java), *optional)), *options.jars]
    with tempfile.TemporaryDirectory(prefix="tidegate-submit-") as made:
        log_file, properties = Path(made) / _LOG_FILE, Path(made) / "spark.properties"
        log_file.write_text(console_log_settings(), encoding="utf-8")
        text = urlsafe_b64encode(invitation).decode("ascii")
        settings = submission_settings(options, jars, text, log_file)
        properties.touch(mode=0o600)
        properties.write_text(as_properties(settings), encoding="ascii")
        command = submit_command(options.master, properties)
        return subprocess.run(
            command, env={**environment, "JAVA_HOME": java} if java else environment, check=False
        ).returncode


def main() -> int:
    """Read options and invitation from standard input; return the exit code of spark-submit."""
    options = msgspec.json.decode(sys.stdin.buffer.readline(), type=EngineOptions)
    invitation = sys.stdin.buffer.readline().strip()
    try:
        return submit(options, invitation, os.environ)
    except ServerError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _is_secret(key: str, value: str) -> bool:
    return is_sensitive(key) or redact(value) != value


def _joined(separator: str, *parts: str | None) -> str:
    return separator.join(filter(None, parts))


if __name__ == "__main__":
    sys.exit(main())
