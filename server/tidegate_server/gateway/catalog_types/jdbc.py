"""Other databases over JDBC: the type ``jdbc`` of catalogs, and connections.

Flink's options: https://nightlies.apache.org/flink/flink-docs-master/docs/connectors/table/jdbc/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegate_server.gateway.catalog_types.base import (
    CatalogOption,
    OptionKind,
    SparkCatalog,
)

CLASS: Final = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
INSTALL: Final = (
    "Add the jar with its driver to engine.jars in the configuration, and restart the server."
)


@dataclass(frozen=True, slots=True)
class System:
    """A kind of database that Spark knows."""

    prefix: str
    """Of its URLs."""
    driver: str
    database: str = "/{}"
    """How the name of a database is added to a URL."""


SYSTEMS: Final[Mapping[str, System]] = {
    "postgresql": System("jdbc:postgresql:", "org.postgresql.Driver"),
    "mysql": System("jdbc:mysql:", "com.mysql.cj.jdbc.Driver"),
    "mariadb": System("jdbc:mariadb:", "org.mariadb.jdbc.Driver"),
    "sqlserver": System(
        "jdbc:sqlserver:", "com.microsoft.sqlserver.jdbc.SQLServerDriver", ";databaseName={}"
    ),
    "oracle": System("jdbc:oracle:", "oracle.jdbc.OracleDriver"),
    "jdbc": System("jdbc:", ""),
}
"""The types of connections; the last one is for any other database."""

_SPARKS: Final[Mapping[str, str]] = {
    "fetchsize": "Rows that one round trip to the database fetches.",
    "batchsize": "Rows that one round trip to the database inserts.",
    "querytimeout": "Seconds that a statement in the database may take.",
}
VERSION_QUERY: Final = "versionQuery"
_PLACEHOLDERS: Final = ("{table}", "{schema}", "{name}")
_PROPERTIES: Final = "properties."
_MYSQL_SCHEME: Final = "permitMysqlScheme"
"""The parameter with which MariaDB's driver accepts the URLs of MySQL."""


def system_of(url: str) -> System | None:
    """Return the database that a URL leads to; None if it is no URL of JDBC."""
    return next((each for each in SYSTEMS.values() if url.startswith(each.prefix)), None)


def for_spark(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of a connection with a URL from which Spark knows the database.

    Spark tells databases apart by their URLs alone. It knows MySQL's and not MariaDB's, and would
    put names in quotes that make texts of them.
    """
    found = dict(options)
    mariadb, mysql = SYSTEMS["mariadb"], SYSTEMS["mysql"]
    for key, url in options.items():
        if key.lower() != "url" or not url.startswith(mariadb.prefix):
            continue
        found[key] = mysql.prefix + url.removeprefix(mariadb.prefix)
        if _MYSQL_SCHEME not in url:
            found[key] += f"{'&' if '?' in url else '?'}{_MYSQL_SCHEME}"
        if "driver" not in {name.lower() for name in options}:
            found["driver"] = mariadb.driver
    return found


def check_version_query(query: str | None) -> None:
    """Raise ValueError, whose message is a clause, for an option that is no query and not none."""
    if query is None:
        return
    if not query.strip():
        raise ValueError(f"{VERSION_QUERY} is empty: write 'none' for no query")
    for found in re.findall(r"\{\w*\}", query):
        if found not in _PLACEHOLDERS:
            known = ", ".join(_PLACEHOLDERS)
            raise ValueError(f"{VERSION_QUERY} contains {found}; placeholders are {known}")


@dataclass(frozen=True, slots=True)
class JdbcType:
    """Another database."""

    name: str = "jdbc"
    description: str = "Tables of PostgreSQL, MySQL, MariaDB, SQL Server, Oracle and others."
    install: str = INSTALL
    options: tuple[CatalogOption, ...] = (
        CatalogOption(
            name="base-url",
            description="The URL of the server without a database, as in jdbc:postgresql://host:5432.",
            required=True,
        ),
        CatalogOption(
            name="default-database", description="The database to connect to.", required=True
        ),
        CatalogOption(name="username", description="The user of the database."),
        CatalogOption(name="password", description="The password of that user.", secret=True),
        CatalogOption(name="driver", description="The class of the driver."),
        *(
            CatalogOption(name=name, description=text, kind=OptionKind.INTEGER)
            for name, text in _SPARKS.items()
        ),
        CatalogOption(
            name=VERSION_QUERY,
            description="A query of the database whose rows change with those of {table}.",
        ),
        CatalogOption(
            name=f"{_PROPERTIES}*", description="Properties of the driver, after that prefix."
        ),
    )

    def spark_catalog(self, options: Mapping[str, str]) -> SparkCatalog:
        """Return Spark's catalog of JDBC tables; raises ValueError as described there."""
        given = {key.lower(): value for key, value in options.items()}
        check_version_query(given.get(VERSION_QUERY.lower()))
        base = given.pop("base-url").rstrip("/")
        system = system_of(base)
        if system is None:
            raise ValueError("its base-url does not begin with jdbc:")
        driver = given.pop("driver", system.driver)
        if not driver:
            raise ValueError("the option driver is missing, which this kind of database needs")
        spark = {
            "url": base + system.database.format(given.pop("default-database")),
            "driver": driver,
        }
        names = {"username": "user"}
        for key, value in options.items():
            folded = key.lower()
            if folded.startswith(_PROPERTIES):
                spark[key[len(_PROPERTIES) :]] = value
            elif folded in given:
                spark[names.get(folded, folded)] = value
        return SparkCatalog(class_name=CLASS, options=spark)
