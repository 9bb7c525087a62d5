"""Paimon tables: the type ``paimon``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_server.core.catalogs.paimon.catalog_type import DEFAULT_DATABASE, OPTIONS, TYPE
from tidegate_server.gateway.catalog_types.base import CatalogOption, SparkCatalog

CLASS: Final = "org.apache.paimon.spark.SparkCatalog"


@dataclass(frozen=True, slots=True)
class PaimonType:
    """Paimon tables: by Paimon's jar for Spark if it is loaded, else by pypaimon."""

    name: str = TYPE
    description: str = "Paimon tables."
    install: str = (
        "Run pip install 'tidegate[paimon]', and restart the server. To run a script with Delta "
        "tables instead, write 'type' = 'tidegate'."
    )
    options: tuple[CatalogOption, ...] = OPTIONS

    def spark_catalog(self, options: Mapping[str, str]) -> SparkCatalog:
        """Return Paimon's catalog for Spark; without its jar, the engine uses pypaimon."""
        names = {"default-database": DEFAULT_DATABASE}
        spark = {names.get(key.lower(), key): value for key, value in options.items()}
        return SparkCatalog(class_name=CLASS, options=spark, python_type=TYPE)
