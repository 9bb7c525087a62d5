"""A server over fakes for the tests of the protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.protocol.gateway import Gateway, running_gateway


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One server over fakes for the tests of a module."""
    with running_gateway() as running:
        yield running
