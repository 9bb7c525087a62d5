"""The statements of a project, wherever they come from."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.cli.split import Part

HEAD = ("CREATE", "OR", "ALTER", "MATERIALIZED", "TABLE")


class ProjectError(Exception):
    """The directory cannot be used; the message has the file and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement, and the file that it is from."""

    file: str
    part: Part
