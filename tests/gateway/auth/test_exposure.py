"""Secrets that other users of the machine could read are found before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate_server.core.config import Config
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth.exposure import (
    check_java_options,
    exposed_configuration,
    exposed_files,
)

CONFIGURATION = """
[server]
http_token = "t"

[store]
url = "postgresql://ann:hush@db/t"

[alerts.webhook_headers]
Authorization = "Bearer x"

[engine.settings]
"spark.sql.shuffle.partitions" = "2"
"fs.s3a.secret.key" = "x"
"fs.s3a.access.key" = { file = "/run/secrets/x" }
"spark.token" = { env = "X" }
"""


@pytest.mark.parametrize(
    "options",
    ["-Djavax.net.ssl.trustStorePassword=x7x", "-Xmx1g '-Dproxy=http://ann:x7x@proxy'"],
)
def test_a_secret_among_javas_options_is_refused(options: str) -> None:
    with pytest.raises(ServerError) as caught:
        check_java_options({"spark.driver.extraJavaOptions": options})
    assert caught.value.code == "SECRET_EXPOSED"
    assert "x7x" not in str(caught.value)
    assert "@/etc/tidegate/java.options" in caught.value.hint


def test_other_options_of_java_pass() -> None:
    check_java_options({"spark.driver.extraJavaOptions": "-Xss4m -Da=b @/etc/java.options 'x"})


def test_keys_in_a_readable_configuration_are_named(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text(CONFIGURATION)
    file.chmod(0o644)
    (told,) = exposed_configuration(file, [])
    assert told.startswith(
        "alerts.webhook_headers.Authorization, engine.settings.fs.s3a.secret.key, "
        "server.http_token, store.url is in a file that is not private"
    )
    assert told.endswith(f"chmod 600 {file}")


def test_a_private_configuration_may_contain_secrets(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text(CONFIGURATION)
    file.chmod(0o600)
    assert list(exposed_configuration(file, [])) == []


def test_a_readable_configuration_without_secrets_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "tidegate.toml"
    file.write_text('[login]\npassword_file = "users"\n')
    file.chmod(0o644)
    assert list(exposed_configuration(file, [])) == []


@pytest.mark.parametrize(
    ("argument", "warned"),
    [
        ("store.url=postgresql://ann:x7x@db/t", True),
        ("server.http_token=x7x", True),
        ("engine.settings.fs.s3a.secret.key=x7x", True),
        ("store.url.file=/run/secrets/url", False),
        ("store.url=postgresql://ann@db/t", False),
        ("login.password_file=users", False),
        ("server.plaintext_passwords=true", False),
        ("engine.driver_memory=8g", False),
    ],
)
def test_a_secret_on_the_command_line_is_warned_of(argument: str, warned: bool) -> None:
    told = list(exposed_configuration(None, [argument]))
    assert bool(told) is warned
    assert not any("x7x" in line for line in told)


def test_files_of_keys_and_passwords_are_checked(tmp_path: Path) -> None:
    users, key = tmp_path / "users", tmp_path / "key.pem"
    for file, rights in ((users, 0o644), (key, 0o604)):
        file.touch()
        file.chmod(rights)
    config = Config.model_validate(
        {
            "login": {"password_file": str(users)},
            "tls": {"certificate": str(tmp_path / "cert.pem"), "key": str(key)},
            "kerberos": {"keytab": str(tmp_path / "missing")},
        }
    )
    assert [line.partition(" ")[0] for line in exposed_files(config)] == [str(users), str(key)]
