"""A server over fakes, and a client of it, for the tests of the protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.protocol.gateway import Gateway, running_gateway
from tests.gateway.protocol.peer import Peer, open_peer


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """One server over fakes for the tests of a module."""
    with running_gateway() as running:
        yield running


@pytest.fixture
def peer(gateway: Gateway) -> Iterator[Peer]:
    with open_peer(gateway) as peer:
        yield peer
