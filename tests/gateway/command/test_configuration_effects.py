"""Every key of the server's configuration is read, and unknown ones are refused."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import tidegate_server
from tidegate_server.core.config import FLINKS_SECTIONS, Config

CODE = Path(str(tidegate_server.__file__)).parent
SECTIONS = {
    name: field.annotation.model_fields
    for name, field in Config.model_fields.items()
    if hasattr(field.annotation, "model_fields")
}
KEYS = [(section, key) for section, fields in SECTIONS.items() for key in fields]


def read_attributes() -> set[str]:
    """Return the attributes that the server's code reads, outside of the configuration itself."""
    return {
        node.attr
        for file in CODE.rglob("*.py")
        if file.name not in ("config.py", "config_sections.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


READ_BY_CONFIG = {
    ("server", "http_port"): "rest_port",
    ("scheduler", "type"): "scheduler_type",
    ("store", "url"): "store_url",
}
"""Keys that are read through another attribute of the configuration."""


def test_every_key_of_the_configuration_is_read() -> None:
    found = read_attributes()
    unread = [key for key in KEYS if READ_BY_CONFIG.get(key, key[1]) not in found]
    assert unread == []
    assert {name for name in Config.model_fields if name not in found} == set()


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_a_misspelt_key_of_the_configuration_is_refused(section: str, key: str) -> None:
    given: Any = {section: {f"{key}x": "1"}}
    with pytest.raises(ValidationError, match="Extra inputs"):
        Config(**given)


@pytest.mark.parametrize("section", [*Config.model_fields, *FLINKS_SECTIONS])
def test_a_misspelt_section_of_the_configuration_is_refused(section: str) -> None:
    given: Any = {f"{section}x": {"key": "1"}}
    with pytest.raises(ValidationError, match="Extra inputs"):
        Config(**given)
