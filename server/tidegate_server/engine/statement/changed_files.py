"""Detects statements that change tables of files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import SparkSession

from tidegate_server.core.model.names import qualify
from tidegate_server.engine.query.resolution import current_place, is_temporary_view
from tidegate_server.engine.statement.targets import TableTarget, Target, is_path
from tidegate_server.engine.storage.entries import entry_of, provider_of

_DELTA = "delta"
_REFRESH = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*REFRESH\b", re.DOTALL | re.IGNORECASE)
_LONGEST_NAME = 3


def changes_files(spark: SparkSession, text: str, found: Sequence[Target]) -> bool:
    """Say whether a statement may change the files of a table without versions.

    REFRESH counts as well: it announces that something else changed files.

    :param found: what the statement changes.
    """
    return any(not _is_delta(spark, target) for target in found) or bool(_REFRESH.match(text))


def _is_delta(spark: SparkSession, target: Target) -> bool:
    """Say whether a target is certainly a Delta table, whose versions replace file listings."""
    if not isinstance(target, TableTarget):
        return False
    if is_path(target.name):
        return target.name[-2].lower() == _DELTA
    if len(target.name) > _LONGEST_NAME or is_temporary_view(spark, target.name):
        return False
    place = current_place(spark)
    entry = entry_of(spark, qualify(target.name, place.catalog, place.schema))
    return entry is not None and provider_of(entry) == _DELTA
