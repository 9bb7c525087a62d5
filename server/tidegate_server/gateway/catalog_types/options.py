"""Checks the options of a catalog against those of its type; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from tidegate_server.core.catalogs.base import PythonCatalogType
from tidegate_server.core.catalogs.options import CatalogOption, OptionKind
from tidegate_server.core.model.external import secret_name
from tidegate_server.core.model.secrets import is_sensitive
from tidegate_server.core.sql.redact import redact
from tidegate_server.gateway.catalog_types.base import CatalogType

TYPE: Final = "type"
"""The option that names the type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionProblem:
    """Why options are invalid, and which one it is about; empty if it is missing."""

    key: str
    reason: str
    hint: str


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the question whether the nearest known word was meant; else the known words."""
    names = sorted(known)
    near = get_close_matches(word.lower(), names, n=1)
    return f"Did you mean {near[0]}?" if near else f"Known are {', '.join(names)}."


def find_problem(
    catalog_type: CatalogType | PythonCatalogType, options: Mapping[str, str]
) -> OptionProblem | None:
    """Return the first problem with the options of a catalog, which are without ``type``."""
    known = catalog_type.options
    for key, value in options.items():
        found = find_option(key, known)
        if found is None:
            reason = f"the type {catalog_type.name} has no option {key}"
            return OptionProblem(key=key, reason=reason, hint=nearest(key, (o.name for o in known)))
        problem = _value_problem(key, value, found)
        if problem is not None:
            return problem
    given = {key.lower() for key in options}
    for each in known:
        if each.required and each.name not in given:
            hint = f"Add '{each.name}' = '...': {each.description}"
            return OptionProblem(key="", reason=f"the option {each.name} is missing", hint=hint)
    return None


def find_option(key: str, known: Iterable[CatalogOption]) -> CatalogOption | None:
    """Return the option that a key belongs to; the exact name comes before a family."""
    folded, family = key.lower(), None
    for each in known:
        if each.name == folded:
            return each
        if each.name.endswith("*") and folded.startswith(each.name[:-1]):
            family = each
    return family


def named_options(options: Mapping[str, str], known: Iterable[CatalogOption]) -> Mapping[str, str]:
    """Return options under the names that their type gives them; families keep what was written."""
    found = ((key, find_option(key, known), value) for key, value in options.items())
    return {
        key if each is None or each.name.endswith("*") else each.name: value
        for key, each, value in found
    }


def is_secret(key: str, known: Iterable[CatalogOption]) -> bool:
    """Return whether the value of an option is never shown."""
    found = find_option(key, known)
    return is_sensitive(key) or (found is not None and found.secret)


def _value_problem(key: str, value: str, found: CatalogOption) -> OptionProblem | None:
    if secret_name(value) is not None:
        return None
    if "${secret:" in value:
        reason = f"the value of {key} contains a reference to a secret besides other text"
        return OptionProblem(
            key=key, reason=reason, hint="A secret is the whole value of an option."
        )
    if is_secret(key, (found,)) or redact(value) != value:
        hint = f"Write '{key}' = '${{secret:name}}', and the secret into [secrets]."
        return OptionProblem(key=key, reason=f"the option {key} contains a secret", hint=hint)
    if found.values and value.lower() not in found.values:
        hint = nearest(value, found.values)
        return OptionProblem(key=key, reason=f"{value} is no value of {key}", hint=hint)
    valid = {
        OptionKind.TEXT: bool(value.strip()),
        OptionKind.BOOLEAN: value.lower() in ("true", "false"),
        OptionKind.INTEGER: value.lstrip("-").isdecimal(),
    }
    if not valid[found.kind]:
        reason = f"the option {key} must be {found.kind.value}, not {value!r}"
        return OptionProblem(key=key, reason=reason, hint=found.description)
    return None
