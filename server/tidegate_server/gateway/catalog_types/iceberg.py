"""Iceberg tables: the type ``iceberg``.

Options of Flink: https://iceberg.apache.org/docs/latest/flink-ddl/, and of Iceberg's catalogs:
https://iceberg.apache.org/docs/latest/configuration/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_server.core.model.external import ICEBERG_TYPE
from tidegate_server.gateway.catalog_types.base import (
    CatalogOption,
    OptionKind,
    SparkCatalog,
)

CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_KIND, _IMPLEMENTATION = "catalog-type", "catalog-impl"
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "hadoop": ("warehouse",),
    "rest": ("uri",),
    "jdbc": ("uri", "warehouse"),
    "hive": ("uri",),
    "glue": ("warehouse",),
    "nessie": ("uri", "warehouse"),
}
"""The options that the kinds of Iceberg's catalogs need."""
_RENAMED: Final[Mapping[str, str]] = {
    _KIND: "type",
    "default-database": "default-namespace",
}
_VERSION = "property-version"


@dataclass(frozen=True, slots=True)
class IcebergType:
    """Iceberg tables in a directory, behind a REST catalog, a database or a Hive Metastore."""

    name: str = ICEBERG_TYPE
    description: str = "Iceberg tables."
    install: str = "Set iceberg = true in [engine] of the configuration, and restart the server."
    options: tuple[CatalogOption, ...] = (
        CatalogOption(
            name=_KIND, description="Where Iceberg keeps its tables.", values=tuple(_NEEDS)
        ),
        CatalogOption(
            name=_IMPLEMENTATION, description="A class instead of catalog-type, on the class path."
        ),
        CatalogOption(name="warehouse", description="The directory, or name, of the warehouse."),
        CatalogOption(name="uri", description="The URI of the catalog's service."),
        CatalogOption(name="io-impl", description="The class that reads and writes files."),
        CatalogOption(name="default-database", description="The current schema after USE CATALOG."),
        CatalogOption(
            name=_VERSION, description="The version of Flink's properties.", values=("1",)
        ),
        CatalogOption(
            name="cache-enabled",
            description="Whether tables are remembered for a while.",
            kind=OptionKind.BOOLEAN,
        ),
        CatalogOption(
            name="clients",
            description="Connections to the Hive Metastore.",
            kind=OptionKind.INTEGER,
        ),
        CatalogOption(name="credential", description="Id and secret of OAuth2.", secret=True),
        CatalogOption(name="token", description="The token of OAuth2.", secret=True),
        CatalogOption(name="scope", description="The scope of OAuth2."),
        CatalogOption(name="oauth2-server-uri", description="Where tokens of OAuth2 come from."),
        CatalogOption(name="prefix", description="The prefix of the REST catalog's paths."),
        *(
            CatalogOption(name=f"{family}*", description=text)
            for family, text in (
                ("s3.", "Amazon S3."),
                ("client.", "Clients of AWS."),
                ("glue.", "AWS Glue."),
                ("gcs.", "Google Cloud Storage."),
                ("adls.", "Azure Data Lake Storage."),
                ("rest.", "The REST catalog."),
                ("header.", "Headers of requests to the REST catalog."),
                ("jdbc.", "The database of the catalog."),
                ("nessie.", "Nessie."),
                ("cache.", "The cache of tables."),
                ("io.", "Reading and writing of files."),
                ("table-default.", "Properties of new tables."),
                ("table-override.", "Properties of new tables that statements cannot change."),
            )
        ),
    )

    def spark_catalog(self, options: Mapping[str, str]) -> SparkCatalog:
        """Return Iceberg's catalog for Spark; raises ValueError as described there."""
        given = {key.lower(): value for key, value in options.items()}
        kind, implementation = given.get(_KIND), given.get(_IMPLEMENTATION)
        if (kind is None) == (implementation is None):
            kinds = ", ".join(_NEEDS)
            raise ValueError(f"it needs either {_KIND}, one of {kinds}, or {_IMPLEMENTATION}")
        missing = [key for key in _NEEDS.get((kind or "").lower(), ()) if key not in given]
        if missing:
            raise ValueError(f"the option {missing[0]} is missing, which {_KIND} = {kind} needs")
        spark = {
            _RENAMED.get(key.lower(), key): value.lower() if key.lower() == _KIND else value
            for key, value in options.items()
            if key.lower() != _VERSION
        }
        return SparkCatalog(class_name=CLASS, options=spark)
