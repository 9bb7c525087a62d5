"""Registries of schemas, and the records that refer to them (``Registry.java``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.connectors.registry import PARAMETERS
from tidegate_server.engine.storage.jvm import compiled_instance, java_source

_PARAMETERS = frozenset(f"{part}{name}".lower() for part in ("key", "value") for name in PARAMETERS)


def registry(spark: SparkSession) -> Any:
    """Return the instance of the class."""
    return compiled_instance(spark, "tidegate.Registry", java_source(__package__, "Registry"))


def decoded_columns(
    spark: SparkSession, parameters: Mapping[str, str], *, asked: bool
) -> list[str]:
    """Return SQL for the columns that the parameters of read_kafka add to records.

    :param asked: whether the registries are asked for schemas. Otherwise the columns have their
        types, and NULL.
    :raises py4j.protocol.Py4JJavaError: if a registry cannot be used.
    """
    given = {key: text for key, text in parameters.items() if key.lower() in _PARAMETERS}
    return [str(each) for each in registry(spark).columns(given, asked)] if given else []
