"""What a directory is: statements in files, a Spark pipeline, or a dbt project."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tidegate.cli.projects import dbt, pipelines
from tidegate.cli.projects.directory import directory_statements
from tidegate.cli.projects.statements import ProjectError, Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A directory of definitions."""

    name: str
    statements: Callable[[], Iterable[Statement]]
    """Reads the definitions; raises ProjectError."""
    schema: str | None = None
    """The schema of names without one, perhaps with its catalog; None for the session's."""
    owns_tables: bool = True
    """Whether tables belong to it without being asked; those of dbt have no option that says so,
    so that its runs and this command define them alike."""
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of the session."""
    notes: tuple[str, ...] = ()
    """What is not taken over, although it is right."""


def find_project(directory: str) -> Project:
    """Return the project in a directory.

    :raises ProjectError: if a file that describes it is wrong.
    """
    root = Path(directory)
    found = [each for each in (*pipelines.SPECIFICATIONS, dbt.FILE) if (root / each).is_file()]
    if len(found) > 1:
        raise ProjectError(f"{directory} has both {found[0]} and {found[1]}")
    if not found:
        name = root.resolve().name
        return Project(name=name, statements=lambda: directory_statements(directory))
    if found == [dbt.FILE]:
        project = dbt.read_project(root)
        return Project(
            name=project.name,
            statements=lambda: dbt.read_statements(root, project),
            owns_tables=False,
            notes=project.notes,
        )
    pipeline = pipelines.read_pipeline(root / found[0])
    schema = pipeline.schema
    if pipeline.catalog is not None:
        schema = f"{pipeline.catalog}.{schema or 'default'}"
    return Project(
        name=pipeline.name,
        statements=lambda: pipelines.read_statements(root, pipeline),
        schema=schema,
        settings=pipeline.settings,
        notes=("storage of the pipeline is not used: tables keep their positions themselves.",),
    )
