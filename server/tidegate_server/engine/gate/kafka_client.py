"""Asks the brokers of Kafka for topics, with the client of Java that Spark's source has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegate_server.core.catalogs.base import CatalogError
from tidegate_server.core.catalogs.kafka import Topic

_SECONDS: Final = "10"
_TIMES: Final = {"default.api.timeout.ms": f"{_SECONDS}000", "request.timeout.ms": "5000"}
_UNKNOWN: Final = "UnknownTopicOrPartitionException"
_INVALID: Final = "InvalidTopicException"
_TIMEOUT: Final = "TimeoutException"
_NO_JAR: Final = (
    "Kafka's client is not loaded: set engine.kafka = true in the configuration, and restart the "
    "server"
)


class AdminClient:
    """Kafka's AdminClient; several threads may use it."""

    def __init__(self, spark: SparkSession, settings: Mapping[str, str]) -> None:
        """Connect to the brokers when they are first asked.

        :raises CatalogError: if the settings are invalid, or there is no client.
        """
        self._jvm: Any = spark._jvm
        self._servers = settings["bootstrap.servers"]
        clients = self._jvm.org.apache.kafka.clients.admin.AdminClient
        if isinstance(clients, JavaPackage):
            raise CatalogError(_NO_JAR)
        properties = self._jvm.java.util.Properties()
        for key, value in {**_TIMES, **settings}.items():
            properties.setProperty(key, value)
        try:
            self._client: Any = clients.create(properties)
        except Py4JJavaError as failed:
            raise self._error(failed) from failed

    def topics(self) -> Sequence[str]:
        """Return the names of all topics but Kafka's own."""
        try:
            return [str(name) for name in self._client.listTopics().names().get()]
        except Py4JJavaError as failed:
            raise self._error(failed) from failed

    def exists(self, topic: str) -> bool:
        """Say whether there is a topic."""
        return self._describe(topic) is not None

    def topic(self, name: str) -> Topic | None:
        """Return a topic; None if there is none."""
        described = self._describe(name)
        if described is None:
            return None
        numbers = [int(each.partition()) for each in described.partitions()]
        first, end = (self._offsets(name, numbers, which) for which in ("earliest", "latest"))
        offsets = {number: (first[number], end[number]) for number in numbers}
        return Topic(str(described.topicId().toString()), offsets)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _describe(self, topic: str) -> Any | None:
        names = self._jvm.java.util.ArrayList()
        names.add(topic)
        try:
            return self._client.describeTopics(names).topicNameValues().get(topic).get()
        except Py4JJavaError as failed:
            if _kind(failed) in (_UNKNOWN, _INVALID):
                return None
            raise self._error(failed) from failed

    def _offsets(self, topic: str, partitions: Sequence[int], which: str) -> dict[int, int]:
        kafka = self._jvm.org.apache.kafka
        wanted, places = self._jvm.java.util.HashMap(), {}
        for number in partitions:
            places[number] = kafka.common.TopicPartition(topic, number)
            wanted.put(places[number], getattr(kafka.clients.admin.OffsetSpec, which)())
        try:
            found = self._client.listOffsets(wanted).all().get()
        except Py4JJavaError as failed:
            raise self._error(failed) from failed
        return {number: int(found.get(place).offset()) for number, place in places.items()}

    def _error(self, failed: Py4JJavaError) -> CatalogError:
        if _kind(failed) == _TIMEOUT:
            return CatalogError(f"no broker at {self._servers} answered within {_SECONDS} s")
        cause = _cause(failed)
        return CatalogError(f"Kafka at {self._servers}: {str(cause.getMessage()).rstrip('.')}")


def _cause(failed: Py4JJavaError) -> Any:
    """Return what a future failed with, or the exception itself."""
    found: Any = failed.java_exception
    while found.getCause() is not None:
        found = found.getCause()
    return found


def _kind(failed: Py4JJavaError) -> str:
    return re.split(r"[.$]", str(_cause(failed).getClass().getName()))[-1]
