"""Checks that a cluster can be reached, and that its executors share the storage of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tidegate_server.core.config_sections import EngineSection
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.secrets import is_sensitive

_WAREHOUSE = "spark.sql.warehouse.dir"
_DEFAULT_FILES = "spark.hadoop.fs.defaultFS"
_EXCHANGE = ".tidegate"
"""Directory of the warehouse for files that are no tables; no schema or table has such a name."""
_HADOOP_PLACES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Spark reads the files in both."""
_YARN_FILE = "yarn-site.xml"
_OF_THE_SERVER = (
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.kubernetes.driver.pod.name",
)
"""Settings that describe the server's machine, or the pod that it runs in."""
_DRIVER_VARIABLES = ("spark.kubernetes.driverEnv.", "spark.yarn.appMasterEnv.")
_TOKEN = "spark.kubernetes.authenticate.oauthToken"
_S3 = ("s3", "s3a", "s3n")
_LOG_STORE = "spark.delta.logStore.class"
_ONE_DRIVER = "S3SingleDriverLogStore"
"""Delta's log store for these schemes, unless another one is set."""


def check_cluster_storage(
    master: str, settings: Mapping[str, str], data: Path, engine: EngineSection
) -> None:
    """Reject a warehouse on this machine's disk if executors run on other machines.

    Each executor would write to its own disk, and its rows would be missing from the table.

    :param master: Spark's master URL; ``local...`` runs everything on this machine.
    :param settings: those of the engine.
    :param engine: says what all machines have mounted at the same path.
    :raises ServerError: CLUSTER_STORAGE.
    """
    if master.startswith("local") or engine.shared_data:
        return
    if engine.shared_warehouse and _WAREHOUSE in settings:
        return
    warehouse = settings.get(_WAREHOUSE, f"file:{data / 'warehouse'}")
    if _scheme(warehouse, settings) in ("", "file"):
        raise error(Code.CLUSTER_STORAGE, master=master, warehouse=warehouse)


def check_hadoop_configuration(master: str, environment: Mapping[str, str]) -> None:
    """Reject the master ``yarn`` without the files that say where YARN is.

    :param environment: the variables that the engine inherits.
    :raises ServerError: CLUSTER_CONFIGURATION.
    """
    if not master.startswith("yarn"):
        return
    hint = (
        "Start the server with the environment variable HADOOP_CONF_DIR, the directory of "
        "yarn-site.xml and core-site.xml."
    )
    given = {name: environment[name] for name in _HADOOP_PLACES if environment.get(name)}
    if not given:
        reason = "HADOOP_CONF_DIR is not set"
        raise error(Code.CLUSTER_CONFIGURATION, master=master, reason=reason, hint=hint)
    if not any((Path(place) / _YARN_FILE).is_file() for place in given.values()):
        places = " and ".join(f"{name} = {place}" for name, place in given.items())
        reason = f"{places} has no {_YARN_FILE}"
        raise error(Code.CLUSTER_CONFIGURATION, master=master, reason=reason, hint=hint)


def section_settings(
    inherited: Mapping[str, str], own: Mapping[str, str], *, in_cluster: bool
) -> dict[str, str]:
    """Return the settings of the engine of a section.

    :param inherited: those of all engines.
    :param in_cluster: whether its own process runs in the cluster.
    """
    if in_cluster:
        inherited = {key: value for key, value in inherited.items() if key not in _OF_THE_SERVER}
    return {**inherited, **own}


def check_submitted_settings(master: str, settings: Mapping[str, str]) -> None:
    """Reject settings without effect on an engine whose own process runs in a cluster.

    Secrets are sent once it has registered. It is then too late for the environment of its process,
    and for signing in to submit it.

    :param settings: those of :func:`section_settings`.
    :raises ServerError: CLUSTER_CONFIGURATION.
    """
    for key in settings:
        if key in _OF_THE_SERVER:
            reason = f"{key} is the cluster's decision with deploy_mode = cluster"
            hint = "Remove it from the settings of the section."
        elif key.startswith(_DRIVER_VARIABLES) and is_sensitive(key):
            reason = f"{key} would be visible in the cluster"
            hint = "Let the driver read it from a file that its machine has."
            if master.startswith("k8s://"):
                hint = "Use spark.kubernetes.driver.secretKeyRef.NAME = SECRET:KEY."
        elif key == _TOKEN and master.startswith("k8s://"):
            reason = f"{key} would be visible in the cluster"
            hint = f"Use {key}File, the path of a file of the server's machine."
        else:
            continue
        raise error(Code.CLUSTER_CONFIGURATION, master=master, reason=reason, hint=hint)


def check_log_store(settings: Mapping[str, str]) -> None:
    """Reject several engines on S3 with Delta's default log store, which is for one driver.

    It writes a commit after checking that there is none of that version; only within one process is
    that atomic. See Delta's page on storage configuration.

    :param settings: those of an engine beside which there are others.
    :raises ServerError: LOG_STORE_UNSAFE.
    """
    warehouse = settings.get(_WAREHOUSE, "")
    scheme = _scheme(warehouse, settings)
    if scheme not in _S3:
        return
    given = settings.get(f"spark.delta.logStore.{scheme}.impl") or settings.get(_LOG_STORE, "")
    if given.strip().rpartition(".")[2] in ("", _ONE_DRIVER):
        raise error(Code.LOG_STORE_UNSAFE, warehouse=warehouse, scheme=scheme)


def exchange_directory(master: str, settings: Mapping[str, str], engine: EngineSection) -> str:
    """Return where driver and executors hand files to each other; empty for the data directory.

    The parameters are those of :func:`check_cluster_storage`, which must have accepted them.
    """
    if master.startswith("local") or engine.shared_data:
        return ""
    return f"{settings[_WAREHOUSE].rstrip('/')}/{_EXCHANGE}"


def _scheme(warehouse: str, settings: Mapping[str, str]) -> str:
    return urlsplit(warehouse).scheme or urlsplit(settings.get(_DEFAULT_FILES, "file:")).scheme
