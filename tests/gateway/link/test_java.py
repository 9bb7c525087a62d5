"""Finding a Java that runs Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate_server.gateway.link import java
from tidegate_server.gateway.link.java import JavaMissingError, find_java


def install(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_installed_homes", lambda version: iter(()))


def test_java_home_comes_first(tmp_path: Path) -> None:
    chosen = install(tmp_path / "a", "21.0.2")
    on_path = install(tmp_path / "b", "17.0.1")
    environment = {"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}
    assert find_java(environment) == java.Java(chosen, 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = install(tmp_path / "a", "1.8.0_402")
    good = install(tmp_path / "b", "17.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": str(good / "bin")}
    assert find_java(environment) == java.Java(good, 17)


def test_without_java_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(JavaMissingError, match="install") as caught:
        find_java({"PATH": str(tmp_path)})
    assert "\n" not in str(caught.value)


def test_a_java_that_does_not_suit_is_named(tmp_path: Path) -> None:
    new = install(tmp_path / "a", "25")
    with pytest.raises(JavaMissingError, match=r"found only Java 25 in"):
        find_java({"JAVA_HOME": str(new), "PATH": ""})


def test_a_program_that_is_no_java_is_passed_over(tmp_path: Path) -> None:
    broken = install(tmp_path / "a", "17")
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(JavaMissingError):
        find_java({"JAVA_HOME": str(broken), "PATH": ""})
