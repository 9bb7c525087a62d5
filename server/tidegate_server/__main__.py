"""The command tidegate-server: from arguments to a running gateway."""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib.util
import os
import re
import signal
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

if TYPE_CHECKING:
    from pydantic import ValidationError

    from tidegate_server.core.config import Config
    from tidegate_server.gateway.link.java import Java

NEEDED = (
    "pyspark",
    "delta",
    "deltalake",
    "pyarrow",
    "numpy",
    "sqlglot",
    "sqlalchemy",
    "argon2",
    "h11",
    "httpx2",
    "jwt",
    "ldap3",
    "babel",
    "msgspec",
    "pydantic_settings",
    "prometheus_client",
    "starlette",
    "tenacity",
    "uvicorn",
)

_FREE_KEYS = ("options", "engine.settings", "engine.own_settings", "login.custom_options")
"""Sections whose keys contain dots."""
_USER_SETTING = re.compile(r"engine\.users\.(?P<name>.+?)\.settings\.(?P<setting>.+)")

_UNUSABLE = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.ENOSPC,
    }
)

EXAMPLES = """\
examples:
  tidegate-server
      a gateway on 127.0.0.1:10000 with its Spark engine; everything is kept in ./tidegate-data
  tidegate-server --demo
      the same with a demo pipeline running against it
  tidegate-server --data /srv/tidegate --port 10009
  tidegate-server --set engine.driver_memory=8g --set engine.settings.spark.sql.ansi.enabled=false
      any key of the configuration file; lists as in TOML: 'authorization.allow=["paths"]'
  tidegate-server --config tidegate.toml
      with, for example:  [server]
                          port = 10009
                          [engine]
                          master = "local[4]"
  TIDEGATE_SERVER__PORT=10009 tidegate-server
      the same from the environment

users:
  tidegate-server passwd users.txt ada
      adds a user, or changes the password; the file is for --set login.password_file=users.txt
      together with --set server.auth=PASSWORD

then:
  beeline -u jdbc:hive2://127.0.0.1:10000/
  tidegate -u jdbc:hive2://127.0.0.1:10000/
"""


class UsageError(Exception):
    """The gateway cannot start with these arguments; the message has a line per cause."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 when it could not start."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given[:1] == ["passwd"]:
            return _passwd(given[1:])
        options = _parser().parse_args(given)
        _check_extra()
        with _private_directory(options) as directory:
            config = _config(options, directory)
            java = _java()
            return _serve(config, java, options)
    except UsageError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"tidegate-server: {line}\n")
        return 2


def _passwd(arguments: list[str]) -> int:
    _check_extra()
    # Imported late: the extra's packages were checked just before.
    from tidegate_server.gateway.auth import passwd

    return passwd.main(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate-server",
        description="Tidegate's gateway: HiveServer2 for every client, materialized tables, and a "
        "Spark engine that it starts and watches.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML configuration file")
    parser.add_argument("--data", metavar="DIR", help="data directory (default: tidegate-data)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", help="port to listen on, 0 for any free one (default: 10000)")
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen on a non-loopback address although there is no authentication",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="SECTION.KEY=VALUE",
        help="any other key of the configuration; may be repeated",
    )
    parser.add_argument("--demo", action="store_true", help="run the demo pipeline as well")
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="serve the program that starts this command: listen on a private socket, which "
        "the ready file names, and stop when standard input is closed; without --data, the data "
        "is deleted then",
    )
    parser.add_argument(
        "--recover-catalog",
        action="store_true",
        help="after store or metastore were lost: restore, from the tables in the warehouse, "
        "the entries of the metastore and, suspended, the definitions of materialized tables",
    )
    parser.add_argument(
        "--ready-file",
        type=Path,
        metavar="FILE",
        help="write host, port and process ids as JSON to this file, on every start of an engine; "
        "- is standard output",
    )
    return parser


def _check_extra() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            "The server's packages are not installed: pip install 'tidegate[server]' "
            f"(missing: {', '.join(missing)})."
        )


def overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Return the command line's part of the configuration, nested.

    :raises UsageError: if a ``--set`` is not of the form SECTION.KEY=VALUE, or contradicts
        another one.
    """
    pairs: list[tuple[str, str]] = []
    for text in options.settings:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(
                f"--set {text}: expected SECTION.KEY=VALUE, such as server.port=10009."
            )
        pairs.append((key.strip(), value))
    for key, value in (
        ("data", options.data),
        ("server.host", options.host),
        ("server.port", options.port),
        ("server.insecure", "true" if options.insecure else None),
    ):
        if value is not None:
            pairs.append((key, value))
    nested: dict[str, Any] = {}
    for key, value in pairs:
        *sections, last = _path(key)
        target = nested
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise UsageError(f"{key} cannot be set: {section} is a value, not a section.")
        target[last] = value if _is_free(key) else _parse_value(value)
    return nested


