"""Finds the types of catalogs that packages offer, and knows which are written in Python."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from tidegate_server.core.catalogs.base import PythonCatalogType
from tidegate_server.core.plugins import find_plugin

GROUP: Final = "tidegate.catalogs"
"""The entry-point group in which packages offer types of catalogs."""


def load_type(name: str) -> Any | None:
    """Return the type of this name; None if no package offers one.

    :raises ImportError, AttributeError: if it cannot be loaded; so may what its module raises.
    """
    found = find_plugin(name, GROUP) if ":" not in name else None
    return found() if isinstance(found, type) else found


def is_python_type(found: object) -> TypeGuard[PythonCatalogType]:
    """Say whether the catalogs of a type are written in Python."""
    return hasattr(found, "open") and hasattr(found, "options")
