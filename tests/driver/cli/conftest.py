"""A fake server for the tests of the command line."""

from __future__ import annotations

import pytest

from tests.driver.cli.fakes import FakeServer


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()
