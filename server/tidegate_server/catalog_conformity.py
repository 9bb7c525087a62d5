"""Tries the rules for catalogs written in Python: ``python -m tidegate_server.catalog_conformity``.

It prints each rule with whether it holds, and exits with 1 if one is broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tidegate_server.core.catalogs.base import PythonCatalogType
from tidegate_server.core.catalogs.conformity import Outcome, Trial, check
from tidegate_server.core.catalogs.loading import is_python_type, load_type
from tidegate_server.core.plugins import find_plugin
from tidegate_server.gateway.catalog_types.options import find_problem, named_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all rules and print what holds; returns the exit code."""
    given = _parser().parse_args(arguments)
    kind = _load(given.type)
    options = dict(given.option)
    problem = find_problem(kind, options)
    if problem is not None:
        raise SystemExit(f"The options are invalid: {problem.reason}. {problem.hint}")
    broken = 0
    with tempfile.TemporaryDirectory() as scratch:
        trial = Trial(kind, named_options(options, kind.options), Path(scratch))
        for finding in check(trial):
            reason = f": {finding.reason}" if finding.reason else ""
            sys.stdout.write(f"{finding.outcome.value:<12} {finding.rule}{reason}\n")
            broken += finding.outcome is Outcome.BROKEN
    sys.stdout.write(f"{broken} rules are broken.\n" if broken else "No rule is broken.\n")
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidegate_server.catalog_conformity", description=__doc__
    )
    parser.add_argument("type", help="module:Class of the type, or the name of its entry point")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=_pair,
        metavar="KEY=VALUE",
        help="an option of the catalog; a schema is created in it, and dropped again",
    )
    return parser


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _load(name: str) -> PythonCatalogType:
    try:
        found = find_plugin(name, "") if ":" in name else load_type(name)
    except (ImportError, AttributeError) as problem:
        raise SystemExit(f"The type {name} cannot be loaded: {problem}") from problem
    found = found() if isinstance(found, type) else found
    if not is_python_type(found):
        raise SystemExit(f"{name} has no method open and no options: it is no PythonCatalogType.")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
