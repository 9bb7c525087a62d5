"""Every statement has a row that says how it is carried out."""

from __future__ import annotations

from typing import get_args, get_type_hints

from tidegate_server.core.sql import statements as st
from tidegate_server.gateway.command.specs import SPECS


def test_every_statement_has_a_row() -> None:
    assert SPECS.keys() == set(get_args(st.Statement))


def test_what_explain_parses_can_be_explained() -> None:
    parsed = get_args(get_type_hints(st.Explain)["statement"])
    assert parsed
    assert {kind for kind, spec in SPECS.items() if spec.explain is not None} == set(parsed)
