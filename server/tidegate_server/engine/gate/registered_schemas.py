"""The schemas of topics in a registry, for catalogs of Kafka (``query/Registry.java``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.catalogs.base import CatalogError, TableColumn
from tidegate_server.core.errors import Code
from tidegate_server.engine.jvm.errors import to_server_error
from tidegate_server.engine.query.registry import registry


class RegisteredSchemas:
    """A registry of schemas; several threads may use it."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        """Ask the registry when a topic is mentioned."""
        self._registry: Any = registry(spark)
        self._url = url

    def fields(self, subject: str) -> Sequence[TableColumn] | None:
        """Return the fields of the newest schema; None if there is none of a record of Avro."""
        found = self._ask(lambda: self._registry.fields(self._url, subject))
        if found is None:
            return None
        return [
            TableColumn(
                name=str(name), type=str(kind), comment=None if comment is None else str(comment)
            )
            for name, kind, comment in found
        ]

    def decoded(self, part: str, subject: str, fields: str) -> str:
        """Return SQL for a struct of what a binary column has, by all schemas of a subject."""
        return str(self._ask(lambda: self._registry.decoded(part, self._url, subject, fields)))

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (PySparkException, Py4JError) as failed:
            problem = to_server_error(failed)
            if problem.code != Code.SCHEMA_REGISTRY.name:
                raise
            text = problem.message.rstrip(".")
            raise CatalogError(f"{text[0].lower()}{text[1:]}") from failed
