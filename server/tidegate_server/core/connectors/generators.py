"""The generating connectors, datagen and faker, as SQL expressions over numbered rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate_server.core.connectors import datagen, faker, options
from tidegate_server.core.connectors.columns import (
    ConnectorColumn,
    ConnectorTable,
    ConnectorView,
    select,
)
from tidegate_server.core.connectors.options import OptionError, Options
from tidegate_server.core.model.names import quote_literal
from tidegate_server.core.model.types import ColumnType, TypeKind, parse_type

CONNECTORS = ("datagen", "faker")
RATE_PROPERTY = "connector.rows-per-second"
ROWS_PROPERTY = "connector.number-of-rows"

_MARK = re.compile(r"SELECT /\* rows-per-second=(\d+) number-of-rows=(\d*) \*/ ")
"""Begins the query of a temporary view, which has no properties."""
_ROWS_PER_SECOND = 10_000
_MOST_ROWS = 1_000_000
"""How many rows a query reads of a table without an end, before it fails."""
_ENDLESS = (
    "The table has no end. Read it with LIMIT, give it 'number-of-rows', or ingest it with a "
    "materialized table."
)
_TABLE: Mapping[str, options.Parse] = {
    "connector": options.text,
    "rows-per-second": options.count,
    "number-of-rows": options.count,
}
_DATAGEN: Mapping[str, options.Parse] = {
    "kind": options.one_of("random", "sequence"),
    "min": options.number,
    "max": options.number,
    "max-past": options.duration,
    "length": options.count,
    "var-len": options.flag,
    "start": options.whole,
    "end": options.whole,
    "null-rate": options.rate,
}
_FAKER: Mapping[str, options.Parse] = {"expression": options.text, "null-rate": options.rate}


def generator_view(table: ConnectorTable, *, temporary: bool) -> ConnectorView:
    """Return the view of a generator.

    :param temporary: whether Spark keeps no properties of it; its query then begins with a comment
        from which :func:`temporary_properties` reads them.
    :raises OptionError: for invalid options.
    """
    source = _Source.of(table)
    rate, rows = str(source.rows_per_second), source.rows
    query = source.query(_numbers(rows))
    if temporary:
        limit = "" if rows is None else rows
        mark = f"/* rows-per-second={rate} number-of-rows={limit} */"
        return ConnectorView(f"SELECT {mark} {query.removeprefix('SELECT ')}", {})
    found = {RATE_PROPERTY: rate}
    if rows is not None:
        found[ROWS_PROPERTY] = str(rows)
    return ConnectorView(query, found)


def temporary_properties(text: str) -> Mapping[str, str]:
    """Return the properties of a temporary view with this query; none if it is no generator."""
    found = _MARK.match(text)
    return {} if found is None else {RATE_PROPERTY: found[1], ROWS_PROPERTY: found[2]}


def generated_stream(text: str, given: Mapping[str, str]) -> str | None:
    """Return the query that a materialized table ingests instead of a generator.

    :param text: the query of the view.
    :param given: the properties of the view.
    :return: None if the view is no generator.
    """
    rate, rows = given.get(RATE_PROPERTY, ""), given.get(ROWS_PROPERTY, "")
    if not rate.isdecimal() or not (rows == "" or rows.isdecimal()):
        return None
    before, found, after = text.partition(_numbers(int(rows) if rows else None))
    limit = f" WHERE value < {rows}" if rows else ""
    stream = f"(SELECT value AS id FROM STREAM rate(rowsPerSecond => {rate}){limit})"
    return f"{before}{stream}{after}" if found else None


def _numbers(rows: int | None) -> str:
    """Return a relation of numbers; one without an end fails instead of running for ever."""
    if rows is not None:
        return f"range({rows})"
    end = f"id < {_MOST_ROWS} OR raise_error({quote_literal(_ENDLESS)}) IS NULL"
    return f"(SELECT id FROM range({_MOST_ROWS + 1}) WHERE {end})"


@dataclass(frozen=True, slots=True)
class _Source:
    """The rows of a generator."""

    table: ConnectorTable
    options: Options

    @classmethod
    def of(cls, table: ConnectorTable) -> _Source:
        fields = _DATAGEN if table.options["connector"] == "datagen" else _FAKER
        names = {each.name.lower(): each.name for each in table.columns if each.type}
        if table.partition_keys:
            raise OptionError("PARTITIONED BY is for the connector filesystem")
        return cls(table, options.read_options(table.options, _TABLE, fields, names))

    @property
    def rows_per_second(self) -> int:
        found: int = self.options.table.get("rows-per-second", _ROWS_PER_SECOND)
        return found

    @property
    def rows(self) -> int | None:
        """How many rows there are; None without a limit."""
        limits = [datagen.rows_of(given) for given in self.options.fields.values()]
        limits.append(self.options.table.get("number-of-rows"))
        return min((each for each in limits if each is not None), default=None)

    def query(self, numbers: str) -> str:
        """Return the query over a relation whose column ``id`` counts the rows from 0."""
        for each in self.table.columns:
            if each.metadata is not None:
                raise OptionError(f"the column {each.name} has METADATA, and generators have none")
        values = {each.name: self._value(each) for each in self.table.columns if each.type}
        return select(self.table, values, numbers)

    def _value(self, column: ConnectorColumn) -> str:
        given = self.options.fields.get(column.name, {})
        found = parse_type(column.type)
        if self.table.options["connector"] == "faker":
            value = _faked(column, given)
        else:
            value = datagen.value_sql(column.name, found, given, "id")
        value = _cast(value, found)
        share = given.get("null-rate", 0)
        if share and not column.nullable:
            raise OptionError(f"fields.{column.name}.null-rate contradicts NOT NULL")
        return f"IF(rand() < {share}D, NULL, {value})" if share else value


def _faked(column: ConnectorColumn, given: Mapping[str, Any]) -> str:
    if "expression" not in given:
        raise OptionError(f"fields.{column.name}.expression is missing")
    try:
        return faker.expression_sql(given["expression"])
    except OptionError as error:
        raise OptionError(f"fields.{column.name}.expression: {error}") from error


def _cast(value: str, found: ColumnType) -> str:
    if found.kind in (TypeKind.CHAR, TypeKind.VARCHAR):
        return f"left(CAST({value} AS STRING), {found.length})"
    return f"CAST({value} AS {found.text})"
