"""From names in a query to the tables behind them, views looked through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.engine.references import ParsedQuery, Reference, parse_query, rewrite
from tidegate_server.errors import Code, error
from tidegate_server.model.names import TableName, qualify, quote_identifier
from tidegate_server.model.versions import Source, SourceKind
from tidegate_server.storage.base import TableFormat, TableState, is_path, table_sql

_GLOBAL_TEMPORARY = "global_temp"
_DEEPEST_VIEW = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A permanent view: its text, the place its names are relative to, its columns."""

    text: str
    catalog: str
    schema: str
    produced: tuple[str, ...]
    """The text's own columns, which may be fewer than a star in it gives by now."""
    columns: tuple[str, ...]


@dataclass(slots=True)
class Tables:
    """Looks names up once: every mention of a table sees the same version of it."""

    spark: SparkSession
    format: TableFormat
    sources: dict[TableName, Source] = field(default_factory=dict)
    states: dict[TableName, TableState] = field(default_factory=dict)
    temporary: set[str] = field(default_factory=set)

    def qualified(self, text: str, catalog: str, schema: str) -> tuple[ParsedQuery, str]:
        """Return a query parsed and its text with full names; gathers the sources."""
        query = parse_query(self.spark, text)
        return query, rewrite(query, lambda r: self._full_name(r, catalog, schema, depth=0))

    def pinned(self, text: str, catalog: str, schema: str, *, depth: int = 0) -> str:
        """Return the text with every versioned table at the version found, views put in place."""
        query = parse_query(self.spark, text)
        return rewrite(query, lambda r: self._pinned(r, catalog, schema, depth))

    def vector(self) -> Mapping[str, int]:
        """Return the version of every versioned source gathered, by its table id."""
        return {state.table_id: state.version for state in self.states.values()}

    def _full_name(self, reference: Reference, catalog: str, schema: str, depth: int) -> str:
        name = self._visit(reference, catalog, schema, depth)
        return _written(reference) if name is None else table_sql(name)

    def _pinned(self, reference: Reference, catalog: str, schema: str, depth: int) -> str:
        name = self._name(reference, catalog, schema)
        if name is None:
            return _written(reference)
        view = self._view(name)
        if view is not None:
            return self._view_query(reference, name, view, depth)
        self._gather(name, reference)
        state = self.states.get(name.folded())
        if state is None or reference.time_travel:
            return table_sql(name)
        return self.format.pinned(name, state.newest)

    def _view_query(self, reference: Reference, name: TableName, view: View, depth: int) -> str:
        _check_depth(name, depth)
        inner = self.pinned(view.text, view.catalog, view.schema, depth=depth + 1)
        renamed = ", ".join(
            f"{quote_identifier(old)} AS {quote_identifier(new)}"
            for old, new in zip(view.produced, view.columns, strict=True)
        )
        alias = "" if reference.aliased else f" AS {quote_identifier(name.table)}"
        # The line break keeps a comment at the view's end from swallowing the bracket.
        return f"(SELECT {renamed} FROM ({inner}\n)){alias}"

    def _visit(
        self, reference: Reference, catalog: str, schema: str, depth: int
    ) -> TableName | None:
        """Gather what a reference reads; None for a temporary view, which has no full name."""
        name = self._name(reference, catalog, schema)
        if name is None:
            return None
        view = self._view(name)
        if view is None:
            self._gather(name, reference)
            return name
        _check_depth(name, depth)
        for inner in parse_query(self.spark, view.text).references:
            self._visit(inner, view.catalog, view.schema, depth + 1)
        return name

    def _name(self, reference: Reference, catalog: str, schema: str) -> TableName | None:
        parts = reference.parts
        if self._is_temporary(parts):
            self.temporary.add(f"view {'.'.join(parts)}")
            return None
        if len(parts) > 3:
            raise error(
                Code.MT_QUERY_UNSUPPORTED, reason=f"{'.'.join(parts)} has more than three parts"
            )
        return qualify(parts, catalog, schema)

    def _is_temporary(self, parts: tuple[str, ...]) -> bool:
        if len(parts) == 2 and parts[0].lower() == _GLOBAL_TEMPORARY:
            return True
        if len(parts) != 1:
            return False
        session: Any = self.spark._jsparkSession
        return bool(session.sessionState().catalog().getRawTempView(parts[0]).isDefined())

    def _view(self, name: TableName) -> View | None:
        entry = catalog_entry(self.spark, name)
        if entry is None or entry.tableType().name() != "VIEW":
            return None
        place = [str(part) for part in _sequence(entry.viewCatalogAndNamespace())]
        columns = tuple(str(column) for column in entry.schema().fieldNames())
        produced = tuple(str(column) for column in _sequence(entry.viewQueryColumnNames()))
        return View(
            text=str(entry.viewText().get()),
            catalog=place[0] if place else name.catalog,
            schema=".".join(place[1:]) or name.schema,
            produced=produced or columns,
            columns=columns,
        )

    def _gather(self, name: TableName, reference: Reference) -> None:
        key = name.folded()
        if key in self.sources:
            return
        state = self.format.find(name)
        if state is not None:
            self.states[key] = state
        self.sources[key] = Source(
            name=key if not is_path(name) else name,
            kind=SourceKind.PLAIN if state is None else SourceKind.VERSIONED,
            table_id=str(key) if state is None else state.table_id,
            materialized_table=state is not None and state.materialized_id is not None,
        )


def catalog_entry(spark: SparkSession, name: TableName) -> Any:
    """Return the session catalog's entry of a table or view, or None."""
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    if name.catalog.lower() != "spark_catalog":
        return None
    identifier = jvm.org.apache.spark.sql.catalyst.TableIdentifier(
        name.table, jvm.scala.Option.apply(name.schema)
    )
    catalog = session.sessionState().catalog()
    try:
        return catalog.getTableMetadata(identifier)
    except (PySparkException, Py4JJavaError) as missing:
        if not _is_missing(missing):
            raise
        return None


def _is_missing(caught: Exception) -> bool:
    return any(word in str(caught) for word in ("NOT_FOUND", "NoSuch"))


def _check_depth(name: TableName, depth: int) -> None:
    if depth >= _DEEPEST_VIEW:
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=f"view {name} is nested too deeply")


def _written(reference: Reference) -> str:
    return ".".join(quote_identifier(part) for part in reference.parts)


def _sequence(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
