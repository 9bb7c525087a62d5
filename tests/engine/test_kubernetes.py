"""Settings, labels and checks of engines whose executors are pods."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.engine_options import engine_options
from tests.support.kubernetes.access import Account, Asked, asked
from tests.support.kubernetes.cluster import role_rules
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.engine.jvm.kubernetes import (
    ApiError,
    KubernetesApi,
    api_server,
    check_access,
    driver_settings,
    engine_label,
    kubernetes_settings,
    needed_rights,
    pod_prefix,
    pods_problem,
    remove_orphans,
)

MASTER = "k8s://https://head:6443"
SETTINGS = "spark.kubernetes"


def options(**given: Any) -> EngineOptions:
    return engine_options(installation="data-id", master=MASTER, **given)


def settings_of(**given: Any) -> dict[str, str]:
    return kubernetes_settings(options(**given), "12ab")


# ---- settings ----------------------------------------------------------------------------------


def test_pods_are_found_by_labels_and_by_their_names() -> None:
    settings = settings_of(name="apps/nightly-report", cluster="nightly-report")
    assert settings[f"{SETTINGS}.executor.podNamePrefix"] == "nightly-report-12ab"
    label = f"{SETTINGS}.executor.label.tidegate"
    assert settings[f"{label}/installation"] == "data-id"
    assert settings[f"{label}/engine"] == "apps.nightly-report"
    assert settings[f"{label}/cluster-id"] == "nightly-report"


def test_each_start_has_other_names() -> None:
    prefixes = {
        kubernetes_settings(options())[f"{SETTINGS}.executor.podNamePrefix"] for _ in range(5)
    }
    assert len(prefixes) == 5
    assert all(prefix.startswith("tidegate-") for prefix in prefixes)


@pytest.mark.parametrize(
    ("cluster", "prefix"),
    [
        ("nightly", "nightly-12ab"),
        ("Big_Engine", "big-engine-12ab"),
        ("é", "tidegate-12ab"),
        ("a" * 45, "a" * 38 + "-12ab"),
        ("a" * 37 + "-b", "a" * 37 + "-12ab"),
    ],
)
def test_names_of_pods_are_those_that_kubernetes_takes(cluster: str, prefix: str) -> None:
    assert pod_prefix(cluster, "12ab") == prefix
    assert len(pod_prefix(cluster, "0" * 8)) <= 47  # Spark's limit


def test_labels_of_engines_differ_and_are_those_that_kubernetes_takes() -> None:
    names = ["", "gateway", "pods", "apps/a", "ann@example.org", "x" * 63 + "/a", "x" * 64]
    labels = [engine_label(name) for name in names]
    assert len(set(labels)) == len(names)
    assert labels[0] == "gateway"
    assert labels[2:4] == ["pods", "apps.a"]
    assert all(len(label) <= 63 and "@" not in label and "/" not in label for label in labels)


def test_rights_are_those_of_the_settings() -> None:
    assert needed_rights(settings_of()).keys() == {"pods"}
    claim = {f"{SETTINGS}.executor.volumes.persistentVolumeClaim.a.options.claimName": "OnDemand"}
    assert needed_rights(settings_of(settings=claim)).keys() == {"pods", "persistentvolumeclaims"}
    kept = {f"{SETTINGS}.executor.deleteOnTermination": "false"}
    assert "patch" in needed_rights(settings_of(settings=kept) | kept)["pods"]
    assert needed_rights({}).keys() == {
        "pods",
        "persistentvolumeclaims",
        "configmaps",
        "services",
    }


def test_the_example_s_role_grants_them() -> None:
    granted = {rule["resources"][0]: rule["verbs"] for rule in role_rules()}
    claim = {f"{SETTINGS}.executor.volumes.persistentVolumeClaim.a.options.claimName": "OnDemand"}
    needed = needed_rights(settings_of(settings=claim))
    assert granted == {resource: list(verbs) for resource, verbs in needed.items()}


@pytest.mark.parametrize(
    ("master", "url"),
    [
        ("k8s://https://head:6443", "https://head:6443"),
        ("k8s://head:6443", "https://head:6443"),
        ("k8s://http://head:8001", "http://head:8001"),
    ],
)
def test_masters_name_an_api_server(master: str, url: str) -> None:
    assert api_server(master) == url


# ---- the address of the engine -----------------------------------------------------------------


def test_an_api_server_that_nobody_runs_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ServerError, match="API server cannot be reached: .*refused") as caught:
        driver_settings(f"k8s://https://127.0.0.1:{port}", {"spark.driver.host": "10.1.2.3"})
    assert caught.value.code == "CLUSTER_CONFIGURATION"
    assert "firewall" in caught.value.hint


def test_loopback_is_no_address_for_pods() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        master = f"k8s://https://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ServerError, match=r"to the API server it is 127\.0\.0\.1") as caught:
            driver_settings(master, {})
        assert "spark.driver.host" in caught.value.hint
        assert driver_settings(master, {"spark.driver.host": "10.1.2.3"}) == {}


class Connection:
    """A connection from an address of this machine."""

    address = "10.1.2.3"

    def getsockname(self) -> tuple[str, int]:
        return self.address, 1

    def close(self) -> None: ...


def test_the_address_of_pods_is_that_towards_the_api_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(place: tuple[str, int], seconds: float) -> closing[Connection]:
        assert place == ("head", 6443)
        return closing(Connection())

    monkeypatch.setattr(socket, "create_connection", connect)
    assert driver_settings(MASTER, {}) == {"spark.driver.host": "10.1.2.3"}
    monkeypatch.setattr(Connection, "address", "fd00::1")
    assert driver_settings(MASTER, {}) == {"spark.driver.host": "[fd00::1]"}
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    with pytest.raises(ServerError, match="a proxy leads to the API server"):
        driver_settings(MASTER, {})


# ---- the API server ----------------------------------------------------------------------------


@dataclass
class Api(KubernetesApi):
    """An API server that refuses some requests."""

    refused: Mapping[str, ApiError] = field(default_factory=dict)
    """By parts of their paths."""
    denied: frozenset[tuple[str, str]] = frozenset()
    items: list[dict[str, Any]] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(None, MASTER, "lake")

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.asked_for.append(f"{method} {path}")
        for part, problem in self.refused.items():
            if part in path:
                raise problem
        if body is None:
            return {"items": self.items}
        wanted = body["spec"]["resourceAttributes"]
        assert wanted["namespace"] == "lake"
        allowed = (wanted["verb"], wanted["resource"]) not in self.denied
        return {"status": {"allowed": allowed}}


@pytest.mark.parametrize(
    ("api", "reason", "hint"),
    [
        (
            Api(refused={"/": ApiError(401, "Unauthorized")}),
            "it rejects the credentials (401, Unauthorized)",
            "oauthTokenFile",
        ),
        (
            Api(refused={"/": ApiError(403, 'User "system:anonymous" cannot')}),
            "there are no credentials for it",
            "kubeconfig",
        ),
        (
            Api(refused={"/namespaces/": ApiError(404, "not found")}),
            "the cluster has no namespace lake",
            "spark.kubernetes.namespace",
        ),
        (
            Api(refused={"reviews": ApiError(404, "the page was not found")}),
            "it answered with 404: the page was not found",
            "address of an API server",
        ),
        (
            Api(refused={"/": ApiError(-1, "unable to find valid certification path")}),
            "its certificate is not trusted",
            "caCertFile",
        ),
        (
            Api(refused={"/": ApiError(-1, "Connection refused")}),
            "its API server cannot be reached: Connection refused",
            "firewall",
        ),
        (
            Api(denied=frozenset({("create", "pods"), ("watch", "pods")})),
            "in the namespace lake the account may not create pods and watch pods",
            "RoleBinding",
        ),
    ],
)
def test_what_keeps_an_engine_from_creating_pods(api: Api, reason: str, hint: str) -> None:
    with pytest.raises(ServerError) as caught:
        check_access(api, settings_of())
    assert caught.value.code == "CLUSTER_CONFIGURATION"
    assert reason in caught.value.message
    assert hint in caught.value.hint


def test_an_account_need_not_read_namespaces() -> None:
    denied = ApiError(403, 'User "system:serviceaccount:lake:tidegate" cannot get namespaces')
    check_access(Api(refused={"/namespaces/lake": denied}), settings_of())


def test_pods_of_a_killed_engine_are_deleted_by_their_labels() -> None:
    labels = {"tidegate/installation": "data-id", "tidegate/engine": "pods"}
    api = Api(items=[{}, {}])
    assert remove_orphans(api, labels) == 2
    selector = "labelSelector=tidegate%2Finstallation%3Ddata-id%2Ctidegate%2Fengine%3Dpods"
    path = f"/api/v1/namespaces/lake/pods?{selector}"
    assert api.asked_for == [f"GET {path}", f"DELETE {path}"]
    api = Api()
    assert remove_orphans(api, labels) == 0
    assert api.asked_for == [f"GET {path}"]


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a-exec-1"}, "status": status}


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([], "It has no pods: spark.log in the directory of the engine's logs says why"),
        ([pod(phase="Running", containerStatuses=[{"state": {"running": {}}}])], ""),
        ([pod()], ""),
        (
            [
                pod(),
                pod(
                    phase="Pending",
                    containerStatuses=[
                        {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such"}}}
                    ],
                ),
            ],
            "The pod a-exec-1 does not run: ErrImagePull: no such",
        ),
        (
            [
                pod(
                    phase="Pending",
                    conditions=[
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": "0/3 nodes are available.",
                        }
                    ],
                )
            ],
            "The pod a-exec-1 does not run: Unschedulable: 0/3 nodes are available",
        ),
        (
            [
                pod(
                    phase="Failed",
                    containerStatuses=[
                        {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
                    ],
                )
            ],
            "The pod a-exec-1 does not run: OOMKilled: exit code 137",
        ),
    ],
)
def test_pods_that_do_not_run_say_why(pods: list[dict[str, Any]], text: str) -> None:
    assert pods_problem(pods) == text


# ---- the tests' own cluster --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "wanted"),
    [
        ("POST", "/api/v1/namespaces/a/pods", Asked("create", "pods", "a")),
        ("GET", "/api/v1/namespaces/a/pods?labelSelector=b", Asked("list", "pods", "a")),
        ("GET", "/api/v1/namespaces/a/pods?watch=true", Asked("watch", "pods", "a")),
        ("GET", "/api/v1/namespaces/a/pods/b", Asked("get", "pods", "a")),
        ("DELETE", "/api/v1/namespaces/a/pods/b", Asked("delete", "pods", "a")),
        ("DELETE", "/api/v1/namespaces/a/pods", Asked("deletecollection", "pods", "a")),
        ("PATCH", "/api/v1/namespaces/a/pods/b/status", Asked("patch", "pods/status", "a")),
        ("GET", "/apis/apps/v1/namespaces/a/deployments/b", Asked("get", "deployments", "a")),
        ("GET", "/api/v1/namespaces/a", Asked("get", "namespaces", "")),
    ],
)
def test_requests_are_judged_as_rules_name_them(method: str, target: str, wanted: Asked) -> None:
    assert asked(method, target) == wanted
    rule = {"resources": [wanted.resource], "verbs": [wanted.verb]}
    assert Account(wanted.namespace, [rule]).may(wanted)
    assert not Account("b", [rule]).may(wanted)
    assert not Account(wanted.namespace, [{**rule, "verbs": []}]).may(wanted)
