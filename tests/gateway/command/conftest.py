"""A fresh world for every test."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import World
from tests.gateway.command.guarded import Guarded


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def guarded_world() -> Guarded:
    return Guarded()
