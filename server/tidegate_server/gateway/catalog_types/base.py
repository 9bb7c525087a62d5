"""The interface of types of catalogs that Spark loads from a jar.

Packages offer further ones as entry points. ``core/catalogs/base.py`` has the interface of those
whose catalogs are written in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tidegate_server.core.catalogs.options import CatalogOption, OptionKind

__all__ = ["CatalogOption", "CatalogType", "OptionKind", "SparkCatalog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCatalog:
    """A catalog as Spark loads it: a class that implements CatalogPlugin, with its options."""

    class_name: str
    options: Mapping[str, str]
    python_type: str = ""
    """A type of catalogs written in Python, with the same options, if there is no such class."""


class CatalogType(Protocol):
    """A type of catalogs; third-party ones are entry points of the group ``tidegate.catalogs``.

    The entry point leads to an instance, or to a class without parameters.
    """

    @property
    def name(self) -> str:
        """What users write as the option ``type``, in lower case."""
        ...

    @property
    def description(self) -> str:
        """One sentence on what such a catalog contains."""
        ...

    @property
    def options(self) -> tuple[CatalogOption, ...]:
        """All options besides ``type``; others are rejected."""
        ...

    @property
    def install(self) -> str:
        """What an administrator does if the class of the catalog is not on the class path."""
        ...

    def spark_catalog(self, options: Mapping[str, str]) -> SparkCatalog:
        """Return what Spark loads.

        :param options: as they were written, without ``type``; each is one of :attr:`options` and
            has been checked. Secrets may still be references: values must be passed on as a whole,
            or be placed within a longer text.
        :raises ValueError: with the reason, if they do not fit together.
        """
        ...
