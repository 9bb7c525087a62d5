"""Finds third-party plug-ins, by entry point or by ``module:Class``."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any


def find_plugin(name: str, group: str) -> Any:
    """Load the object ``name``; None if no package offers it in the entry points ``group``.

    :raises ImportError, AttributeError: if it cannot be loaded.
    """
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(import_module(module), attribute)
    offered = entry_points(group=group, name=name)
    return next(iter(offered)).load() if offered else None
