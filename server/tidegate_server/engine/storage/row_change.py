"""A change of a table's rows, counted in copies, and the rows that it leaves."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  Spark's own convention
from pyspark.sql import types as T  # noqa: N812

from tidegate_server.engine.storage.exact import WEIGHT, column_named, same

ROW_ID = "__id"
COPIES = "__copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """What a refresh changes, counted in copies of rows."""

    rows: DataFrame
    """Each different row once, fitted, with a number of its own, ``__id``, and how many copies more
    or, below 0, fewer there are to be, ``__weight``. It reads the same whenever it is read."""
    fields: tuple[T.StructField, ...]
    """The columns of the table."""
    within: Column
    """A condition over the table, aliased ``t``, that holds for all that goes and lets files be
    skipped."""
    removed: int
    added: int
    few: bool
    """Whether the different rows that go fit into the memory of every process."""
    unique: bool = False
    """Whether the table has no copies of the rows that go."""

    @property
    def removed_rows(self) -> DataFrame:
        """The rows of which copies go, as a join wants them."""
        rows = self.rows.where(F.col(WEIGHT) < 0)
        return F.broadcast(rows) if self.few else rows

    def apply_to(self, stored: DataFrame) -> DataFrame:
        """Return the rows stored as they are after the change."""
        return self.remaining_rows(stored).unionAll(self.inserted_rows())

    def inserted_rows(self) -> DataFrame:
        """Return the rows that come, each as often as it does."""
        return repeat_rows(self.rows.where(F.col(WEIGHT) > 0), self.fields, F.col(WEIGHT))

    def remaining_rows(self, stored: DataFrame) -> DataFrame:
        """Return those of the rows stored that stay: other rows, and further copies."""
        table, gone = stored.alias("t"), self.removed_rows.alias("s")
        equal = same("t", "s", self.fields)
        columns = [column_named(field.name, "t").alias(field.name) for field in self.fields]
        others = table.join(gone, equal, "left_anti").select(*columns)
        if self.unique:
            return others
        copy = F.row_number().over(Window.partitionBy(f"s.{ROW_ID}").orderBy(F.lit(1)))
        more = table.join(gone, equal).withColumn(COPIES, copy)
        more = more.where(F.col(COPIES) > -F.col(f"s.{WEIGHT}"))
        return others.unionAll(more.select(*columns))


def repeat_rows(rows: DataFrame, fields: tuple[T.StructField, ...], times: Column) -> DataFrame:
    """Return the columns of each row so many times."""
    columns = [column_named(field.name) for field in fields]
    return rows.withColumn(COPIES, F.explode(F.sequence(F.lit(1), times))).select(*columns)
