"""Finds a Java installation that can run Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SUPPORTED = (17, 21)
_VERSION = re.compile(r'version "(\d+)')
_PROBE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java installation."""

    home: Path
    version: int


class JavaMissingError(Exception):
    """No usable Java was found; the message says what to install."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first Java 17 or 21 in JAVA_HOME, PATH and the system's usual directories.

    :raises JavaMissingError: if there is none.
    """
    found: list[str] = []
    tried: set[Path] = set()
    for home in _homes(os.environ if environment is None else environment):
        if home in tried:
            continue
        tried.add(home)
        version = _version_of(home)
        if version in SUPPORTED:
            return Java(home, version)
        if version is not None:
            found.append(f"Java {version} in {home}")
    instead = f" (found only {', '.join(found)})" if found else ""
    raise JavaMissingError(f"Spark needs Java 17 or 21{instead}: {_advice()}.")


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if given := environment.get("JAVA_HOME"):
        yield Path(given).resolve()
    if on_path := shutil.which("java", path=environment.get("PATH")):
        yield Path(on_path).resolve().parent.parent
    for version in SUPPORTED:
        yield from _installed_homes(version)


def _installed_homes(version: int) -> Iterator[Path]:
    if sys.platform == "darwin":
        asked = _output(["/usr/libexec/java_home", "-v", str(version)])
        if asked:
            yield Path(asked.strip()).resolve()
        return
    for home in sorted(Path("/usr/lib/jvm").glob(f"*{version}*")):
        yield home.resolve()


def _version_of(home: Path) -> int | None:
    """Return the major version of the Java in ``home``, or None if it cannot be run."""
    program = home / "bin" / "java"
    if not program.is_file():
        return None
    match = _VERSION.search(_output([str(program), "-version"]))
    return int(match.group(1)) if match else None


def _output(command: list[str]) -> str:
    """Return a command's output, or an empty string if it fails."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _advice() -> str:
    if sys.platform == "darwin":
        return "install it with brew install openjdk@17"
    if Path("/etc/debian_version").exists():
        return "install it with sudo apt-get install openjdk-17-jre-headless"
    return "install OpenJDK 17, on Debian the package openjdk-17-jre-headless, or set JAVA_HOME"
