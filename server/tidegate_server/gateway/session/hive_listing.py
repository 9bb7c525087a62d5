"""Spark's lists as Hive answers them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tidegate_server.core.model.result import Result
from tidegate_server.core.model.types import Column, Schema

_NAME = 1
"""Where Spark has the name: behind the schema's."""


class NamesOnly:
    """SHOW TABLES or SHOW VIEWS in one column, which is the first one to clients of Hive."""

    schema = Schema((Column(name="tab_name", type="string"),))
    has_result_set = True
    modified_rows: int | None = None

    def __init__(self, listed: Result) -> None:
        """Take Spark's answer, which this one closes."""
        self._listed = listed

    def batches(self, start_row: int) -> Iterator[pa.RecordBatch]:
        for batch in self._listed.batches(start_row):
            yield pa.RecordBatch.from_arrays([batch.column(_NAME)], names=["tab_name"])

    def close(self) -> None:
        self._listed.close()
