"""What CREATE TABLE ... WITH ('connector' = ...) says, and the view that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate_server.core.model.clauses import Watermark
from tidegate_server.core.model.names import quote_identifier


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorColumn:
    """A column that the connector fills, or a computed one, which may use those."""

    name: str
    type: str = ""
    """Spark's type; empty for a computed column."""
    expression: str = ""
    metadata: str | None = None
    """The key of what the source says of a row; None for a column of the row itself."""
    virtual: bool = False
    """Whether it is only read."""
    nullable: bool = True
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorTable:
    """What the statement says of the rows."""

    columns: tuple[ConnectorColumn, ...]
    options: Mapping[str, str]
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    watermark: Watermark | None = None

    @property
    def fields(self) -> tuple[ConnectorColumn, ...]:
        """The columns that are in the rows of the source."""
        return tuple(each for each in self.columns if each.type and each.metadata is None)

    def find(self, name: str) -> ConnectorColumn | None:
        """Return the column of that name, ignoring case as Spark does."""
        wanted = name.lower()
        return next((each for each in self.columns if each.name.lower() == wanted), None)


@dataclass(frozen=True, slots=True)
class ConnectorView:
    """The view that a table of a connector is."""

    query: str
    properties: Mapping[str, str]


def select(table: ConnectorTable, values: Mapping[str, str], relation: str) -> str:
    """Return the query of a table over a relation.

    :param values: SQL for each column but the computed ones, which may use them.
    """
    inner = ", ".join(f"{value} AS {quote_identifier(name)}" for name, value in values.items())
    if all(each.type for each in table.columns):
        return f"SELECT {inner} FROM {relation}"
    return f"SELECT {listed(table)} FROM (SELECT {inner} FROM {relation})"


def listed(table: ConnectorTable) -> str:
    """Return the columns of a table as SQL, over those that the connector fills."""
    return ", ".join(
        quote_identifier(each.name)
        if each.type
        else f"{each.expression} AS {quote_identifier(each.name)}"
        for each in table.columns
    )
