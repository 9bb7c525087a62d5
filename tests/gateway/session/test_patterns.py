from __future__ import annotations

import pytest

from tidegate_server.gateway.session.patterns import compile_pattern

NAMES = ["default", "db", "db1", "db12", "global_temp", "globalxtemp", "a"]


def matching(pattern: str | None) -> list[str]:
    return [name for name in NAMES if compile_pattern(pattern).fullmatch(name)]


@pytest.mark.parametrize("pattern", [None, "", "''", "*", "%", ".*", "_*", "_%", ".%"])
def test_these_patterns_match_every_name(pattern: str | None) -> None:
    assert matching(pattern) == NAMES


@pytest.mark.parametrize("pattern", ["db%", "db*", "db.*"])
def test_a_prefix_matches_with_either_wildcard(pattern: str) -> None:
    assert matching(pattern) == ["db", "db1", "db12"]


@pytest.mark.parametrize("pattern", ["db_", "db."])
def test_one_character_matches_with_either_wildcard(pattern: str) -> None:
    assert matching(pattern) == ["db1"]


def test_a_backslash_takes_the_underscore_as_it_is() -> None:
    assert matching(r"global\_temp") == ["global_temp"]
    assert matching("global_temp") == ["global_temp", "globalxtemp"]


def test_alternatives_match_either_name() -> None:
    assert matching("a|db") == ["db", "a"]


def test_case_does_not_matter() -> None:
    assert matching("DEFAULT") == ["default"]


def test_characters_of_regular_expressions_mean_nothing() -> None:
    assert compile_pattern("a+(b)[c]$").fullmatch("a+(b)[c]$")


def test_a_lonely_backslash_at_the_end_is_itself() -> None:
    assert compile_pattern("a\\").fullmatch("a\\")
