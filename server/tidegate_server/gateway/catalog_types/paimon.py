"""Paimon tables: the type ``paimon``.

Options: https://paimon.apache.org/docs/master/maintenance/configurations/#catalogoptions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_server.gateway.catalog_types.base import (
    CatalogOption,
    OptionKind,
    SparkCatalog,
)

CLASS: Final = "org.apache.paimon.spark.SparkCatalog"


@dataclass(frozen=True, slots=True)
class PaimonType:
    """Paimon tables, read and written by the jar that Paimon offers for Spark."""

    name: str = "paimon"
    description: str = "Paimon tables."
    install: str = (
        "Add the jar paimon-spark for the server's version of Spark to engine.jars in the "
        "configuration, and restart the server. To run a script with Delta tables instead, write "
        "'type' = 'tidegate'."
    )
    options: tuple[CatalogOption, ...] = (
        CatalogOption(name="warehouse", description="The directory of the tables.", required=True),
        CatalogOption(
            name="metastore",
            description="Where Paimon keeps its tables.",
            values=("filesystem", "hive", "jdbc", "rest"),
        ),
        CatalogOption(name="uri", description="The URI of the metastore."),
        CatalogOption(name="default-database", description="The current schema after USE CATALOG."),
        CatalogOption(
            name="cache-enabled",
            description="Whether tables are remembered for a while.",
            kind=OptionKind.BOOLEAN,
        ),
        *(
            CatalogOption(name=f"{family}*", description=text)
            for family, text in (
                ("fs.", "File systems."),
                ("s3.", "Amazon S3."),
                ("jdbc.", "The database of the metastore."),
                ("token.", "The token of the REST catalog."),
                ("table-default.", "Properties of new tables."),
            )
        ),
    )

    def spark_catalog(self, options: Mapping[str, str]) -> SparkCatalog:
        """Return Paimon's catalog for Spark."""
        names = {"default-database": "defaultDatabase"}
        spark = {names.get(key.lower(), key): value for key, value in options.items()}
        return SparkCatalog(class_name=CLASS, options=spark)
