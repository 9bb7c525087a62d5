"""Options of an engine, for tests that only care about some of them."""

from __future__ import annotations

from typing import Any

from tidegate_server.core.messages.requests import EngineOptions


def engine_options(**given: Any) -> EngineOptions:
    """Return options of a small local engine, apart from those that are given."""
    usual = {
        "socket": "",
        "data": "",
        "master": "local[2]",
        "driver_memory": "1g",
        "java_home": "",
        "direct_bytes": 1 << 20,
        "spool_quota": 1 << 20,
    }
    return EngineOptions(**{**usual, **given})
