from __future__ import annotations

from time import process_time

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.core.statement_size import (
    MAX_CUBE,
    MAX_NESTING,
    require_parsable,
    require_size,
)
from tidegate_server.gateway.session.text import substitute

LIMIT = 1000


def test_variables_are_substituted_in_every_spelling() -> None:
    text = "SELECT '${day}', '${hivevar:day}', '${hiveconf:day}'"
    assert substitute(text, {"day": "d"}, 0) == "SELECT 'd', 'd', 'd'"


def test_unknown_variables_stay_as_they_are() -> None:
    assert substitute("SELECT '${day}'", {}, 0) == "SELECT '${day}'"


def test_substitution_can_be_switched_off() -> None:
    settings = {"day": "d", "spark.sql.variable.substitute": "false"}
    assert substitute("${day}", settings, 0) == "${day}"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("x" * (LIMIT + 1), LIMIT + 1),
        ("é" * 501, 1002),
        ("\N{GRINNING FACE}" * 251, 1004),
        ("\ud800" * 334, 1002),  # half a character, which clients can send
    ],
)
def test_the_size_of_a_text_is_that_of_its_bytes(text: str, size: int) -> None:
    with pytest.raises(ServerError) as caught:
        require_size(text, LIMIT)
    assert (caught.value.code, caught.value.sqlstate) == ("STATEMENT_TOO_LARGE", "54001")
    assert f"{size} bytes" in caught.value.message
    assert f"at most {LIMIT}" in caught.value.message
    assert "engine.max_statement_bytes" in caught.value.hint


@pytest.mark.parametrize("text", ["x" * LIMIT, "é" * 500, "\N{GRINNING FACE}" * 250, ""])
def test_a_text_may_have_as_many_bytes_as_the_limit(text: str) -> None:
    require_size(text, LIMIT)


def test_no_limit_is_none() -> None:
    require_size("x" * 10_000_000, 0)
    assert len(substitute("${a}" * 1000, {"a": "x" * 1000}, 0)) == 1_000_000


@pytest.mark.parametrize("text", ["'${a}${a}${a}'", "${a}" * 250, "${a}" * 20 + "x" * 900])
def test_variables_do_not_exceed_the_limit(text: str) -> None:
    with pytest.raises(ServerError) as caught:
        substitute(text, {"a": "x" * 400}, LIMIT)
    assert caught.value.code == "STATEMENT_TOO_LARGE"


def test_variables_may_shorten_a_text_that_is_within_the_limit() -> None:
    assert substitute("${a}" * 250, {"a": ""}, LIMIT) == ""
    assert substitute("${a}${a}", {"a": "x" * 500}, LIMIT) == "x" * 1000


@pytest.mark.parametrize(
    "text",
    [
        "1," * 500,
        "x" * 5000,
        "'" + "x, " * 5000 + "'",
        "'" + "\\'," * 5000,
        '"' + '\\",' * 5000 + '"',
        "`" + "x, " * 5000 + "`",
        "r'\\'" + "/* " + "x, " * 5000 + "*/",
        "--" + "x, " * 5000 + "\r\n" + "1," * 499,
        " " * 5000,
        "'" + "x" * 5000 + "\\",
    ],
)
def test_a_text_may_have_as_many_tokens_as_the_limit(text: str) -> None:
    require_parsable(text, LIMIT)


@pytest.mark.parametrize(
    "text",
    [
        "1," * 501,
        "()" * 501,
        "SELECT '" + "x" * 1000 + "', " + "1 " * 1000,
        "SELECT r'\\', " + "1," * 500 + "''",
        "SELECT 1 /*+ " + "a," * 500 + "*/",
        "-- x\r" + "1," * 501,
        "/* x */" * 1001,
    ],
)
def test_a_text_may_not_have_more_tokens_than_the_limit(text: str) -> None:
    with pytest.raises(ServerError) as caught:
        require_parsable(text, LIMIT)
    assert (caught.value.code, caught.value.sqlstate) == ("STATEMENT_TOO_LARGE", "54001")
    assert "engine.max_statement_tokens" in caught.value.hint
    require_parsable(text, 0)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("(", ")"),
        ("1 + (", ")"),
        ("a[", "]"),
        ("CASE WHEN (", ") THEN 1 END"),
        ("array<", ">"),
        ("MAP < string, ", ">"),
        ("struct<a:", ">"),
        ("f('((', a < b, ", ", a >> b /* (( */)"),
    ],
)
def test_brackets_may_be_nested_as_deeply_as_the_limit(opening: str, closing: str) -> None:
    before = f"SELECT 7 < 8,\n {'f((a)[1]), ' * MAX_NESTING}"
    text = before + opening * MAX_NESTING + "NULL" + closing * MAX_NESTING
    require_parsable(text, 0)
    with pytest.raises(ServerError) as caught:
        require_parsable(text.replace("NULL", "(NULL)"), 0)
    assert (caught.value.code, caught.value.sqlstate) == ("STATEMENT_TOO_COMPLEX", "54001")
    assert f"more than {MAX_NESTING} deep" in caught.value.message
    column = len(before) + len(opening) * MAX_NESTING - before.index("\n")
    assert (caught.value.line, caught.value.column) == (2, column)


@pytest.mark.parametrize("text", ["'\\", "'", "/*", "`", "/*+", '\\"', "r'", "()", "--"])
def test_no_text_takes_long_to_count(text: str) -> None:
    before = process_time()
    require_parsable(text * 200_000, 1_000_000)
    assert process_time() - before < 5


@pytest.mark.parametrize("elements", ["a", "(a, b)", "f(a, b, c[1])", "', '", "a /* , */"])
@pytest.mark.parametrize("cube", ["CUBE(", "GROUPING SETS ((x), cube /* of */ ("])
def test_a_cube_may_have_as_many_elements_as_the_limit(cube: str, elements: str) -> None:
    before = f"SELECT cube, 'CUBE(', f({'1, ' * 50}1)\nFROM t GROUP BY "
    text = f"{before}{cube}{', '.join([elements] * MAX_CUBE)})"
    require_parsable(text, 0)
    with pytest.raises(ServerError) as caught:
        require_parsable(f"{text[:-1]}, z)", 0)
    assert (caught.value.code, caught.value.sqlstate) == ("STATEMENT_TOO_COMPLEX", "54001")
    assert "a CUBE has more than 12 elements" in caught.value.message
    assert caught.value.line == 2
    assert caught.value.column == len("FROM t GROUP BY ") + cube.lower().index("cube") + 1
