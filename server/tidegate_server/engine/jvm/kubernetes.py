"""Pods of Kubernetes: settings, checks before the start of an engine, pods of dead engines.

The API server is asked with Spark's own client, so with the credentials that Spark will use.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import re
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from py4j.protocol import Py4JJavaError

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import EngineOptions

logger = logging.getLogger(__name__)

INSTALLATION_LABEL = "tidegate/installation"
"""The id of the data directory."""
ENGINE_LABEL = "tidegate/engine"
CLUSTER_LABEL = "tidegate/cluster-id"
_EXECUTORS = {"spark-role": "executor"}
"""Spark's label of executors."""
_OWN = "gateway"
"""Value of :data:`ENGINE_LABEL` for the gateway's own engine."""
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_MASTER = "k8s://"
_DRIVER_HOST = "spark.driver.host"
_NAMESPACE = "spark.kubernetes.namespace"
_CONFIG_MAPS_OFF = "spark.kubernetes.executor.disableConfigMap"
_DELETE_SERVICES = "spark.kubernetes.driver.service.deleteOnTermination"
_OWN_CLAIMS = "spark.kubernetes.driver.ownPersistentVolumeClaim"
_CLAIM_VOLUMES = "spark.kubernetes.executor.volumes.persistentVolumeClaim."
_DELETE_PODS = "spark.kubernetes.executor.deleteOnTermination"
_DECOMMISSION_LABEL = "spark.kubernetes.executor.decommissionLabel"
_POD_VERBS = ("create", "get", "list", "watch", "delete", "deletecollection")
_CLAIM_VERBS = ("create", "list", "delete", "deletecollection")
_CONFIG_MAP_VERBS = ("create", "list", "delete", "deletecollection")
_SERVICE_VERBS = ("list", "delete", "deletecollection")
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CONNECT_SECONDS = 10.0
_LONGEST_CLUSTER = 24
"""Letters of a cluster's name in the names of drivers' pods, which also become names of hosts."""
_SIGN_IN_PREFIX = "spark.kubernetes.authenticate"
_SIGN_IN_FILES = ("caCertFile", "clientKeyFile", "clientCertFile", "oauthTokenFile")
_DRIVER_MASTER = "spark.kubernetes.driver.master"
_POD_MASTER = "https://kubernetes.default.svc"
"""The API server, as pods find it."""
_POD_AUTHORITY = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
_LONGEST_PREFIX = 38
"""Letters of a cluster's name in the names of pods; Spark allows 47 before what it appends."""
_SIGN_IN = (
    "Set spark.kubernetes.authenticate.oauthTokenFile, or clientCertFile and clientKeyFile there, "
    "with caCertFile; or start the server with a kubeconfig (KUBECONFIG) for this cluster, or in "
    "a pod with a service account."
)


# ---- settings ----------------------------------------------------------------------------------


def is_kubernetes(master: str) -> bool:
    """Return whether a Spark master is an API server of Kubernetes."""
    return master.startswith(_MASTER)


def api_server(master: str) -> str:
    """Return the URL of the API server that a Spark master names."""
    place = master.removeprefix(_MASTER)
    return place if "://" in place else f"https://{place}"


def engine_label(name: str) -> str:
    """Return how labels of pods name an engine.

    :param name: that of the engine's options.
    """
    if not name:
        return _OWN
    text = name.replace("/", ".")
    if text != _OWN and _LABEL.fullmatch(text):
        return text
    return f"hashed-{sha256(name.encode()).hexdigest()[:32]}"


def engine_labels(options: EngineOptions) -> dict[str, str]:
    """Return the labels by which the pods of an engine are found."""
    return {INSTALLATION_LABEL: options.installation, ENGINE_LABEL: engine_label(options.name)}


def _labels(options: EngineOptions) -> dict[str, str]:
    """Return all labels of an engine's pods."""
    labels, cluster = engine_labels(options), options.cluster or "tidegate"
    return {**labels, CLUSTER_LABEL: cluster} if _LABEL.fullmatch(cluster) else labels


def pod_prefix(cluster: str, start: str) -> str:
    """Return how the names of pods begin, which are different ones after each start of an engine.

    The pods of the engine before may still be ending.

    :param start: identifies the start.
    """
    name = re.sub(r"[^a-z0-9]+", "-", cluster.lower())[:_LONGEST_PREFIX].strip("-")
    return f"{name or 'tidegate'}-{start}"


