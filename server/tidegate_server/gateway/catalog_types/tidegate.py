"""Aliases of the catalog of Tidegate's own tables: the type ``tidegate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate_server.core.model.external import ALIAS_TYPE
from tidegate_server.core.model.names import DEFAULT_CATALOG
from tidegate_server.gateway.catalog_types.base import CatalogOption, SparkCatalog


@dataclass(frozen=True, slots=True)
class TidegateType:
    """The schemas and tables of ``spark_catalog``, by another name."""

    name: str = ALIAS_TYPE
    description: str = f"An alias of {DEFAULT_CATALOG}, which has Tidegate's own tables."
    install: str = ""
    options: tuple[CatalogOption, ...] = ()

    def spark_catalog(self, options: Mapping[str, str]) -> SparkCatalog:
        """Return the name of Spark's own catalog, which the engine has already."""
        return SparkCatalog(class_name=DEFAULT_CATALOG, options=options)
