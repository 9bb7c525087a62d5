"""Finds the tables and schemas of the metastore whose directories a statement reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import PlacesFound
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.names import DEFAULT_CATALOG
from tidegate_server.engine.gate.gate import places
from tidegate_server.engine.metastore.bulk import Listing
from tidegate_server.engine.metastore.direct import StoredTables
from tidegate_server.engine.storage.jvm import items

_REACHING = (ObjectKind.PATH, ObjectKind.DIRECTORY)


class Directories:
    """The directories of all tables and schemas; read each time."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark._jsparkSession
        self._spark = spark
        self._catalog: Any = session.sharedState().externalCatalog()
        self._listing = Listing(spark)
        self._stored = StoredTables(session, self._listing)

    def reached(self, accesses: Iterable[Access]) -> tuple[Access, ...]:
        """Return the accesses to tables and schemas that those to paths amount to.

        To read a path is to read the tables whose directories overlap it, to write there is to
        replace them. An external table in a directory of its own owner's reaches nothing else.
        """
        reaching = [access for access in accesses if access.kind in _REACHING]
        if not reaching:
            return ()
        return tuple(dict.fromkeys(self._reached(reaching)))

    def places(self, paths: Iterable[str]) -> PlacesFound:
        """Return where the file system says that paths are, and the warehouse.

        :raises ServerError: PLACE_UNKNOWN if no file system has a path's scheme.
        """
        found, hadoop = [], self._spark.sparkContext._jsc.hadoopConfiguration()
        for path in paths:
            try:
                found.append(str(places(self._spark).locate(hadoop, path)))
            except Py4JJavaError as failed:
                reason = str(failed.java_exception.getMessage()).splitlines()[0]
                raise error(Code.PLACE_UNKNOWN, path=path, reason=reason) from failed
        warehouse = self._spark.conf.get("spark.sql.warehouse.dir")
        return PlacesFound(
            places=tuple(found), warehouse=str(places(self._spark).locate(hadoop, warehouse))
        )

    def _reached(self, reaching: list[Access]) -> Iterator[Access]:
        hadoop = self._spark.sparkContext._jsc.hadoopConfiguration()
        wanted = self._listing.java_list([access.name for access in reaching])
        for at, schema, name, owner in places(self._spark).overlapping(
            hadoop, self._rows(), wanted
        ):
            access = reaching[int(at)]
            if access.kind is ObjectKind.PATH or owner != access.owner:
                yield _reach(access, str(schema), str(name), str(owner or ""))

    def _rows(self) -> Any:
        rows = self._stored.directories()
        if rows is None:
            rows = self._listing.java_list([])
            for schema in items(self._catalog.listDatabases()):
                rows.addAll(self._listing.directories_in(self._catalog, schema))
        return rows


def _reach(access: Access, schema: str, name: str, owner: str) -> Access:
    act = Act.SELECT if access.act is Act.READ else Act.OWN
    kind = ObjectKind.TABLE if name else ObjectKind.SCHEMA
    return Access(
        act=act,
        kind=kind,
        catalog=DEFAULT_CATALOG,
        schema=schema.lower() if name else "",
        name=(name or schema).lower(),
        owner=owner,
        via=access.via,
    )
