"""Addresses of this machine by which it is a stranger to itself."""

from __future__ import annotations

import socket

import pytest


def own_address() -> str:
    """Return an address of this machine that is not loopback; skips the test without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; only asks for a route
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address: str = probe.getsockname()[0]
        return address
