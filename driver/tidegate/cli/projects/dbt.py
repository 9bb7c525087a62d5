"""Reads the models of a compiled dbt project that are materialized tables.

https://docs.getdbt.com/reference/artifacts/manifest-json
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate.cli.contexts import parse_yaml
from tidegate.cli.files import UnreadableFileError, read_script
from tidegate.cli.projects.statements import HEAD, ProjectError, Statement
from tidegate.cli.split import split
from tidegate.lexical import quote_name
from tidegate.literals import literal

FILE: Final = "dbt_project.yml"
_OWN: Final = "materialized_table"
_COMPILE: Final = "run dbt compile first"
_WITHOUT_RELATION: Final = "ephemeral"
_REFUSED: Final[Mapping[str, tuple[object, str]]] = {
    "on_configuration_change": ("apply", "apply changes each table: leave it out"),
    "pre-hook": ([], "run the statement of the hook yourself"),
    "post-hook": ([], "run the statement of the hook yourself, such as GRANT"),
    "grants": ({}, "run GRANT yourself"),
}
"""Configs of models that have an effect only in a run of dbt, with their default, and a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DbtProject:
    """A project: its name, and its compiled models."""

    name: str
    models: tuple[Mapping[str, Any], ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What is left to dbt."""
        others = Counter(
            str(model["config"]["materialized"])
            for model in self.models
            if model["config"]["materialized"] not in (_OWN, _WITHOUT_RELATION)
        )
        return tuple(
            f"{count} models are left to dbt: their materialization is {kind}."
            if count > 1
            else f"1 model is left to dbt: its materialization is {kind}."
            for kind, count in sorted(others.items())
        )


def read_project(root: Path) -> DbtProject:
    """Read a project and its manifest.

    :raises ProjectError: if it cannot be read, or was not compiled.
    """
    try:
        content, _ = parse_yaml(str(root / FILE))
    except UnreadableFileError as error:
        raise ProjectError(str(error)) from error
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str):
        raise ProjectError(f"{FILE}:1: name is missing")
    target = content.get("target-path", "target")
    manifest = root / str(target) / "manifest.json"
    if not manifest.is_file():
        raise ProjectError(f"{FILE}:1: there is no {target}/manifest.json: {_COMPILE}")
    try:
        nodes = json.loads(read_script(str(manifest)))["nodes"].values()
        models = tuple(node for node in nodes if node["resource_type"] == "model")
        for model in models:
            model["config"]["materialized"], model["original_file_path"], model["schema"]
    except UnreadableFileError as error:
        raise ProjectError(str(error)) from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ProjectError(f"{target}/manifest.json is no manifest of dbt: {_COMPILE}") from error
    return DbtProject(name=name, models=models)


def read_statements(root: Path, project: DbtProject) -> Iterator[Statement]:
    """Yield the definitions of the models that are materialized tables.

    :raises ProjectError: for a model that cannot be taken over, with what to write instead.
    """
    for model in sorted(project.models, key=lambda each: str(each["original_file_path"])):
        if model["config"]["materialized"] == _OWN:
            file = str(model["original_file_path"])
            # The only statement: a semicolon at its end is left out.
            parts = [part for part in split(_definition(root, model, file)) if part.sql]
            if len(parts) != 1:
                raise ProjectError(f"{file}:1: a model has one query")
            yield Statement(file=file, part=parts[0])


def _definition(root: Path, model: Mapping[str, Any], file: str) -> str:
    """Return the statement of a model, as the materialization of the dbt package writes it."""
    config: Mapping[str, Any] = model["config"]
    query = _query(root, model, file)
    for key, (default, hint) in _REFUSED.items():
        found = config.get(key)
        if found and found != default:
            raise ProjectError(f"{file}:1: {key} has no effect here: {hint}")
    if (config.get("contract") or {}).get("enforced"):
        raise ProjectError(f"{file}:1: contract has no effect here: leave it out")
    documented: Mapping[str, bool] = config.get("persist_docs") or {}
    described = any(each.get("description") for each in (model.get("columns") or {}).values())
    if documented.get("columns") and described:
        raise ProjectError(
            f"{file}:1: persist_docs of columns cannot be taken over, since it needs the types of "
            "the columns: set columns to false"
        )
    lines = [f"{' '.join(HEAD)} {_name(model)}"]
    if config.get("primary_key"):
        lines.append(f"(PRIMARY KEY ({_names(config['primary_key'])}) NOT ENFORCED)")
    if documented.get("relation") and model.get("description"):
        lines.append(f"COMMENT {literal(model['description'])}")
    if config.get("partition_by"):
        lines.append(f"PARTITIONED BY ({_names(config['partition_by'])})")
    if config.get("options"):
        pairs = config["options"].items()
        listed = ", ".join(f"{literal(key)} = {literal(str(value))}" for key, value in pairs)
        lines.append(f"WITH ({listed})")
    for key, clause in (
        ("freshness_interval", "FRESHNESS ="),
        ("refresh_mode", "REFRESH_MODE ="),
        ("refresh_trigger", "REFRESH_TRIGGER ="),
    ):
        if config.get(key):
            lines.append(f"{clause} {config[key]}")
    if config.get("execute_as"):
        lines.append(f"EXECUTE AS USER {literal(config['execute_as'])}")
    if config.get("immutable_where"):
        lines.append(f"IMMUTABLE WHERE ({config['immutable_where']})")
    return "\n".join([*lines, f"AS {query}"])


def _query(root: Path, model: Mapping[str, Any], file: str) -> str:
    """Return the compiled query of a model.

    :raises ProjectError: if it was not compiled, or changed since then.
    """
    if model.get("language", "sql") != "sql":
        raise ProjectError(f"{file}:1: models in Python cannot be taken over: write its query")
    source = root / file
    if source.is_file() and source.read_text("utf-8").strip() != model.get("raw_code", "").strip():
        raise ProjectError(f"{file}:1: the model was changed after it was compiled: {_COMPILE}")
    code = model.get("compiled_code")
    if not code and model.get("compiled_path"):
        compiled = root / str(model["compiled_path"])
        code = compiled.read_text("utf-8") if compiled.is_file() else None
    if not code:
        raise ProjectError(f"{file}:1: the model was not compiled: {_COMPILE}")
    return str(code).strip()


def _name(model: Mapping[str, Any]) -> str:
    return f"{quote_name(model['schema'])}.{quote_name(model.get('alias') or model['name'])}"


def _names(given: str | list[str]) -> str:
    return ", ".join([given] if isinstance(given, str) else given)
