"""A fresh world for every test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.runs.fakes import Gate, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


@pytest.fixture
def gate(world: World) -> Gate:
    world.engine.work = gate = Gate()
    return gate
