"""The files that a pod sees: volumes of config maps, its account, and the names of services."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HOSTS = Path("/etc/hosts")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class PodFiles:
    """Makes files of the cluster visible to pods, in mount namespaces of their own."""

    def __init__(self, folder: Path, namespace: str, hidden: Sequence[Path]) -> None:
        """``hidden`` are directories that are empty for pods."""
        self._folder = folder
        self._hidden = hidden
        self._made: list[Path] = []
        self._names = folder / "hosts"
        self._names.write_text(HOSTS.read_text())
        self.account = folder / "account"
        """What the account's volume contains."""
        self.account.mkdir()
        (self.account / "namespace").write_text(namespace)

    def name_services(self, services: Iterable[Mapping[str, Any]], address: str) -> None:
        """Have the names of services lead to an address, also for pods that run."""
        names = (f"{each['name']}.{each['namespace']}.svc" for each in services)
        lines = "".join(f"{address} {name}\n" for name in names)
        text = f"{HOSTS.read_text()}\n{lines}"
        if text != self._names.read_text():
            self._names.write_text(text)

    def mounted(self, pod: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]) -> str | None:
        """Return commands of a shell that mount everything; None if a config map is missing.

        :param maps: the content of the config maps by their names.
        """
        volumes = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        sources = [each["configMap"] for each in volumes.values() if "configMap" in each]
        if any(source["name"] not in maps for source in sources):
            return None
        [container] = pod["spec"]["containers"]
        commands = [f"mount -t tmpfs none {shlex.quote(str(path))}" for path in self._hidden]
        commands.append(self._bind(self._names, HOSTS))
        commands.append(self._bind(self.account, ACCOUNT))
        for mount in container.get("volumeMounts", ()):
            source = volumes[mount["name"]].get("configMap")
            if source is None:
                continue
            content = self._folder / f"{pod['metadata']['name']}-{mount['name']}"
            content.mkdir()
            data = maps[source["name"]]
            items = source.get("items") or [{"key": key, "path": key} for key in data]
            for item in items:
                (content / item["path"]).write_text(data[item["key"]])
            commands.append(self._bind(content, Path(mount["mountPath"])))
        return " && ".join(commands)

    def remove_mount_points(self) -> None:
        """Remove the directories that were missing on this machine."""
        for path in reversed(self._made):
            with suppress(OSError):  # something else has put files there
                path.rmdir()

    def _bind(self, source: Path, target: Path) -> str:
        missing = [each for each in (target, *target.parents) if not each.exists()]
        for path in reversed(missing):
            path.mkdir()
            self._made.append(path)
        return f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(target))}"
