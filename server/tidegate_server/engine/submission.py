"""Submits an engine to a cluster: one line of options and one of an invitation, then spark-submit.

The gateway runs this program. Whoever may look at the cluster sees the arguments of spark-submit,
so these contain no secret but the token of the invitation, which is accepted once.
"""

from __future__ import annotations

import os
import re
import shutil
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
from tidegate_server.core.tunnel import INVITATION_VARIABLE, POD_VARIABLE
from tidegate_server.engine import agent
from tidegate_server.engine.jvm.jars import optional_jars, resolve_jars
from tidegate_server.engine.jvm.kubernetes import (
    driver_pod_prefix,
    driver_pod_settings,
    is_kubernetes,
)
from tidegate_server.engine.jvm.launch import as_properties
from tidegate_server.engine.jvm.log4j import console_log_settings
from tidegate_server.engine.jvm.session import authentication, common_java_options

_LOG_FILE = "tidegate-log4j2.properties"
_POD_CONFIGURATION = "/opt/spark/conf"
"""Where Spark mounts the files of SPARK_CONF_DIR in the pod of a driver."""
_REFERENCES = ("spark.kubernetes.driver.secret", "spark.kubernetes.executor.secret")
"""Settings that name secrets of Kubernetes and contain none."""
_WAIT_MS = "300000"
"""How long YARN lets the engine start before it counts as failed, in milliseconds."""


def submission_settings(
    options: EngineOptions, jars: Sequence[str], invitation: str, log_file: Path
) -> dict[str, str]:
    """Return the settings with which Spark starts an engine's JVM in its cluster.

    :param jars: paths on this machine.
    :param invitation: as the agent finds it in its environment.
    :param log_file: the configuration of Log4j.
    """
    given = {key: value for key, value in options.settings.items() if not _is_secret(key, value)}
    common = {
        # The agent is a program of the same installation, at the same path unless this is set.
        "spark.pyspark.python": sys.executable,
        **authentication(options),
        **given,
        "spark.app.name": app_name(options),
        "spark.driver.memory": options.driver_memory,
        "spark.sql.catalogImplementation": "hive",
    }
    if is_kubernetes(options.master):
        return {**common, **_pod_settings(options, given, jars, invitation)}
    return {**common, **_container_settings(options, given, jars, invitation, log_file)}


def _container_settings(
    options: EngineOptions,
    given: Mapping[str, str],
    jars: Sequence[str],
    invitation: str,
    log_file: Path,
) -> dict[str, str]:
    """Return the settings for YARN, to which Spark copies the files."""
    return {
        **_class_path(given, [Path(jar).name for jar in jars]),
        **_java_options(options, given, log_file.name),
        "spark.jars": _joined(",", *jars, given.get("spark.jars")),
        f"spark.yarn.appMasterEnv.{INVITATION_VARIABLE}": invitation,
        "spark.yarn.dist.files": _joined(",", str(log_file), given.get("spark.yarn.dist.files")),
        "spark.yarn.tags": _joined(",", "tidegate", options.installation),
        # Another attempt would have an invitation that was used.
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.am.waitTime": given.get("spark.yarn.am.waitTime", _WAIT_MS),
    }


def _pod_settings(
    options: EngineOptions, given: Mapping[str, str], jars: Sequence[str], invitation: str
) -> dict[str, str]:
    """Return the settings for Kubernetes, whose image has the files at the same paths."""
    own = driver_pod_settings(options)
    return {
        **own,
        **_class_path(given, jars),
        **_java_options(options, given, f"{_POD_CONFIGURATION}/{_LOG_FILE}"),
        "spark.jars": _joined(",", *map(_in_image, jars), given.get("spark.jars")),
        f"spark.kubernetes.driverEnv.{INVITATION_VARIABLE}": invitation,
        f"spark.kubernetes.driverEnv.{POD_VARIABLE}": own["spark.kubernetes.driver.pod.name"],
    }


def _class_path(given: Mapping[str, str], jars: Sequence[str]) -> dict[str, str]:
    # Spark's own classes refer to those of the jars, so one class loader has to have them all.
    key = "spark.driver.extraClassPath"
    return {key: _joined(":", *jars, given.get(key))}


def _java_options(
    options: EngineOptions, given: Mapping[str, str], log_file: str
) -> dict[str, str]:
    key, log = "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log_file}"
    return {key: _joined(" ", log, *common_java_options(options), given.get(key))}


def app_name(options: EngineOptions) -> str:
    """Return the name of an engine's application, as the cluster shows it."""
    return "-".join(["tidegate", *re.findall(r"[A-Za-z0-9]+", options.name)])


def submit_command(master: str, properties: Path) -> list[str]:
    """Return the command that submits an engine."""
    program = agent.__file__
    return [
        *_spark_submit(master, properties),
        *("--deploy-mode", "cluster"),
        _in_image(program) if is_kubernetes(master) else program,
    ]


def removal_command(options: EngineOptions, properties: Path) -> list[str]:
    """Return the command that deletes the pods in which the engine was started before."""
    namespace = options.settings.get("spark.kubernetes.namespace", "default")
    pods = f"{namespace}:{driver_pod_prefix(options)}*"
    return [*_spark_submit(options.master, properties), "--kill", pods]


def submit(options: EngineOptions, invitation: bytes, environment: Mapping[str, str]) -> int:
    """Submit an engine, and return the exit code of spark-submit, which waits for its end.

    :raises ServerError: ENGINE_UNAVAILABLE if a jar is unavailable.
    """
    java = options.java_home
    optional = optional_jars(java, kafka=options.kafka, iceberg=options.iceberg)
    jars = [*map(str, (*resolve_jars(java), *optional)), *options.jars]
    environment = {**environment, "JAVA_HOME": java} if java else dict(environment)
    with tempfile.TemporaryDirectory(prefix="tidegate-submit-") as made:
        folder, properties = Path(made) / "conf", Path(made) / "spark.properties"
        log_file = folder / _LOG_FILE
        text = urlsafe_b64encode(invitation).decode("ascii")
        settings = submission_settings(options, jars, text, log_file)
        properties.touch(mode=0o600)
        properties.write_text(as_properties(settings), encoding="ascii")
        folder.mkdir()
        log_file.write_text(console_log_settings(), encoding="utf-8")
        if is_kubernetes(options.master):
            given = environment.get("SPARK_CONF_DIR", "")
            if os.path.isdir(given):
                shutil.copytree(given, folder, dirs_exist_ok=True)
            environment["SPARK_CONF_DIR"] = str(folder)  # Spark mounts its files in the pod
            if (code := _run(removal_command(options, properties), environment)) != 0:
                return code
        return _run(submit_command(options.master, properties), environment)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    return subprocess.run(command, env=environment, check=False).returncode


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
    return not key.startswith(_REFERENCES) and (is_sensitive(key) or redact(value) != value)


def _spark_submit(master: str, properties: Path) -> list[str]:
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    options = ("--master", master, "--properties-file", str(properties), "--load-spark-defaults")
    return [str(program), *options]


def _in_image(path: str) -> str:
    """Return Spark's URL of a file that is in the image."""
    return f"local://{path}"


def _joined(separator: str, *parts: str | None) -> str:
    return separator.join(filter(None, parts))


if __name__ == "__main__":
    sys.exit(main())
