"""Hides from DESCRIBE HISTORY the rows and totals that refreshes record for the next one."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention

from tidegate_server.engine.storage.commit_metadata import STATE_PATTERN
from tidegate_server.engine.storage.jvm import is_command

_METADATA: Final = "userMetadata"


def without_state(frame: DataFrame) -> DataFrame:
    """Return the result of DESCRIBE HISTORY without the values of a table's rows.

    DESCRIBE is enough to run it; SELECT is needed to see rows. The result of any other statement is
    returned unchanged.
    """
    if _METADATA not in frame.columns or not is_command(frame):
        return frame
    return frame.withColumn(_METADATA, F.regexp_replace(_METADATA, STATE_PATTERN, "$1"))
