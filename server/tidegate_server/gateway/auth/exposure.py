"""Finds secrets of the configuration that other users of the machine can read."""

from __future__ import annotations

import contextlib
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.secrets import is_sensitive
from tidegate_server.core.permissions import exposure
from tidegate_server.core.sql.redact import redact

_COMMAND_LINES = (
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.executor.defaultJavaOptions",
)
"""Settings that become arguments of Java."""
_SECRET_KEYS = frozenset({"server.http_token", "alerts.webhook"})
_FREE_SECTIONS = (
    "engine.settings.",
    "engine.own_settings.",
    "engine.users.",
    "login.custom_options.",
    "options.",
    "workflow-scheduler.",
)
_HEADERS = "alerts.webhook_headers."


def check_java_options(settings: Mapping[str, str]) -> None:
    """Reject options of Java that contain a secret: they are visible on the command line.

    :raises ServerError: SECRET_EXPOSED.
    """
    for key in _COMMAND_LINES:
        names = list(_secret_properties(settings.get(key, "")))
        if names:
            raise error(Code.SECRET_EXPOSED, key=key, names=", ".join(names))


def exposed_files(config: Config) -> Iterator[str]:
    """Yield a warning for each file with a secret that others can read, and how to change it."""
    login, tls = config.login.password_file, config.tls
    named = (login, config.ldap.bind_password_file, config.kerberos.keytab)
    for name in (*named, tls.key or tls.certificate):
        if name:
            with contextlib.suppress(OSError):  # who reads the file reports it
                if (found := exposure(Path(name))) is not None:
                    yield found


def exposed_configuration(file: Path | None, arguments: Sequence[str]) -> Iterator[str]:
    """Yield warnings about secrets in a configuration file or on the command line.

    :param arguments: the texts of ``--set``.
    """
    if file is not None and (found := exposure(file)) is not None:
        keys = sorted(_secrets(tomllib.loads(file.read_text("utf-8"))))
        if keys:
            yield f"{', '.join(keys)} is in a file that is not private: {found}"
    for text in arguments:
        key, _, value = text.partition("=")
        if _is_secret(key.strip(), value):
            yield (
                f"--set {key.strip()} shows a secret to every user of the machine: write it into "
                "the configuration file"
            )


def _secret_properties(options: str) -> Iterator[str]:
    with contextlib.suppress(ValueError):  # unbalanced quotes, which Java reports
        for option in shlex.split(options):
            name, equals, value = option.partition("=")
            if equals and value and (is_sensitive(name) or redact(value) != value):
                yield name


def _secrets(section: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the keys of the secrets that a configuration contains itself."""
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if not (len(value) == 1 and set(value) <= {"file", "env"}):
                yield from _secrets(value, f"{name}.")
        elif isinstance(value, str) and _is_secret(name, value):
            yield name


def _is_secret(key: str, value: str) -> bool:
    if not value or key.endswith((".file", ".env")):
        return False
    if key in _SECRET_KEYS or key.startswith(_HEADERS) or redact(value) != value:
        return True
    return key.startswith(_FREE_SECTIONS) and is_sensitive(key)