def kubernetes_settings(options: EngineOptions, start: str = "") -> dict[str, str]:
    """Return Spark's settings of an engine whose executors are pods.

    Spark's ConfigMap with the files of SPARK_CONF_DIR is left out, since each killed engine would
    leave one behind. So is what only a driver in a pod needs.

    :param start: identifies this start; empty for a random text.
    """
    cluster = options.cluster or "tidegate"
    claims = any(key.startswith(_CLAIM_VOLUMES) for key in options.settings)
    return {
        "spark.kubernetes.executor.podNamePrefix": pod_prefix(
            cluster, start or secrets.token_hex(4)
        ),
        **{f"spark.kubernetes.executor.label.{k}": v for k, v in _labels(options).items()},
        _CONFIG_MAPS_OFF: "true",
        _DELETE_SERVICES: "false",
        **({} if claims else {_OWN_CLAIMS: "false"}),
    }


def driver_pod_prefix(options: EngineOptions) -> str:
    """Return how the names of an engine's own pods begin, which no other engine's do."""
    cluster = re.sub(r"[^a-z0-9]+", "-", (options.cluster or "tidegate").lower())
    identity = sha256(f"{options.installation}/{options.name}".encode()).hexdigest()[:10]
    return f"{cluster[:_LONGEST_CLUSTER].strip('-') or 'tidegate'}-{identity}-"


def driver_pod_settings(options: EngineOptions, start: str = "") -> dict[str, str]:
    """Return Spark's settings of an engine that runs in a pod of its own.

    Spark signs in with other settings to submit it than to create executors; those for executors
    apply to both here, unless the others are set.

    :param start: identifies this start; empty for a random text.
    """
    start = start or secrets.token_hex(4)
    labels = {f"spark.kubernetes.driver.label.{k}": v for k, v in _labels(options).items()}
    given = {name: options.settings.get(f"{_SIGN_IN_PREFIX}.{name}") for name in _SIGN_IN_FILES}
    submission = {
        f"{_SIGN_IN_PREFIX}.submission.{name}": file for name, file in given.items() if file
    }
    return {
        **{key: options.settings.get(key, value) for key, value in submission.items()},
        **kubernetes_settings(options, start),
        **labels,
        "spark.kubernetes.driver.pod.name": f"{driver_pod_prefix(options)}{start}-driver",
    }


def driver_settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the address at which pods find the engine, unless it is set.

    It is that of this machine on the way to the API server, which is tried thereby.

    :param given: the settings of the engine.
    :raises ServerError: CLUSTER_CONFIGURATION.
    """
    found = _address_towards(master)
    if _DRIVER_HOST in given:
        return {}
    if found is None or ipaddress.ip_address(found).is_loopback:
        raise _unusable(
            master,
            f"this machine's address for pods is unknown: to the API server it is {found}"
            if found
            else "this machine's address for pods is unknown: a proxy leads to the API server",
            f"Set engine.settings.{_DRIVER_HOST} to an address of this machine that pods reach.",
        )
    return {_DRIVER_HOST: f"[{found}]" if ":" in found else found}


def _address_towards(master: str) -> str | None:
    """Return this machine's address on a connection to the API server; None through a proxy."""
    url = urlsplit(api_server(master))
    host = url.hostname or ""
    if getproxies().get(url.scheme) and not proxy_bypass(host):
        return None
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        with socket.create_connection((host, port), _CONNECT_SECONDS) as connection:
            return str(connection.getsockname()[0])
    except OSError as problem:
        raise _unreachable(master, str(problem)) from problem


# ---- the API server ----------------------------------------------------------------------------


class ApiError(Exception):
    """An answer of the API server other than success, or none."""

    def __init__(self, code: int, message: str) -> None:
        """``code`` is that of HTTP; not positive if there was no answer."""
        super().__init__(message)
        self.code = code


