"""Prints figures of the layout of the server's source: folders, imports, types, names."""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "tidegate_server"
SMALL = 60
RECORDS = ("RefreshOrder", "RefreshRequest", "MaterializedTable")
NOT_PARTICIPLES = frozenset({"read", "put", "set", "cut", "split", "need", "feed", "seed", "embed"})
PARTICIPLE = re.compile(
    r"_?\w*ed$|_?(told|shown|found|made|held|kept|written|taken|known|given|sent|gone)$"
)


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def folder(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def main() -> int:
    """Print a table of figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT, help="another checkout")
    tree = parser.parse_args().tree
    modules = {module.name: module for module in _modules(tree / "server")}
    imports = {name: _imports(module, modules) for name, module in modules.items()}
    for what, figure in _figures(modules, imports, tree):
        print(f"{what:<58} {figure}")
    return 0


def _figures(
    modules: Mapping[str, Module], imports: Mapping[str, set[str]], tree: Path
) -> Iterator[tuple[str, object]]:
    files = [module for module in modules.values() if module.path.name != "__init__.py"]
    folders = Counter(module.folder for module in files)
    chains = {folder: _longest(folder, modules, imports) for folder in folders}
    longest = max(chains.values(), key=len)
    text = (tree / "pyproject.toml").read_text("utf-8")
    layers = text[text.index("[tool.importlinter]") :]
    everything = "\n".join(module.text for module in modules.values())

    def count(pattern: str, text: str = everything) -> int:
        return len(re.findall(pattern, text))

    functions = [
        node
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    yield "largest folders (files)", ", ".join(f"{n} {k}" for n, k in folders.most_common(3))
    yield "longest import chain within a folder", f"{len(longest)}: {' > '.join(longest)}"
    yield f"files below {SMALL} lines", sum(m.text.count("\n") < SMALL for m in files)
    yield (
        "isinstance checks of an engine's answer",
        count(r"isinstance\(answer,"),
    )
    yield "import contracts", count(r"\[\[tool\.importlinter\.contracts]]", layers)
    yield "modules named in them", count(r'"tidegate_server\.[\w.]+"', layers)
    for record in RECORDS:
        yield f"fields of {record}", _fields(record, modules)
    yield (
        "modules that import RefreshOrder",
        count(r"import .*\bRefreshOrder\b"),
    )
    yield (
        "functions named by a bare participle, not returning bool",
        sum(map(_participle, functions)),
    )
    yield "functions", len(functions)
    yield "lines", sum(module.text.count("\n") for module in modules.values())


def _modules(root: Path) -> Iterator[Module]:
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)


def _imports(module: Module, modules: Mapping[str, Module]) -> set[str]:
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
    return found & modules.keys()


def _longest(
    folder: str, modules: Mapping[str, Module], imports: Mapping[str, set[str]]
) -> list[str]:
    """Return the longest chain of imports among the files of a folder, their short names."""
    inside = {name for name, module in modules.items() if module.folder == folder}
    known: dict[str, list[str]] = {}

    def chain(name: str, above: frozenset[str]) -> list[str]:
        if name not in known:
            below = [chain(i, above | {name}) for i in imports[name] & inside - above - {name}]
            known[name] = [name.rpartition(".")[2], *max(below, key=len, default=[])]
        return known[name]

    return max((chain(name, frozenset()) for name in sorted(inside)), key=len)


def _fields(record: str, modules: Mapping[str, Module]) -> int:
    for module in modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == record:
                return sum(isinstance(entry, ast.AnnAssign) for entry in node.body)
    return 0


def _participle(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    returns = ast.unparse(node.returns) if node.returns else ""
    name = node.name.lstrip("_")
    accessor = any(ast.unparse(each).endswith("property") for each in node.decorator_list)
    if returns == "bool" or accessor or "_" in name or name in NOT_PARTICIPLES:
        return False
    return PARTICIPLE.fullmatch(name) is not None


if __name__ == "__main__":
    sys.exit(main())
