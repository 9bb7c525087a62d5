"""Spark's lists in the format of Hive."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidegate_server.core.model.result import Result
from tidegate_server.core.model.types import Column, Schema

_NAME = 1
"""Position of the name in Spark's rows: after the schema."""


class NamesOnly:
    """SHOW TABLES or SHOW VIEWS in one column: Hive clients read the first one."""

    schema = Schema((Column(name="tab_name", type="string"),))
    has_result_set = True
    modified_rows: int | None = None

    def __init__(self, spark_result: Result) -> None:
        """Take ownership of Spark's result."""
        self._spark_result = spark_result

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        for batch in self._spark_result.batches(start_row):
            yield pa.RecordBatch.from_arrays([batch.column(_NAME)], names=["tab_name"])

    def close(self) -> None:
        self._spark_result.close()