class KubernetesApi:
    """Asks an API server."""

    def __init__(self, client: Any, master: str, namespace: str) -> None:
        """``client`` is Spark's; ``namespace`` is that of the executors."""
        self._client = client
        self.master = master
        self.namespace = namespace

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request.

        :raises ApiError: if it is an error, or there is none.
        """
        try:
            text = self._client.raw(path, method, None if body is None else json.dumps(body))
        except Py4JJavaError as problem:
            raise _api_error(problem.java_exception) from problem
        if text is None:  # the client's answer to 404 for GET
            raise ApiError(404, f"{path} was not found")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def pods(self, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the pods with some labels.

        :raises ApiError: if the API server refuses that.
        """
        items: list[dict[str, Any]] = self.ask("GET", self._pods(labels))["items"]
        return items

    def delete_pods(self, labels: Mapping[str, str]) -> None:
        """Delete the pods with some labels.

        :raises ApiError: if the API server refuses that.
        """
        self.ask("DELETE", self._pods(labels))

    def _pods(self, labels: Mapping[str, str]) -> str:
        selector = quote(",".join(f"{key}={value}" for key, value in labels.items()), safe="")
        return f"/api/v1/namespaces/{quote(self.namespace)}/pods?labelSelector={selector}"


@contextmanager
def opened_api(jvm: Any, options: EngineOptions) -> Iterator[KubernetesApi]:
    """Lend a client with the settings that the JVM was started with.

    In a pod, it signs in as the pod's account.

    :raises ServerError: CLUSTER_CONFIGURATION if its credentials cannot be read.
    """
    kubernetes = jvm.org.apache.spark.deploy.k8s
    conf = jvm.org.apache.spark.SparkConf()
    namespace = str(conf.get(_NAMESPACE, "default"))
    server, prefix, authority = api_server(options.master), _SIGN_IN_PREFIX, None
    if options.in_cluster:
        server, prefix = str(conf.get(_DRIVER_MASTER, _POD_MASTER)), f"{prefix}.driver.mounted"
        authority = jvm.java.io.File(str(_POD_AUTHORITY)) if _POD_AUTHORITY.exists() else None
    factory = kubernetes.SparkKubernetesClientFactory
    kinds = getattr(getattr(kubernetes, "SparkKubernetesClientFactory$ClientType$"), "MODULE$")
    try:
        client = factory.createKubernetesClient(
            server,
            jvm.scala.Some(namespace),
            prefix,
            kinds.Driver(),
            conf,
            jvm.scala.Option.apply(authority),
        )
    except Py4JJavaError as problem:
        reason = f"the credentials cannot be read: {_root_cause(problem.java_exception)}"
        raise _unusable(options.master, reason, _SIGN_IN) from problem
    try:
        yield KubernetesApi(client, options.master, namespace)
    finally:
        client.close()


def check_access(api: KubernetesApi, settings: Mapping[str, str]) -> None:
    """Find what Spark would fail on only when it creates the first pod, or never report.

    :param settings: those of the engine.
    :raises ServerError: CLUSTER_CONFIGURATION.
    """
    try:
        _require_namespace(api)
        lacking = [
            f"{verb} {resource}"
            for resource, verbs in needed_rights(settings).items()
            for verb in verbs
            if not _may(api, verb, resource)
        ]
    except ApiError as problem:
        raise access_error(api.master, problem) from problem
    if lacking:
        raise _unusable(
            api.master,
            f"in the namespace {api.namespace} the account may not {_listed(lacking)}",
            "Grant these rights with a Role and a RoleBinding, such as those in "
            "examples/kubernetes, or sign in as another account.",
        )


