"""A change of a table's rows, counted in copies, and the rows that result from it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.engine.storage.exact import WEIGHT, quote_column, same

ROW_ID = "__id"
COPIES = "__copies"

FEW_FILES = 8
SMALL_BYTES = 8 * 2**20
"""A table of at most so many files and bytes is rewritten as a whole: finding the files that have
removed rows would cost a job and a scan."""
_TASK_BYTES = 32 * 2**20
_TASK_ROWS = 250_000
"""Bytes of copied rows and number of added rows that one task writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """The rows a refresh adds and removes, counted in copies."""

    rows: DataFrame
    """Each distinct row once, fitted, with a unique number ``__id`` and ``__weight``, the number of
    copies to add or, below 0, to remove. Reading it again gives the same rows and numbers."""
    fields: tuple[T.StructField, ...]
    """The columns of the table."""
    within: Column
    """A condition over the table, aliased ``t``, that is true for all removed rows and lets Delta
    skip files."""
    removed: int
    added: int
    few: bool
    """Whether the distinct removed rows are few enough to be broadcast."""
    unique: bool = False
    """Whether the table has each removed row only once."""

    def writing_tasks(self, copied: int) -> int:
        """Return the number of tasks that write the rows which ``copied`` bytes of files hold."""
        return 1 + copied // _TASK_BYTES + self.added // _TASK_ROWS

    @property
    def removed_rows(self) -> DataFrame:
        """The rows with copies to remove, broadcast if they are few."""
        rows = self.rows.where(f"{WEIGHT} < 0")
        return F.broadcast(rows) if self.few else rows

    def apply_to(self, stored: DataFrame) -> DataFrame:
        """Return the table's rows after the change."""
        return self.remaining_rows(stored).unionAll(self.inserted_rows())

    def inserted_rows(self) -> DataFrame:
        """Return the added rows, each as often as it is added."""
        return repeat_rows(self.rows.where(f"{WEIGHT} > 0"), self.fields)

    def remaining_rows(self, stored: DataFrame) -> DataFrame:
        """Return the stored rows that stay: those that do not change, and remaining copies."""
        table, gone = stored.alias("t"), self.removed_rows.alias("s")
        equal = same("t", "s", self.fields)
        columns = [quote_column(field.name, "t") for field in self.fields]
        others = table.join(gone, equal, "left_anti").selectExpr(*columns)
        if self.unique:
            return others
        copy = F.expr(f"row_number() OVER (PARTITION BY s.{ROW_ID} ORDER BY 1)")
        more = table.join(gone, equal).withColumn(COPIES, copy)
        more = more.where(f"{COPIES} > -s.{WEIGHT}")
        return others.unionAll(more.selectExpr(*columns))


def repeat_rows(rows: DataFrame, fields: tuple[T.StructField, ...]) -> DataFrame:
    """Return each row as often as its weight says, with the columns of ``fields``."""
    columns = [quote_column(field.name) for field in fields]
    copies = F.expr(f"explode(sequence(1L, {WEIGHT}))")
    return rows.withColumn(COPIES, copies).selectExpr(*columns)
