"""The password file and the command that edits it."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from tidegate_server import __main__ as command
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth import passwd
from tidegate_server.gateway.auth.passwords import PasswordFile, PasswordFileError, set_password


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with one user."""
    path = tmp_path / "users"
    set_password(path, "ada", "lovelace")
    return path


def code_of(users: PasswordFile, user: str, password: str) -> str:
    with pytest.raises(ServerError) as caught:
        users.authenticate(user, password)
    return caught.value.code


def test_the_right_password_lets_in(file: Path) -> None:
    assert PasswordFile(file).authenticate("ada", "lovelace") == "ada"


@pytest.mark.parametrize(
    ("user", "password"),
    [("ada", "wrong"), ("ada", ""), ("Ada", "lovelace"), ("eva", "lovelace"), ("", "")],
)
def test_a_wrong_name_or_password_does_not(file: Path, user: str, password: str) -> None:
    assert code_of(PasswordFile(file), user, password) == "LOGIN_REFUSED"


def test_unknown_users_and_wrong_passwords_are_told_the_same(file: Path) -> None:
    users = PasswordFile(file)
    told = []
    for user in ("ada", "nobody"):
        with pytest.raises(ServerError) as caught:
            users.authenticate(user, "wrong")
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_a_change_of_the_file_counts_at_once(file: Path) -> None:
    users = PasswordFile(file)
    set_password(file, "ada", "changed")
    set_password(file, "eva", "new")
    assert code_of(users, "ada", "lovelace") == "LOGIN_REFUSED"
    assert users.authenticate("ada", "changed") == "ada"
    assert users.authenticate("eva", "new") == "eva"


def test_a_file_that_vanished_lets_nobody_in(file: Path) -> None:
    users = PasswordFile(file)
    file.unlink()
    assert code_of(users, "ada", "lovelace") == "LOGIN_UNAVAILABLE"


def test_a_damaged_hash_is_the_servers_fault(file: Path) -> None:
    file.write_text("ada:$argon2id$nonsense\n")
    assert code_of(PasswordFile(file), "ada", "lovelace") == "LOGIN_UNAVAILABLE"


@pytest.mark.parametrize(
    "text", ["ada\n", "ada:plain\n", ":$argon2id$x\n", "a:$argon2id$x\na:$argon2id$y\n"]
)
def test_a_line_that_is_no_entry_is_named(file: Path, text: str) -> None:
    file.write_text(f"# users\n\n{text}")
    with pytest.raises(PasswordFileError, match=r"users, line [34]"):
        PasswordFile(file)


def test_nothing_secret_is_shown(file: Path) -> None:
    users = PasswordFile(file)
    assert "argon2" not in repr(vars(users)["_loaded"])


# ---- the command ---------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, typed: str, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return command.main(["passwd", *arguments])


def test_the_command_adds_and_removes_users(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "secret\n", str(file), "eva") == 0
    assert PasswordFile(file).authenticate("eva", "secret") == "eva"
    assert run(monkeypatch, "", str(file), "eva", "--delete") == 0
    assert code_of(PasswordFile(file), "eva", "secret") == "LOGIN_REFUSED"
    assert PasswordFile(file).authenticate("ada", "lovelace") == "ada"


def test_a_new_file_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "new"
    assert run(monkeypatch, "secret\n", str(made), "eva") == 0
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["new"]
    assert "secret" not in made.read_text()


@pytest.mark.parametrize(
    ("typed", "arguments", "said"),
    [
        ("\n", ["eva"], "the password is empty"),
        ("x\n", ["a:b"], "cannot be a user's name"),
        ("x\n", [" a"], "cannot be a user's name"),
        ("x\n", ["#a"], "cannot be a user's name"),
        ("", ["nobody", "--delete"], "has no user nobody"),
    ],
)
def test_the_command_says_what_it_cannot_do(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    arguments: list[str],
    said: str,
) -> None:
    before = file.read_text()
    assert run(monkeypatch, typed, str(file), *arguments) == 2
    assert said in capsys.readouterr().err
    assert file.read_text() == before


def test_two_passwords_typed_differently_are_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = iter(["one", "two"])
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", terminal)
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(typed))
    assert passwd.main([str(file), "eva"]) == 2
    assert "differ" in capsys.readouterr().err
