"""The fixture families, the order in which tests run, the number of generated examples."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

from tests.support.full_run import FULL

pytest_plugins = (
    "tests.support.conformity",
    "tests.support.fixtures.server",
    "tests.support.fixtures.faults",
    "tests.support.fixtures.jdbc",
    "tests.support.fixtures.spark",
    "tests.support.fixtures.kafka",
    "tests.support.fixtures.registry",
)

# Bounded by their number and not by the clock; ``bin/test --full`` generates many more. On a build
# machine a change is judged by the same examples each time; new ones are for everybody's own runs.
_SAME = bool(os.environ.get("CI"))
settings.register_profile("quick", deadline=None, max_examples=50, derandomize=_SAME)
settings.register_profile("full", deadline=None, max_examples=5000)
settings.load_profile("full" if FULL else "quick")

_LAST = ("spark", "jdbc", "faults", "package")
"""Markers of slow tests, the slowest last."""

_SAMPLED = 10
"""One of so many thorough tests runs with ``--sampled``, unless the marker has another number."""
_ENGINES = frozenset({"start_engine", "spark_root"})
"""Fixtures that start Spark without a gateway."""
_TESTS = Path(__file__).parent
_SLOW = frozenset({"e2e", "engine", "gateway", "package", "security", "test_docs.py"})
"""Where slow tests are."""
_SERVERS = _SLOW - {"engine", "gateway"}
"""Where tests are that share a server."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs an engine or a shared server, by which ``bin/test`` divides the tests.

    :raises pytest.UsageError: if ``bin/test`` would look for a test in another folder.
    """
    fixtures = getattr(item, "fixturenames", ())
    folders = _SLOW if _weight(item) else None
    if _ENGINES.intersection(fixtures):
        item.add_marker("engine")
        folders = frozenset({"engine"})
    elif "guarded_server" in fixtures:
        item.add_marker("guarded")
        folders = _SERVERS
    elif "server" in fixtures and _weight(item):
        item.add_marker("shared")
        folders = _SERVERS
    if folders is not None and item.path.relative_to(_TESTS).parts[0] not in folders:
        raise pytest.UsageError(f"{item.nodeid} belongs to one of {', '.join(sorted(folders))}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which ``bin/test`` leaves tests out."""
    parser.addoption(
        "--sampled", action="store_true", help="run a sample of the tests marked thorough"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run quick tests first, whatever order the others are shuffled into."""
    if config.getoption("--sampled"):
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_weight)


def _left_out(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the thorough tests that are no part of the sample.

    A test is in it by its name alone, whatever tests are added or removed.
    """
    return [
        item
        for item in items
        if (thorough := item.get_closest_marker("thorough"))
        and crc32(item.nodeid.encode()) % (thorough.args[0] if thorough.args else _SAMPLED)
    ]


def _weight(item: pytest.Item) -> int:
    return max(
        (place for place, name in enumerate(_LAST, 1) if item.get_closest_marker(name)), default=0
    )
