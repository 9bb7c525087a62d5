"""The type ``paimon`` of catalogs, where Paimon's jar for Spark is not loaded.

Options: https://paimon.apache.org/docs/master/maintenance/configurations/#catalogoptions
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlparse

from tidegate_server.core.catalogs.base import CatalogError
from tidegate_server.core.catalogs.options import CatalogOption, OptionKind
from tidegate_server.core.catalogs.paimon.catalog import PaimonCatalog

TYPE: Final = "paimon"
DEFAULT_DATABASE: Final = "defaultDatabase"
"""The option ``default-database``, as Paimon's catalog for Spark has it."""
TABLE_DEFAULT: Final = "table-default."
_CACHE: Final = "cache-enabled"
_METASTORE: Final = "metastore"
_HIVE: Final = "hive"
_MISSING: Final = (
    "pypaimon is not installed: run pip install 'tidegate[paimon]', or add Paimon's jar for Spark "
    "to engine.jars, and restart the server"
)
OPTIONS: Final = (
    CatalogOption(name="warehouse", description="The directory of the tables.", required=True),
    CatalogOption(
        name=_METASTORE,
        description="Where Paimon keeps its tables.",
        values=("filesystem", _HIVE, "jdbc", "rest"),
    ),
    CatalogOption(name="uri", description="The URI of the metastore."),
    CatalogOption(name="default-database", description="The current schema after USE CATALOG."),
    CatalogOption(
        name=_CACHE,
        description="Whether the jar remembers tables for a while.",
        kind=OptionKind.BOOLEAN,
    ),
    *(
        CatalogOption(name=f"{family}*", description=text)
        for family, text in (
            ("fs.", "File systems."),
            ("s3.", "Amazon S3."),
            ("jdbc.", "The database of the metastore."),
            ("token.", "The token of the REST catalog."),
            (TABLE_DEFAULT, "Properties of new tables."),
        )
    ),
)


@dataclass(frozen=True, slots=True)
class PaimonPythonType:
    """Paimon tables, by pypaimon."""

    name: str = TYPE
    description: str = "Paimon tables."
    options: tuple[CatalogOption, ...] = OPTIONS

    def open(self, options: Mapping[str, str]) -> PaimonCatalog:
        """Return the catalog.

        :raises CatalogError: if pypaimon is not installed, or refuses the options.
        :raises ValueError: for options that only the jar has.
        """
        if options.get(_METASTORE, "").lower() == _HIVE:
            raise ValueError("only Paimon's jar for Spark, in engine.jars, has the metastore hive")
        if _CACHE in options:
            raise ValueError(f"only Paimon's jar for Spark, in engine.jars, has {_CACHE}")
        place = urlparse(options["warehouse"])
        if place.scheme in ("", "file") and not place.path.startswith("/"):
            raise ValueError(f"the warehouse {options['warehouse']} is no absolute path")
        try:
            from pypaimon import CatalogFactory  # not above: it is an extra, and takes a second
        except ImportError as missing:
            raise CatalogError(_MISSING) from missing
        given = {
            key: value.lower() if key == _METASTORE else value
            for key, value in options.items()
            if key != DEFAULT_DATABASE and not key.startswith(TABLE_DEFAULT)
        }
        defaults = {
            key.removeprefix(TABLE_DEFAULT): value
            for key, value in options.items()
            if key.startswith(TABLE_DEFAULT)
        }
        return PaimonCatalog(CatalogFactory.create(given), defaults)
