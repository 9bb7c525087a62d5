"""Asks a Hive Metastore, with the client that is among Spark's jars.

Its configuration is of its own: the metastore of the session catalog is not concerned.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegate_server.core.catalogs.base import CatalogError
from tidegate_server.core.catalogs.hive.catalog_type import Address
from tidegate_server.engine.storage.jvm import java

_SECONDS: Final = 10
_URIS: Final = "hive.metastore.uris"
_SETTINGS: Final[Mapping[str, str]] = {
    "hive.metastore.client.socket.timeout": f"{_SECONDS}s",
    "hive.metastore.connect.retries": "1",
    "hive.metastore.failure.retries": "1",
    "hive.metastore.client.connect.retry.delay": "0s",
}
_MISSING: Final = frozenset(
    {"NoSuchObjectException", "UnknownDBException", "UnknownTableException"}
)
_TRANSPORT: Final = "TTransportException"
_LOST: Final = frozenset({_TRANSPORT, "ConnectException", "SocketTimeoutException"})
_ALL: Final = -1
_CAUSES: Final = 8


class HiveMetastore:
    """A connection to a metastore, which is made again if it was lost; threads take turns."""

    def __init__(self, spark: SparkSession, address: Address) -> None:
        """Connect when the metastore is first asked.

        :raises CatalogError: if no metastore is named.
        """
        self._jvm: Any = java(spark)
        self._address = address
        self._lock = threading.Lock()
        self._connected: Any | None = None
        configuration = self._jvm.org.apache.hadoop.hive.conf.HiveConf()
        if address.site:
            configuration.addResource(self._jvm.java.io.File(address.site).toURI().toURL())
        for key, value in _SETTINGS.items():
            configuration.set(key, value)
        if address.uris:
            configuration.set(_URIS, address.uris)
        if not configuration.get(_URIS):
            raise CatalogError(f"{address.site} does not have {_URIS}")
        self._configuration = configuration
        self._protocol = self._jvm.org.apache.thrift.protocol.TSimpleJSONProtocol.Factory()

    def databases(self) -> Sequence[str]:
        """Return the names of all databases."""
        return [str(each) for each in self._ask(lambda client: client.getAllDatabases()) or ()]

    def tables(self, database: str) -> Sequence[str]:
        """Return the names of the tables and views of a database."""
        return [str(each) for each in self._ask(lambda client: client.getAllTables(database)) or ()]

    def table(self, database: str, name: str) -> Mapping[str, Any] | None:
        """Return a table; None if there is none."""
        found = self._ask(lambda client: client.getTable(database, name))
        return None if found is None else dict(self._json(found))

    def partitions(self, database: str, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the partitions of a table."""
        found = self._ask(lambda client: client.listPartitions(database, name, _ALL))
        if found is None:
            return ()
        # One structure with all of them: a call of the JVM for each would take longer than reading.
        listed = self._jvm.org.apache.hadoop.hive.metastore.api.PartitionListComposingSpec(found)
        return list(self._json(listed)["partitions"])

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def _ask(self, call: Callable[[Any], Any]) -> Any | None:
        """Return what the metastore answers; None if there is no such object."""
        with self._lock:
            try:
                return call(self._client())
            except Py4JJavaError as failed:
                if {_name(each) for each in _causes(failed)} & _MISSING:
                    return None
                self._disconnect()
                if not _is_lost(failed):
                    raise self._error(failed) from failed
            try:  # it may have been restarted
                return call(self._client())
            except Py4JJavaError as failed:
                self._disconnect()
                raise self._error(failed) from failed

    def _client(self) -> Any:
        if self._connected is None:
            package = self._jvm.org.apache.hadoop.hive.metastore
            self._connected = package.HiveMetaStoreClient(self._configuration)
        return self._connected

    def _disconnect(self) -> None:
        connected, self._connected = self._connected, None
        if connected is not None:
            try:
                connected.close()
            except Py4JJavaError:
                return  # the metastore is gone

    def _json(self, structure: Any) -> Any:
        serializer = self._jvm.org.apache.thrift.TSerializer(self._protocol)
        return json.loads(str(serializer.toString(structure)))

    def _error(self, failed: Py4JJavaError) -> CatalogError:
        causes = _causes(failed)
        if _is_lost(failed):
            return CatalogError(f"no metastore at {self._address.shown} answered")
        said = next((str(m) for each in causes if (m := each.getMessage())), _name(causes[0]))
        return CatalogError(f"the metastore at {self._address.shown} said: {said.rstrip('.')}")


def _causes(failed: Py4JJavaError) -> list[Any]:
    found: list[Any] = []
    one = failed.java_exception
    while one is not None and len(found) < _CAUSES:
        found.append(one)
        one = one.getCause()
    return found


def _is_lost(failed: Py4JJavaError) -> bool:
    """Say whether there is no connection; the client puts the reason into the text of another."""
    causes = _causes(failed)
    named = {_name(each) for each in causes} & _LOST
    return bool(named) or any(_TRANSPORT in str(each.getMessage()) for each in causes)


def _name(exception: Any) -> str:
    return str(exception.getClass().getSimpleName())