def needed_rights(settings: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the verbs that Spark and the engine need, by the resource in their namespace.

    :param settings: those of the engine.
    """
    labels_pods = not _is_on(settings, _DELETE_PODS) or _DECOMMISSION_LABEL in settings
    found = {"pods": (*_POD_VERBS, *(("patch",) if labels_pods else ()))}
    if _is_on(settings, _OWN_CLAIMS):
        found["persistentvolumeclaims"] = _CLAIM_VERBS
    if not _is_on(settings, _CONFIG_MAPS_OFF, default="false"):
        found["configmaps"] = _CONFIG_MAP_VERBS
    if _is_on(settings, _DELETE_SERVICES):
        found["services"] = _SERVICE_VERBS
    return found


def _is_on(settings: Mapping[str, str], key: str, default: str = "true") -> bool:
    return settings.get(key, default).strip().lower() == "true"


def _require_namespace(api: KubernetesApi) -> None:
    try:
        api.ask("GET", f"/api/v1/namespaces/{quote(api.namespace)}")
    except ApiError as problem:
        if problem.code == 404:
            raise _unusable(
                api.master,
                f"the cluster has no namespace {api.namespace}",
                f"Create it, or set engine.settings.{_NAMESPACE} to another one.",
            ) from problem
        # An account with rights in one namespace only may not read it.
        if problem.code != 403:
            raise


def _may(api: KubernetesApi, verb: str, resource: str) -> bool:
    asked = {"namespace": api.namespace, "verb": verb, "resource": resource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    return bool(api.ask("POST", _REVIEWS, review).get("status", {}).get("allowed"))


def access_error(master: str, problem: ApiError) -> ServerError:
    """Return the error that says why an API server cannot be used."""
    if problem.code == 401:
        return _unusable(master, f"it rejects the credentials (401, {problem})", _SIGN_IN)
    if problem.code == 403 and "system:anonymous" in str(problem):
        return _unusable(master, "there are no credentials for it", _SIGN_IN)
    if problem.code > 0:
        return _unusable(
            master,
            f"it answered with {problem.code}: {problem}",
            "Set engine.master to the address of an API server of Kubernetes.",
        )
    if "certification path" in str(problem) or "certificate" in str(problem).lower():
        return _unusable(
            master,
            f"its certificate is not trusted: {problem}",
            "Set engine.settings.spark.kubernetes.authenticate.caCertFile to the certificate of "
            "the authority that signed it.",
        )
    return _unreachable(master, str(problem))


def remove_orphans(api: KubernetesApi, labels: Mapping[str, str]) -> int:
    """Delete the pods that earlier starts of an engine left; return how many there were.

    A killed engine deletes none. No other process uses an engine's labels.

    :raises ServerError: CLUSTER_CONFIGURATION if the API server refuses that.
    """
    try:
        found = len(api.pods(labels))
        if found:
            api.delete_pods(labels)
    except ApiError as problem:
        raise access_error(api.master, problem) from problem
    return found


def why_no_executor(jvm: Any, options: EngineOptions) -> str:
    """Return why an engine's executors do not run, as a sentence; empty if that is unknown."""
    try:
        with opened_api(jvm, options) as api:
            return pods_problem(api.pods({**engine_labels(options), **_EXECUTORS}))
    except (ApiError, ServerError) as problem:
        return f"The API server does not say why: {problem}"


def pods_problem(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return why pods do not run, as a sentence; empty if that is unknown."""
    if not pods:
        return "It has no pods: spark.log in the directory of the engine's logs says why"
    for pod in pods:
        if found := _pod_problem(pod.get("status", {})):
            return f"The pod {pod['metadata']['name']} does not run: {found.rstrip('.')}"
    return ""


def _pod_problem(status: Mapping[str, Any]) -> str:
    for container in status.get("containerStatuses", ()):
        state = container.get("state", {})
        if found := state.get("waiting") or state.get("terminated"):
            code = f"exit code {found['exitCode']}" if "exitCode" in found else ""
            return ": ".join(filter(None, (found.get("reason"), found.get("message"), code)))
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
    return ""


# ---- errors ------------------------------------------------------------------------------------


def _api_error(thrown: Any) -> ApiError:
    code = thrown.getCode() if hasattr(thrown, "getCode") else 0
    status = thrown.getStatus() if hasattr(thrown, "getStatus") else None
    told = None if status is None else status.getMessage()
    return ApiError(int(code), str(told) if told else _root_cause(thrown))


def _root_cause(thrown: Any) -> str:
    """Return the message of the cause of an exception that has no cause."""
    while (cause := thrown.getCause()) is not None:
        thrown = cause
    return str(thrown.getMessage() or thrown.toString()).splitlines()[0]


def _unusable(master: str, reason: str, hint: str) -> ServerError:
    return error(Code.CLUSTER_CONFIGURATION, master=master, reason=reason, hint=hint)


def _unreachable(master: str, reason: str) -> ServerError:
    return _unusable(
        master,
        f"its API server cannot be reached: {reason}",
        "Check the address, and that no firewall is between this machine and the API server.",
    )


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
