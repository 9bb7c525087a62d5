"""A cluster of Kubernetes on this machine: an API server with rights, and nodes that run pods."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark
import pytest
import trustme
import yaml

from tests.support.kubernetes import mock
from tests.support.kubernetes.access import Account, Front
from tests.support.kubernetes.nodes import Nodes
from tidegate_server.engine.jvm.jars import Jar, fetch_jars

IMAGE: Final = "registry.example.org/tidegate:1"
NAMESPACE: Final = "lake"
SERVER: Final = "tidegate-0"
"""The pod that stands for the server's, and owns those of executors."""
TOKEN: Final = "hush-of-the-account"
_JARS: Final = (
    Jar("io.fabric8", "kubernetes-server-mock", "7.4.0"),
    Jar("io.fabric8", "mockwebserver", "7.4.0"),
    Jar("io.vertx", "vertx-web", "4.5.25"),
    Jar("io.vertx", "vertx-bridge-common", "4.5.25"),
)
_SHIPPED: Final = Path(pyspark.__file__).parent / "jars"
_ROLES: Final = Path(__file__).parents[3] / "examples" / "kubernetes" / "rbac.yaml"
_TEMPLATE: Final = """\
apiVersion: v1
kind: Pod
spec:
  hostNetwork: true
"""


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """A running cluster."""

    master: str
    """As Spark names it."""
    front: Front
    nodes: Nodes
    settings: Mapping[str, str]
    """Settings of Spark for an engine with one small executor."""


@contextmanager
def running_kubernetes(
    folder: Path, hidden: Sequence[Path] = (), *, optional: str = "claims"
) -> Iterator[Kubernetes]:
    """Start a cluster with one account, which has the rights of Roles of the example.

    :param folder: gets the files of the cluster.
    :param hidden: directories that are empty for pods.
    :param optional: which of the Roles it has that not every installation needs.
    """
    if os.geteuid() != 0:
        pytest.skip("pods with file systems of their own need the rights to mount")
    folder.mkdir(parents=True, exist_ok=True)
    authority, token, template = folder / "ca.pem", folder / "token", folder / "pod.yaml"
    trust = trustme.CA()
    trust.cert_pem.write_to_path(str(authority))
    token.write_text(TOKEN)
    template.write_text(_TEMPLATE)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.issue_cert("127.0.0.1").configure_cert(tls)
    command = [sys.executable, mock.__file__, *map(str, fetch_jars(_JARS)), f"{_SHIPPED}/*"]
    with (
        (folder / "mock.log").open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            front = Front(port, tls, {TOKEN: Account(NAMESPACE, role_rules(optional))}, {NAMESPACE})
            api = front.start()
            master = f"k8s://https://127.0.0.1:{api}"
            nodes = Nodes(
                f"http://127.0.0.1:{port}",
                NAMESPACE,
                folder,
                image=IMAGE,
                hidden=hidden,
                account={"token": TOKEN, "ca.crt": authority.read_text()},
                port=api,
            )
            nodes.start()
            nodes.create(SERVER, {}, ["sleep", "36000"])
            try:
                yield Kubernetes(master, front, nodes, _settings(authority, token, template))
            finally:
                nodes.stop()
                front.stop()
        finally:
            process.kill()


def _settings(authority: Path, token: Path, template: Path) -> dict[str, str]:
    return {
        "spark.kubernetes.namespace": NAMESPACE,
        "spark.kubernetes.container.image": IMAGE,
        "spark.kubernetes.authenticate.caCertFile": str(authority),
        "spark.kubernetes.authenticate.oauthTokenFile": str(token),
        "spark.kubernetes.executor.podTemplateFile": str(template),
        "spark.kubernetes.driver.pod.name": SERVER,
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.executor.instances": "1",
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",  # the template has the pods on this machine's network
    }


def role_rules(optional: str = "claims") -> list[dict[str, list[str]]]:
    """Return the rules of the example's Roles: of that for all, and of an optional one."""
    documents = yaml.safe_load_all(_ROLES.read_text("utf-8"))
    wanted = {"tidegate", f"tidegate-{optional}"}
    roles = [each for each in documents if each["kind"] == "Role"]
    roles = [each for each in roles if each["metadata"]["name"] in wanted]
    return [rule for role in roles for rule in role["rules"]]
