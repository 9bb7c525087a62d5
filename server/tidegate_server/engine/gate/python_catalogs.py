"""Lets Spark call catalogs that are written in Python (``PythonCatalogs.java``)."""

from __future__ import annotations

from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from tidegate_server.core.catalogs.base import PythonCatalogType
from tidegate_server.core.catalogs.calls import CatalogCalls
from tidegate_server.core.catalogs.hive.catalog_type import HiveType
from tidegate_server.core.catalogs.kafka import KafkaType
from tidegate_server.core.catalogs.loading import is_python_type, load_type
from tidegate_server.core.catalogs.paimon.catalog_type import PaimonPythonType
from tidegate_server.engine.gate import tables
from tidegate_server.engine.gate.hive_client import HiveMetastore
from tidegate_server.engine.gate.kafka_client import AdminClient
from tidegate_server.engine.gate.python_rows import SparkWorkers, connect_workers, python_rows
from tidegate_server.engine.gate.registered_schemas import RegisteredSchemas
from tidegate_server.engine.storage.jvm import (
    compiled_instance,
    java,
    java_source,
    known_instance,
)

_NAME: Final = "tidegate.PythonCatalogs"
_FILES: Final = "tidegate.CatalogFiles"
_SOURCES: Final = frozenset({tables.Need.FREE, tables.Need.CONNECTIONS})
"""The data sources that tables may have: those of files, and other systems, which the right on the
catalog covers."""
_PAIMON: Final = PaimonPythonType()
_HIVE: Final = "org.apache.spark.sql.hive."
"""Begins the classes of formats that need a SerDe."""


class _Callback:
    """A Java function of texts."""

    def __init__(self, calls: CatalogCalls) -> None:
        self._calls = calls

    def apply(self, request: str) -> str:
        """Return the answer to a request of a catalog."""
        return self._calls.answer(request)

    class Java:
        """What py4j reads."""

        implements = ("java.util.function.Function",)


def python_catalogs(spark: SparkSession, *, uses: Any) -> Any:
    """Return what opens catalogs written in Python; at first, connect it with this process.

    :param uses: an instance that was compiled before.
    """
    rows = python_rows(spark, uses=uses)
    files = compiled_instance(spark, _FILES, java_source(__package__, "CatalogFiles"), uses=rows)
    return compiled_instance(spark, _NAME, java_source(__package__, "PythonCatalogs"), uses=files)


def connect_python(spark: SparkSession, catalogs: Any) -> None:
    """Have the catalogs written in Python answered by this process."""
    gateway: Any = spark.sparkContext._gateway
    server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
    sources = java(spark).java.util.ArrayList()
    for name, need in tables.source_needs().items():
        if need in _SOURCES and not name.startswith(_HIVE):
            sources.add(name)
    formats, known = java(spark).java.util.ArrayList(), tables.hive_formats()
    for name in known.serdes | known.input_formats | known.output_formats:
        formats.add(name)
    kafka = KafkaType(
        lambda settings: AdminClient(spark, settings), lambda url: RegisteredSchemas(spark, url)
    )
    hive = HiveType(lambda address: HiveMetastore(spark, address))
    built_in: dict[str, PythonCatalogType] = {each.name: each for each in (kafka, hive, _PAIMON)}
    calls = CatalogCalls(lambda name: built_in.get(name) or _find_type(name), SparkWorkers())
    rows = python_rows(spark, uses=catalogs)
    connect_workers(spark, rows)
    files: Any = known_instance(_FILES)
    catalogs.connect(_Callback(calls), server, sources, formats, rows, files)
    session: Any = spark._jsparkSession
    session.extensions().injectResolutionRule(files.rules())
    session.extensions().injectPlannerStrategy(files.strategies())


def _find_type(name: str) -> PythonCatalogType:
    found = load_type(name)
    if not is_python_type(found):
        raise LookupError(f"no package of the engine's Python offers the type {name}")
    return found
