"""The formats in which materialized tables are stored."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName
from tidegate_server.engine.storage.base import SourceFormat, TableFormat, is_foreign
from tidegate_server.engine.storage.delta.format import DeltaFormat
from tidegate_server.engine.storage.iceberg.format import IcebergFormat


class TableFormats:
    """Chooses the format of a materialized table by its catalog."""

    def __init__(self, spark: SparkSession) -> None:
        self.own: TableFormat = DeltaFormat(spark)
        """The format of the session catalog."""
        self._foreign: TableFormat = IcebergFormat(spark, self.own.sources)

    @property
    def sources(self) -> SourceFormat:
        """The tables that queries may read."""
        return self.own.sources

    def of(self, name: TableName) -> TableFormat:
        """Return the format in which a table is stored."""
        return self._foreign if is_foreign(name) else self.own
