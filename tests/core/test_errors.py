"""The table of errors is complete in itself."""

from __future__ import annotations

import re
import string

import pytest

from tidegate_server.core.errors import Code, error


def _facts(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("code", Code.__members__.values(), ids=Code.__members__.keys())
def test_every_code_has_a_sqlstate_and_a_message_of_one_line(code: Code) -> None:
    assert re.fullmatch(r"[0-9A-Z]{5}", code.value.sqlstate)
    facts = {name: name.upper() for name in _facts(code.value.message) | _facts(code.value.hint)}
    built = error(code, **facts)
    assert built.code == code.name
    assert "\n" not in str(built)


def test_no_two_codes_share_a_row() -> None:
    assert [name for name, code in Code.__members__.items() if code.name != name] == []


def test_a_position_is_part_of_the_text() -> None:
    built = error(Code.MT_NOT_FOUND, line=2, column=7, table="a.b.c")
    assert "(line 2, column 7)" in str(built)


def test_a_missing_fact_is_an_error_of_the_program() -> None:
    with pytest.raises(KeyError):
        error(Code.MT_NOT_FOUND)
