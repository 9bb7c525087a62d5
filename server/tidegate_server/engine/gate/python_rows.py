"""Makes functions of catalogs written in Python ready for Spark's workers (``PythonRows.java``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812  Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.udf import _wrap_function

from tidegate_server.core.catalogs.rows import RowReader, RowWriter
from tidegate_server.engine.storage.jvm import compiled_instance, java, java_source

_NAME: Final = "tidegate.PythonRows"
_MESSAGE: Final = "message"
_MESSAGES: Final = T.StructType().add(_MESSAGE, T.BinaryType())
"""The only column of what Spark gets from a task that writes."""


@dataclass(frozen=True, slots=True)
class _Read:
    """Reads a part, with the types that Spark expects."""

    read: Callable[[bytes], Iterator[pa.RecordBatch]]
    schema: pa.Schema

    def __call__(self, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in parts:
            for part in given.column(0).to_pylist():
                for batch in self.read(part):
                    rows = pa.Table.from_batches([batch]).select(self.schema.names)
                    yield from rows.cast(self.schema).to_batches()


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes the rows of a task."""

    write: Callable[[Iterator[pa.RecordBatch]], bytes]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        message = pa.array([self.write(batches)], pa.binary())
        yield pa.RecordBatch.from_arrays([message], names=[_MESSAGE])


class SparkWorkers:
    """Pickles functions as Spark's own data sources in Python are pickled."""

    def __init__(self) -> None:
        self._serializer = CloudPickleSerializer()

    def reading(self, reader: RowReader, columns: str) -> bytes:
        """Return the function that reads parts."""
        kind = T._parse_datatype_json_string(columns)
        assert isinstance(kind, T.StructType), columns
        return self._pickled(_Read(reader.read, to_arrow_schema(kind)), kind)

    def writing(self, writer: RowWriter) -> bytes:
        """Return the function that writes rows."""
        return self._pickled(_Write(writer.write), _MESSAGES)

    def _pickled(self, function: object, kind: T.StructType) -> bytes:
        return bytes(self._serializer.dumps((function, kind)))


def python_rows(spark: SparkSession, *, uses: Any) -> Any:
    """Return what makes tables of rows that Python reads.

    :param uses: an instance that was compiled before.
    """
    return compiled_instance(spark, _NAME, java_source(__package__, "PythonRows"), uses=uses)


def connect_workers(spark: SparkSession, rows: Any) -> None:
    """Tell where workers of Python are started as Spark does for its own sources in Python."""
    package = java(spark).org.apache.spark.sql.execution.datasources.v2.python
    # Only the environment of the function counts; each scan has another command.
    nothing = _wrap_function(spark.sparkContext, SparkWorkers)
    rows.connect(package.UserDefinedPythonDataSource(nothing))
