"""Runs pods as processes of this machine, which see none of the gateway's files."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyspark

from tests.support.kubernetes.files import PodFiles
from tidegate_server.gateway.link.java import find_java

ENTRYPOINT = Path(__file__).parents[3] / "examples" / "kubernetes" / "entrypoint.sh"
_SPARK = Path(pyspark.__file__).parent
_ADDRESS = "127.0.0.1"
_LOOK_SECONDS = 0.2
_KILL_SECONDS = 5.0


class Nodes:
    """Watches the pods of a namespace: starts those that are new, ends those that are deleted."""

    def __init__(
        self,
        api: str,
        namespace: str,
        folder: Path,
        *,
        image: str,
        hidden: Sequence[Path],
        account: Mapping[str, str],
        port: int,
    ) -> None:
        """Take what pods are run with.

        :param api: the URL of the mock, which asks for no rights.
        :param folder: gets a log of each pod.
        :param image: the only image that there is; others cannot be pulled.
        :param hidden: directories that are empty for pods.
        :param account: the files of the account that pods have.
        :param port: the port of the API server that asks for rights.
        """
        self._resources = f"{api}/api/v1/namespaces/{namespace}"
        self._pods = f"{self._resources}/pods"
        self._folder = folder
        self._image = image
        self._files = PodFiles(folder, namespace, hidden)
        for name, text in account.items():
            (self._files.account / name).write_text(text)
        self._port = port
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.problems: list[str] = []
        """What failed here; a test requires that it is empty."""

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Kill all pods."""
        self._stopping.set()
        self._thread.join()
        for process in self._running.values():
            _signal(process, signal.SIGKILL)
            process.wait()
        self._files.remove_mount_points()

    def pods(self) -> list[dict[str, Any]]:
        """Return all pods."""
        return self._all("pods")

    def _all(self, kind: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = _ask("GET", f"{self._resources}/{kind}")["items"]
        return items

    def create(self, name: str, labels: Mapping[str, str], words: Sequence[str]) -> None:
        """Create a pod that runs a command."""
        container = {"name": "only", "image": self._image, "command": list(words)}
        metadata = {"name": name, "labels": dict(labels)}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        _ask("POST", self._pods, {**pod, "spec": {"containers": [container]}})

    def processes(self) -> dict[str, int]:
        """Return the process ids of the running pods by their names."""
        return {n: p.pid for n, p in dict(self._running).items() if p.poll() is None}

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                self._look()
            except Exception as problem:
                self.problems.append(repr(problem))

    def _look(self) -> None:
        kinds = {kind: self._all(kind) for kind in ("pods", "services", "configmaps")}
        self._files.name_services((each["metadata"] for each in kinds["services"]), _ADDRESS)
        found = {pod["metadata"]["name"]: pod for pod in self.pods()}  # with all that own those
        for kind, resources in kinds.items():
            self._collect(kind, resources, found.keys())
        for name, pod in found.items():
            if name not in self._running and "phase" not in pod.get("status", {}):
                self._start(name, pod)
        for name, process in list(self._running.items()):
            if name not in found:
                threading.Thread(target=_end, args=(process,), daemon=True).start()
                del self._running[name]
            elif (code := process.poll()) is not None and name not in self._ended:
                self._ended.add(name)
                _signal(process, signal.SIGKILL)  # what the first process of a container leaves
                code = 128 - code if code < 0 else code  # as of a killed container
                terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
                state = {"state": {"terminated": terminated}}
                self._set_status(name, pod, "Failed" if code else "Succeeded", state)

    def _collect(
        self, kind: str, resources: Iterable[Mapping[str, Any]], pods: Collection[str]
    ) -> None:
        """Delete what belongs to pods that are gone, as the cluster's garbage collector does."""
        for each in resources:
            owners = each["metadata"].get("ownerReferences", ())
            if owners and not any(owner["name"] in pods for owner in owners):
                with suppress(HTTPError):  # Spark was faster
                    _ask("DELETE", f"{self._resources}/{kind}/{each['metadata']['name']}")

    def _start(self, name: str, pod: Mapping[str, Any]) -> None:
        [container] = pod["spec"]["containers"]
        if container["image"] != self._image:
            text = f'Back-off pulling image "{container["image"]}"'
            waiting = {"reason": "ImagePullBackOff", "message": text}
            self._set_status(name, pod, "Pending", {"state": {"waiting": waiting}})
            return
        maps = {each["metadata"]["name"]: each.get("data", {}) for each in self._all("configmaps")}
        mounts = self._files.mounted(pod, maps)
        if mounts is None:
            return  # Spark creates the pod of a driver first
        words = [*container.get("command", [str(ENTRYPOINT)]), *container.get("args", ())]
        local = self._folder / name
        local.mkdir()
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(_SPARK),
            "SPARK_SCALA_VERSION": "2.13",
            "KUBERNETES_SERVICE_HOST": _ADDRESS,
            "KUBERNETES_SERVICE_PORT": str(self._port),
            **{each["name"]: _value(each, pod) for each in container.get("env", ())},
            "SPARK_LOCAL_DIRS": str(local),  # the volume that is mounted there
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", f"{mounts} && exec {shlex.join(words)}"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=local,
            )
        self._set_status(name, pod, "Running", {"state": {"running": {}}})

    def _set_status(
        self, name: str, pod: Mapping[str, Any], phase: str, state: Mapping[str, Any]
    ) -> None:
        container = {"name": pod["spec"]["containers"][0]["name"], "ready": phase == "Running"}
        status = {"phase": phase, "containerStatuses": [{**container, **state}]}
        if phase == "Running":
            status["podIP"] = _ADDRESS
        with suppress(HTTPError):  # it was deleted meanwhile
            _ask("PATCH", f"{self._pods}/{name}/status", {"status": status})


def _value(variable: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    if "value" in variable or "valueFrom" not in variable:
        return str(variable.get("value", ""))
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return {"status.podIP": _ADDRESS, "metadata.name": pod["metadata"]["name"]}[path]


def _end(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _ask(method: str, url: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/merge-patch+json"}
    with urlopen(Request(url, data, headers, method=method), timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
