"""Checks the settings of engines whose executors, or themselves, are pods of Kubernetes."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tidegate_server.core.errors import Code, ServerError, error

_MASTER = "k8s://"
_IMAGES = ("spark.kubernetes.executor.container.image", "spark.kubernetes.container.image")
_DRIVER_HOST = "spark.driver.host"
_PREFIX = "spark.kubernetes.executor.podNamePrefix"
_OWN_LABELS = (
    "spark.kubernetes.executor.label.tidegate/",
    "spark.kubernetes.driver.label.tidegate/",
)
_TEMPLATE = "spark.kubernetes.executor.podTemplateFile"
_DRIVER_TEMPLATE = "spark.kubernetes.driver.podTemplateFile"


def check_kubernetes_settings(master: str, settings: Mapping[str, str]) -> None:
    """Reject what Spark would fail on only when it creates pods, or never report.

    The API server is not asked: each start of an engine does that.

    :param settings: those of the engine.
    :raises ServerError: CLUSTER_CONFIGURATION.
    """
    if not master.startswith(_MASTER):
        return
    if not urlsplit(master.removeprefix(_MASTER)).netloc and "://" in master[len(_MASTER) :]:
        raise _unusable(master, "it names no API server", "Write k8s://https://host:port.")
    if not any(settings.get(key, "").strip() for key in _IMAGES):
        raise _unusable(
            master,
            "the image of the executors is not set",
            f"Set engine.settings.{_IMAGES[1]}, or that of the section's settings, to an image "
            "with Spark and Tidegate, such as that of examples/kubernetes.",
        )
    if _PREFIX in settings or any(key.startswith(_OWN_LABELS) for key in settings):
        raise _unusable(
            master,
            f"{_PREFIX} and labels of tidegate/ are the engine's own",
            "Set cluster_id in the engine's section to name its pods.",
        )
    _template(master, _DRIVER_TEMPLATE, settings)
    template = _template(master, _TEMPLATE, settings)
    host = settings.get(_DRIVER_HOST, "").strip()
    if _is_loopback(host) and not template.get("spec", {}).get("hostNetwork"):
        raise _unusable(
            master,
            f"{_DRIVER_HOST} = {host} is another machine for each pod, which cannot connect to "
            "the engine",
            f"Leave out {_DRIVER_HOST} for the address with which this machine reaches the API "
            "server, or set it to another one that pods reach.",
        )


def _template(master: str, key: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the template of the pods, which Spark reads each time it creates one.

    It is empty if there is none, or if it is not a file of this machine.
    """
    place = settings.get(key, "")
    url = urlsplit(place)
    if not place or url.scheme not in ("", "file"):
        return {}
    hint = f"Correct {key}, or the file: it describes a Pod in YAML."
    try:
        found = yaml.safe_load(Path(url.path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        reason = f"the template {place} cannot be read: {str(problem).splitlines()[0]}"
        raise _unusable(master, reason, hint) from problem
    if not isinstance(found, dict) or not isinstance(found.get("spec", {}), dict):
        raise _unusable(master, f"the template {place} is no Pod", hint)
    return found


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _unusable(master: str, reason: str, hint: str) -> ServerError:
    return error(Code.CLUSTER_CONFIGURATION, master=master, reason=reason, hint=hint)
