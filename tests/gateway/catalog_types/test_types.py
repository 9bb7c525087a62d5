"""The types of catalogs: their options, and which catalogs of Spark they become."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from tests.contract.examples import NOON
from tidegate_server.core import plugins
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.catalog_types import registry
from tidegate_server.gateway.catalog_types.base import CatalogOption, SparkCatalog
from tidegate_server.gateway.catalog_types.iceberg import IcebergType
from tidegate_server.gateway.catalog_types.jdbc import JdbcType, for_spark
from tidegate_server.gateway.catalog_types.options import find_problem
from tidegate_server.gateway.catalog_types.paimon import PaimonType
from tidegate_server.gateway.spark_catalogs import definition_of

JDBC = {"base-url": "jdbc:postgresql://db:5432/", "default-database": "crm"}
LAKE = {"catalog-type": "hadoop", "warehouse": "/lake"}
CATALOG = ExternalObject(
    kind=SecuredKind.CATALOG,
    id="c-1",
    name="crm",
    type="jdbc",
    options={**JDBC, "username": "ann", "password": "${secret:crm}"},
    owner="root",
    created_at=NOON,
)


def test_flinks_options_of_jdbc_become_sparks() -> None:
    options = {**JDBC, "username": "ann", "password": "${secret:crm}", "Fetchsize": "7"}
    found = JdbcType().spark_catalog({**options, "properties.sslMode": "require"})
    assert found.class_name.endswith("JDBCTableCatalog")
    assert found.options == {
        "url": "jdbc:postgresql://db:5432/crm",
        "driver": "org.postgresql.Driver",
        "user": "ann",
        "password": "${secret:crm}",
        "fetchsize": "7",
        "sslMode": "require",
    }


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT max(a) FROM {relation}", "placeholders are {table}"),
        (" ", "is empty: write 'none'"),
    ],
)
def test_a_version_query_is_complete(query: str, reason: str) -> None:
    assert JdbcType().spark_catalog({**JDBC, "VersionQuery": "none"}).options["versionquery"]
    with pytest.raises(ValueError, match=reason):
        JdbcType().spark_catalog({**JDBC, "versionQuery": query})


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("jdbc:mysql://db", "jdbc:mysql://db/crm"),
        ("jdbc:sqlserver://db:1433", "jdbc:sqlserver://db:1433;databaseName=crm"),
        ("jdbc:oracle:thin:@//db:1521", "jdbc:oracle:thin:@//db:1521/crm"),
    ],
)
def test_every_database_has_its_kind_of_url(base: str, url: str) -> None:
    options = {"base-url": base, "default-database": "crm"}
    assert JdbcType().spark_catalog(options).options["url"] == url


@pytest.mark.parametrize(
    ("url", "sparks"),
    [
        ("jdbc:mariadb://db/crm", "jdbc:mysql://db/crm?permitMysqlScheme"),
        ("jdbc:mariadb://db/?a=b", "jdbc:mysql://db/?a=b&permitMysqlScheme"),
        ("jdbc:mariadb://db/?permitMysqlScheme", "jdbc:mysql://db/?permitMysqlScheme"),
        ("jdbc:mysql://db/crm", "jdbc:mysql://db/crm"),
    ],
)
def test_spark_knows_mariadb_by_the_url_of_mysql(url: str, sparks: str) -> None:
    assert for_spark({"URL": url, "driver": "a.Driver"}) == {"URL": sparks, "driver": "a.Driver"}
    base = {"base-url": "jdbc:mariadb://db", "default-database": "crm"}
    assert definition_of(replace(CATALOG, options=base), {}).options == {
        "url": "jdbc:mysql://db/crm?permitMysqlScheme",
        "driver": "org.mariadb.jdbc.Driver",
    }
    assert for_spark({"url": "jdbc:mariadb://db"})["driver"] == "org.mariadb.jdbc.Driver"


def test_another_database_needs_its_driver() -> None:
    options = {"base-url": "jdbc:h2:mem", "default-database": "crm"}
    with pytest.raises(ValueError, match="driver"):
        JdbcType().spark_catalog(options)
    found = JdbcType().spark_catalog({**options, "driver": "org.h2.Driver"})
    assert found.options["driver"] == "org.h2.Driver"
    with pytest.raises(ValueError, match="begin with jdbc:"):
        JdbcType().spark_catalog({"base-url": "http://db", "default-database": "crm"})


def test_flinks_options_of_iceberg_become_icebergs() -> None:
    found = IcebergType().spark_catalog(
        {**LAKE, "property-version": "1", "default-database": "db", "s3.endpoint": "http://s3"}
    )
    assert found.class_name == "org.apache.iceberg.spark.SparkCatalog"
    assert found.options == {
        "type": "hadoop",
        "warehouse": "/lake",
        "default-namespace": "db",
        "s3.endpoint": "http://s3",
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"warehouse": "/lake"}, "either catalog-type"),
        ({**LAKE, "catalog-impl": "x.Y"}, "either catalog-type"),
        ({"catalog-type": "hadoop"}, "warehouse is missing"),
        ({"catalog-type": "rest"}, "uri is missing"),
        ({"catalog-type": "jdbc", "uri": "jdbc:x"}, "warehouse is missing"),
    ],
)
def test_each_kind_of_icebergs_catalogs_needs_its_options(
    options: dict[str, str], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        IcebergType().spark_catalog(options)


def test_paimon_has_its_own_name_of_the_database() -> None:
    found = PaimonType().spark_catalog({"warehouse": "/lake", "default-database": "db"})
    assert found.options == {"warehouse": "/lake", "defaultDatabase": "db"}


@pytest.mark.parametrize(
    ("options", "key", "reason", "hint"),
    [
        ({"base-ulr": "x"}, "base-ulr", "has no option base-ulr", "Did you mean base-url?"),
        ({"base-url": JDBC["base-url"]}, "", "default-database is missing", "connect to"),
        ({**JDBC, "fetchsize": "many"}, "fetchsize", "whole number", "round trip"),
        ({**JDBC, "password": "x ${secret:a}"}, "password", "besides other text", "whole value"),
        ({**JDBC, "base-url": "jdbc:x://ann:hush@db"}, "base-url", "contains a secret", "secret:"),
        ({**JDBC, "username": " "}, "username", "must be text", "user"),
    ],
)
def test_what_is_wrong_with_options_is_said(
    options: dict[str, str], key: str, reason: str, hint: str
) -> None:
    problem = find_problem(JdbcType(), options)
    assert problem is not None
    assert (problem.key, reason in problem.reason, hint in problem.hint) == (key, True, True)
    assert "hush" not in repr(problem)


def test_values_and_families_are_checked() -> None:
    iceberg = IcebergType()
    assert find_problem(iceberg, {**LAKE, "s3.endpoint": "x", "CACHE-enabled": "TRUE"}) is None
    problem = find_problem(iceberg, {"catalog-type": "hadop"})
    assert problem is not None and problem.hint == "Did you mean hadoop?"
    problem = find_problem(iceberg, {**LAKE, "s3.secret-access-key": "hush"})
    assert problem is not None and "contains a secret" in problem.reason
    problem = find_problem(iceberg, {**LAKE, "cache-enabled": "yes"})
    assert problem is not None and "true or false" in problem.reason


def test_types_of_flink_without_a_meaning_here_are_refused_with_the_reason() -> None:
    hints = {}
    for name in ("generic_in_memory", "jdcb"):
        with pytest.raises(ServerError) as caught:
            registry.require_type(name, (2, 7))
        hints[name] = caught.value.hint
        assert (caught.value.code, caught.value.line) == ("CATALOG_TYPE", 2)
    assert "TEMPORARY VIEW" in hints["generic_in_memory"]
    assert hints["jdcb"] == "Did you mean jdbc?"


class Lake:
    """A type of another package."""

    name = "lake"
    description = "A lake."
    install = "Add lake.jar to engine.jars."
    options = (CatalogOption(name="shore", description="Where it is.", required=True),)

    def spark_catalog(self, options: dict[str, str]) -> SparkCatalog:
        return SparkCatalog(class_name="lake.Catalog", options=options)


def test_packages_offer_further_types(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(group: str, name: str = "") -> list[EntryPoint]:
        found = [
            EntryPoint("lake", f"{__name__}:Lake", registry.GROUP),
            EntryPoint("broken", "no_such_module:Lake", registry.GROUP),
            EntryPoint("other", f"{__name__}:CATALOG", registry.GROUP),
        ]
        return [each for each in found if name in ("", each.name)]

    monkeypatch.setattr(plugins, "entry_points", offered)
    registry.find_type.cache_clear()
    try:
        found = registry.require_type("LAKE")
        assert found.spark_catalog({"shore": "x"}).class_name == "lake.Catalog"
        for name, reason in (("broken", "cannot be loaded"), ("other", "does not implement")):
            with pytest.raises(ServerError, match=reason):
                registry.require_type(name)
    finally:
        registry.find_type.cache_clear()


class Folder:
    """A type of another package whose catalogs are written in Python."""

    name = "folder"
    description = "A folder."
    options = (
        CatalogOption(name="path", description="Where it is.", required=True),
        CatalogOption(name="api-token", description="For whom."),
        CatalogOption(name="extra.*", description="More."),
    )

    def open(self, options: dict[str, str]) -> object:
        raise AssertionError("only the engine opens a catalog")


def test_catalogs_written_in_python_are_opened_by_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offered = EntryPoint("folder", f"{__name__}:Folder", registry.GROUP)
    monkeypatch.setattr(
        plugins, "entry_points", lambda group, name="": [offered] if name == "folder" else []
    )
    registry.find_type.cache_clear()
    try:
        options = {"PATH": "/x", "api-token": "${secret:crm}", "extra.Key": "v"}
        found = definition_of(replace(CATALOG, type="Folder", options=options), {"crm": "hush"})
    finally:
        registry.find_type.cache_clear()
    assert (found.class_name, found.python_type) == ("", "folder")
    assert found.options == {"path": "/x", "api-token": "hush", "extra.Key": "v"}
    assert found.secret == ("api-token",)
    assert "hush" not in repr(found)


def test_secrets_are_put_in_at_the_last_moment() -> None:
    found = definition_of(CATALOG, {"crm": "hush"})
    assert found.options["password"] == "hush"
    assert found.secret == ("password",)
    assert "hush" not in repr(found)
    with pytest.raises(ServerError, match="there is no secret crm"):
        definition_of(CATALOG, {})


def test_literal_passwords_in_files_of_others_are_secrets_too() -> None:
    literal = replace(CATALOG, options={**JDBC, "password": "hush"})
    assert definition_of(literal, {}).secret == ("password",)


def test_a_connection_is_the_same_catalog() -> None:
    connection = ExternalObject(
        kind=SecuredKind.CONNECTION,
        id="x",
        name="crm",
        type="postgresql",
        options={"url": "jdbc:postgresql://db/crm", "driver": "org.postgresql.Driver"},
        secrets={"password": "crm"},
        owner="root",
        created_at=NOON,
    )
    catalog = definition_of(CATALOG, {"crm": "hush"})
    found = definition_of(connection, {"crm": "hush"})
    assert found.class_name == catalog.class_name
    assert found.options == {**connection.options, "password": "hush"}
