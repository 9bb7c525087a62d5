"""Installs the packages below ``examples/catalogs`` as pip would, without building them."""

from __future__ import annotations

import tomllib
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "catalogs"


def install_examples(site: Path) -> list[Path]:
    """Write what pip records of each example to a directory; returns the directories to import."""
    folders = [site]
    for file in sorted(EXAMPLES.glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text("utf-8"))["project"]
        record = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        record.mkdir(parents=True)
        lines = [f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"]
        (record / "METADATA").write_text("".join(lines))
        lines = []
        for group, points in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
        (record / "entry_points.txt").write_text("\n".join(lines) + "\n")
        folders.append(file.parent)
    return folders