def _parse_value(text: str) -> Any:
    """Return a list or inline table of TOML, or any other value as its text."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # such as an IPv6 address in brackets


def _is_free(key: str) -> bool:
    """Say whether a key is in a section whose values are texts."""
    named = any(key.startswith(f"{free}.") for free in _FREE_KEYS)
    return named or _USER_SETTING.fullmatch(key) is not None


def _path(key: str) -> list[str]:
    for free in _FREE_KEYS:
        if key.startswith(f"{free}."):
            return [*free.split("."), key[len(free) + 1 :]]
    if user := _USER_SETTING.fullmatch(key):
        return ["engine", "users", user["name"], "settings", user["setting"]]
    return key.split(".")


@contextmanager
def _private_directory(options: argparse.Namespace) -> Iterator[Path | None]:
    """Provide a temporary directory to an embedded server, and stop it with its parent."""
    if not options.embedded:
        yield None
        return
    # Not $TMPDIR, which may be too long for the path of a socket.
    with tempfile.TemporaryDirectory(prefix="tidegate-", dir="/tmp") as directory:
        threading.Thread(target=_await_parent, name="parent", daemon=True).start()
        yield Path(directory)


def _await_parent() -> None:
    """Stop this process when its standard input is closed, as the death of its parent does."""
    # Not by sys.stdin, whose lock this thread would hold when Python exits.
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _config(options: argparse.Namespace, private: Path | None) -> Config:
    # Imported late: the extra's packages were checked just before.
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from tidegate_server.core.config import load_config

    given = overrides(options)
    if private is not None:
        given.setdefault("data", str(private / "data"))
        given.setdefault("server", {})["socket"] = str(private / "socket")
    try:
        config = load_config(options.config, given)
    except FileNotFoundError as error:
        raise UsageError(f"The {error}.") from error
    except ValidationError as error:
        raise UsageError("\n".join(_complaints(error))) from error
    except (SettingsError, ValueError) as error:
        raise UsageError(f"The configuration cannot be read: {error}.") from error
    return config


def _complaints(error: ValidationError) -> list[str]:
    from tidegate_server.core.config import FLINKS_SECTIONS, Config

    lines = []
    for item in error.errors(include_url=False):
        if not item["loc"]:  # about several keys at once
            lines.append(f"{item['msg'].removeprefix('Value error, ')}.")
            continue
        *sections, last = (str(part) for part in item["loc"])
        key = ".".join((*sections, last))
        if item["type"] == "extra_forbidden":
            known = [*_known_keys(Config, sections), *(() if sections else FLINKS_SECTIONS)]
            close = difflib.get_close_matches(last, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."
            lines.append(f"Unknown configuration key {key}: {hint}")
        elif _is_secret(Config, [*sections, last]):
            reason = item["msg"].removeprefix("Value error, ")
            lines.append(f"Configuration key {key} is invalid: {reason}.")
        else:
            lines.append(f"Configuration key {key} cannot be {item['input']!r}: {item['msg']}.")
    return lines


def _is_secret(model: Any, path: list[str]) -> bool:
    """Return whether the value of a key must not be shown."""
    for name in path:
        fields = getattr(model, "model_fields", {})
        if name not in fields:
            return False
        if not fields[name].repr:
            return True
        model = fields[name].annotation
    return False


def _known_keys(model: Any, sections: list[str]) -> list[str]:
    for section in sections:
        fields = getattr(model, "model_fields", None)
        # A mapping has a section for each name.
        model = get_args(model)[1] if fields is None else fields[section].annotation
    return sorted(model.model_fields)


def _java() -> Java:
    from tidegate_server.gateway.link.java import JavaMissingError, find_java

    try:
        return find_java()
    except JavaMissingError as error:
        raise UsageError(str(error)) from error


def _serve(config: Config, java: Java, options: argparse.Namespace) -> int:
    from tidegate_server.core.errors import ServerError
    from tidegate_server.gateway.app import Gateway
    from tidegate_server.gateway.auth.exposure import exposed_configuration
    from tidegate_server.gateway.foreground import run
    from tidegate_server.gateway.link.lock import DataDirectoryTakenError

    for warning in exposed_configuration(options.config, options.settings):
        _say(f"Warning: {warning}")
    try:
        gateway = Gateway(
            config,
            java_home=java.home,
            announce=_say,
            recover_catalog=options.recover_catalog,
        )
        return run(gateway, say=_say, demo=options.demo, ready_file=options.ready_file)
    except DataDirectoryTakenError as error:
        raise UsageError(str(error)) from error
    except ServerError as error:
        text = f"{error.message} {error.hint}".rstrip()
        if error.code.startswith("STORE_"):
            text += f"\nThe store is {_store_place(config)}."
        raise UsageError(text) from error
    except OSError as error:
        _explain(error, config)


def _store_place(config: Config) -> str:
    """Return the store's location, without a password."""
    from sqlalchemy import make_url

    url = make_url(config.store_url)
    sqlite = url.get_backend_name() == "sqlite"
    return (url.database or ":memory:") if sqlite else url.render_as_string(hide_password=True)


def _explain(error: OSError, config: Config) -> NoReturn:
    """Raise a UsageError for a common error of the operating system, or raise it unchanged."""
    address = f"{config.server.host}:{config.server.port}"
    match error.errno:
        case errno.EADDRINUSE:
            taken = error.filename or address
            other = "server.socket" if config.server.socket else "--port"
            text = f"Another program listens on {taken}: stop it or choose another {other}."
        case errno.ENAMETOOLONG if config.server.socket:
            text = f"The path of a socket may have 103 bytes: choose another than {error.filename}."
        case errno.EADDRNOTAVAIL:
            text = f"This machine has no address {config.server.host}: choose another --host."
        case code if code in _UNUSABLE:
            what = error.filename or address
            text = f"{what} cannot be used ({error.strerror}): choose another --data or --port."
        case _:
            raise error
    raise UsageError(text) from error


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
