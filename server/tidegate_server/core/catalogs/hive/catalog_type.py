"""The type ``hive`` of catalogs.

Options of Flink: https://nightlies.apache.org/flink/flink-docs-master/docs/connectors/table/hive/hive_catalog/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tidegate_server.core.catalogs.base import CatalogError
from tidegate_server.core.catalogs.hive.catalog import HiveCatalog, Metastore
from tidegate_server.core.catalogs.options import CatalogOption

TYPE: Final = "hive"
SITE: Final = "hive-site.xml"
_URI, _CONFIGURATION = "uri", "hive-conf-dir"
_HADOOP, _VERSION = "hadoop-conf-dir", "hive-version"
_REFUSED: Final[Mapping[str, str]] = {
    _HADOOP: "settings of file systems are those of the engine: write them as spark.hadoop.* into "
    "[engine.settings] of the configuration",
    _VERSION: "Spark's own client of version 2.3 asks the metastore, whatever its version is",
}
"""Options of Flink that cannot have their effect, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """How a metastore is reached."""

    uris: str = ""
    """Of its servers, with commas between them; empty if only the file names them."""
    site: str = ""
    """The absolute path of a ``hive-site.xml``; empty if there is none."""

    @property
    def shown(self) -> str:
        """What errors call it."""
        return self.uris or self.site


Connect = Callable[[Address], Metastore]
"""Returns a client of a metastore; raises CatalogError."""


def no_metastore(address: Address) -> Metastore:
    """Refuse to connect, where nothing is read."""
    raise CatalogError("only an engine opens catalogs of the type hive")


@dataclass(frozen=True, slots=True)
class HiveType:
    """Tables of a Hive Metastore, which are only read."""

    connect: Connect = no_metastore
    name: str = TYPE
    description: str = "Tables of a Hive Metastore."
    options: tuple[CatalogOption, ...] = (
        CatalogOption(
            name=_URI,
            description="The metastore's servers, as in thrift://host:9083,thrift://b:9083.",
        ),
        CatalogOption(
            name=_CONFIGURATION,
            description=f"The directory, on the machine of the engine, of a {SITE}.",
        ),
        CatalogOption(name="default-database", description="The current schema after USE CATALOG."),
        CatalogOption(name=_HADOOP, description="Rejected: see engine.settings."),
        CatalogOption(name=_VERSION, description="Rejected: the client is that of Spark."),
    )

    def open(self, options: Mapping[str, str]) -> HiveCatalog:
        """Return the catalog; its metastore answers, or CatalogError is raised.

        :raises ValueError: for options that lead to no metastore.
        """
        catalog = HiveCatalog(self.connect(address_of(options)))
        catalog.schemas()
        return catalog


def address_of(options: Mapping[str, str]) -> Address:
    """Return where options say that the metastore is; raises ValueError."""
    for key, reason in _REFUSED.items():
        if key in options:
            raise ValueError(f"{key} cannot be set: {reason}")
    uris, directory = options.get(_URI, ""), options.get(_CONFIGURATION, "")
    if not uris and not directory:
        raise ValueError(f"it needs {_URI} or {_CONFIGURATION}")
    servers = [each.strip() for each in uris.split(",") if each.strip()]
    for each in servers:
        if not _is_server(each):
            raise ValueError(f"the {_URI} {each} is not of the form thrift://host:port")
    uris = ",".join(servers)
    if not directory:
        return Address(uris=uris)
    site = Path(directory.removeprefix("file://")) / SITE
    if not site.is_absolute():
        raise ValueError(f"the {_CONFIGURATION} {directory} is no absolute path")
    if not site.is_file():
        raise ValueError(f"there is no file {site}")
    return Address(uris=uris, site=str(site))


def _is_server(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
        return parts.scheme == "thrift" and bool(parts.hostname) and parts.port is not None
    except ValueError:  # the port is no number
        return False
