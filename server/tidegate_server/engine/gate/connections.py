"""Gives all sessions the connections as catalogs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.requests import ConnectionOptions
from tidegate_server.core.sql.redact import without
from tidegate_server.engine.gate.gate import connections
from tidegate_server.engine.storage.jvm import java

logger = logging.getLogger(__name__)

_DRIVER = "Add the jar with its driver to engine.jars in the configuration, and restart the server."


def put_connections(spark: SparkSession, given: Iterable[ConnectionOptions]) -> None:
    """Replace all connections; those that cannot be used are logged and left out."""
    catalogs = java(spark).java.util.HashMap()
    for each in given:
        try:
            catalogs.put(each.name, build_catalog(spark, each))
        except ServerError as problem:
            logger.warning("%s", problem)
    connections(spark).replace(catalogs)


def build_catalog(spark: SparkSession, connection: ConnectionOptions) -> Any:
    """Return the catalog of a connection.

    :raises ServerError: INVALID_CONNECTION if Spark rejects the options or has no such driver.
    """
    options = java(spark).java.util.HashMap()
    for key, value in connection.options.items():
        options.put(key, value)
    try:
        return connections(spark).build(connection.name, options)
    except Py4JJavaError as failed:
        cause = failed.java_exception
        text = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}".splitlines()[0]
        secrets = [connection.options[key] for key in connection.secret]
        reason = without(secrets, text).rstrip(".")
        hint = _DRIVER if "ClassNotFound" in text else "Check the options of the connection."
        raise error(
            Code.INVALID_CONNECTION, name=connection.name, reason=reason, hint=hint
        ) from None
