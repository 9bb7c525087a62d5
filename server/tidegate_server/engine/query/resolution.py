"""Resolves names in a query to tables, through views."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.names import TableName, qualify, quote_identifier, visible_name
from tidegate_server.core.model.types import Schema
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.engine.query.references import (
    Edit,
    Mention,
    ParsedQuery,
    Reference,
    apply_edits,
    parse_query,
    reference_edits,
)
from tidegate_server.engine.storage.base import (
    TableFormat,
    TableState,
    is_foreign,
    is_path,
    table_sql,
)
from tidegate_server.engine.storage.commit_record import CommitRecord
from tidegate_server.engine.storage.entries import entry_of
from tidegate_server.engine.storage.jvm import field_names, items, java, temporary_settings
from tidegate_server.engine.storage.plain import fingerprint, forget_cached

_GLOBAL_TEMPORARY = "global_temp"
_DEEPEST_VIEW = 50
_NOISE = frozenset({"spark.databricks.delta.lastCommitVersionInSession"})


@dataclass(frozen=True, slots=True)
class Place:
    """The catalog and schema that complete short names."""

    catalog: str
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view; the names in its text are relative to ``place``."""

    text: str
    place: Place
    produced: tuple[str, ...]
    """The text's columns at creation; a star in it may include more by now."""
    columns: tuple[str, ...]
    settings: Mapping[str, str]
    """The settings at creation, under which it is always read."""


@dataclass(slots=True)
class Tables:
    """Looks each name up once, so that every mention of a table sees the same version."""

    spark: SparkSession
    format: TableFormat
    recorded: Mapping[TableName, Schema] = field(default_factory=dict)
    """The columns of the sources when the query was defined; later ones are hidden."""
    sources: dict[TableName, Source] = field(default_factory=dict)
    states: dict[TableName, TableState] = field(default_factory=dict)
    written: dict[TableName, TableName] = field(default_factory=dict)
    """The sources' names by their folded ones: other catalogs may regard the case."""
    temporary: set[str] = field(default_factory=set)
    wanted: Mapping[str, int] = field(default_factory=dict)
    """Versions to read instead of the newest, by table id."""
    travelled: set[TableName] = field(default_factory=set)
    """Tables that the query reads by time travel."""
    functions: set[str] = field(default_factory=set)
    """Names of the functions that a pinned text calls without a schema, in lower case."""
    registered: set[str] = field(default_factory=set)
    """Temporary views that stand in for views created under other settings."""
    queries: Mapping[TableName, View] = field(default_factory=dict)
    """Queries to read instead of tables, by the tables' folded names."""
    replaced: set[TableName] = field(default_factory=set)
    """The tables that a pinned text replaces by such queries."""
    fingerprinted: bool = False
    """Whether to fingerprint the files of sources without versions, before they are read."""
    fingerprints: dict[TableName, int] = field(default_factory=dict)
    """The fingerprints; sources that cannot be fingerprinted are missing."""

    def pin(self, text: str, catalog: str, schema: str) -> str:
        """Return the text with every versioned table pinned to its version and views inlined."""
        return self._pin_text(text, Place(catalog, schema), ())

    def ordered_sources(self, defined: Sequence[Source]) -> tuple[Source, ...]:
        """Return the collected sources; those of the definition first, with their columns then.

        They differ from the definition's sources if a table or view was dropped and recreated.
        """
        before = {source.name.folded(): source for source in defined}
        now = {source.name.folded(): source for source in self.sources.values()}
        names = [*(name for name in before if name in now), *(n for n in now if n not in before)]
        return tuple(
            replace(now[name], columns=before[name].columns) if name in before else now[name]
            for name in names
        )

    def vector(self) -> Mapping[str, int]:
        """Return the version or fingerprint of every collected source, by table id."""
        states = self.states.values()
        files = {self.sources[name].table_id: found for name, found in self.fingerprints.items()}
        return files | {state.table_id: self._recorded_version(state) for state in states}

    def has_untracked_source(self) -> bool:
        """Say whether a source has neither versions nor a fingerprint to detect changes."""
        return self.sources.keys() > self.states.keys() | self.fingerprints.keys()

    def changed_sources(self) -> dict[str, TableName]:
        """Return the sources without versions whose fingerprint has changed, by table id."""
        return {
            source.table_id: source.name
            for source, found in ((self.sources[n], f) for n, f in self.fingerprints.items())
            if fingerprint_of(self.spark, source.name, settled=True) != found
        }

    def commits(self) -> Mapping[str, str]:
        """Return the commit ids of the vector's versions, by table id.

        Unlike a version, a commit id also identifies the history it belongs to.
        """
        vector = self.vector()
        found = {s.table_id: self._commit(n, vector[s.table_id]) for n, s in self.states.items()}
        return {table_id: known for table_id, known in found.items() if known is not None}

    def other_histories(self, last: CommitRecord) -> list[str]:
        """Return the sources in which the version that a refresh read is now another commit, each
        with the difference.

        This happens when a table's directory is restored from a backup and then written to, and
        when an Iceberg table gets other columns. If the version has expired, nothing is known.
        """
        found = []
        for name, state in self.states.items():
            read = last.source_commits.get(state.table_id)
            if read is None:
                continue
            now = self._commit(name, last.vector[state.table_id])
            if now not in (None, read):
                written = self.written[name]
                difference = self.format.sources.difference(written, read, now)
                found.append(f"{self.sources[name].name} {difference}")
        return found

    def snapshots(self) -> Mapping[str, str]:
        """Return the ids of the snapshots that the vector's versions stand for, by table id.

        Versions that SQL names by their numbers are left out.
        """
        commits = self.commits()
        found = {
            state.table_id: self.format.sources.snapshot_id(self.written[name], commit)
            for name, state in self.states.items()
            if (commit := commits.get(state.table_id)) is not None
        }
        return {table_id: known for table_id, known in found.items() if known is not None}

    def read_snapshots(self) -> frozenset[str]:
        """Return the ids of the snapshots that a pinned text names."""
        sources, found = self.format.sources, set()
        for name, state in self.states.items():
            if name in self.travelled or state.commit is None:
                continue
            written = self.written[name]
            if sources.snapshot_id(written, state.commit) is None:
                continue
            commit = sources.commit_id(written, self._read_version(state))
            shown = None if commit is None else sources.snapshot_id(written, commit)
            found |= {shown} if shown else set()
        return frozenset(found)

    def _commit(self, name: TableName, version: int) -> str | None:
        state = self.states[name]
        if state.version == version:
            return state.commit
        return self.format.sources.commit_id(self.written[name], version)

    def read_versions(self) -> Mapping[str, int]:
        """Return the version at which each versioned source is read, by table id."""
        return {state.table_id: self._read_version(state) for state in self.states.values()}

    def visit(self, reference: Reference, place: Place) -> TableName | None:
        """Collect the sources of a reference; return its full name, None for a temporary view."""
        return self._visit(reference, place, ())

    def columns(self, name: TableName) -> tuple[str, ...]:
        """Return the current columns of a table or view."""
        if (state := self.states.get(name.folded())) is not None:
            return state.columns
        return tuple(self.spark.table(table_sql(name)).columns)

    def name_edits(self, query: ParsedQuery, place: Place) -> Iterator[Edit]:
        """Yield the edits that keep names of permanent functions and columns unambiguous."""
        for call in query.calls:
            if len(call.parts) < 3 and self._is_permanent(call.parts, place):
                name = qualify(call.parts, place.catalog, place.schema)
                yield Edit(call.start, call.end, name.quoted())
        yield from self._column_edits(query, place)

    def drop_registered(self) -> None:
        """Drop the temporary views that were registered."""
        session: Any = self.spark._jsparkSession
        for name in self.registered:
            session.sessionState().catalog().dropTempView(name)
        self.registered.clear()

    def _pin_text(self, text: str, place: Place, via: tuple[TableName, ...]) -> str:
        query = parse_query(self.spark, text)
        self.functions |= query.functions
        edits = reference_edits(query, lambda r: self._pin_reference(r, place, via))
        return apply_edits(text, [*edits, *self.name_edits(query, place)])

    def _pin_reference(self, reference: Reference, place: Place, via: tuple[TableName, ...]) -> str:
        name = self._resolve(reference, place)
        if name is None:
            return quoted_name(reference)
        view = self._find_view(name)
        if view is not None:
            return self._view_query(reference, name, view, via)
        self._gather(name, via)
        state = self.states.get(name.folded())
        if reference.time_travel:
            self.travelled.add(name.folded())
            return table_sql(name)
        if state is None:
            return self._hide_new_columns(reference, name, table_sql(name))
        pinned = self.format.sources.version_sql(name, self._read_version(state))
        shown = self._hide_new_columns(reference, name, pinned)
        if shown == pinned and pinned.startswith("("):
            return pinned + _alias(reference, name)
        return shown

    def _recorded_version(self, state: TableState) -> int:
        """Return the version to record; a table may have gone back from the one wanted."""
        wanted = self.wanted.get(state.table_id)
        return state.version if wanted is None or wanted > state.newest else wanted

    def _read_version(self, state: TableState) -> int:
        recorded = self._recorded_version(state)
        # The newest version has the same rows as the last one that changed them, and the current
        # columns.
        return state.newest if recorded >= state.version else recorded

    def _hide_new_columns(self, reference: Reference, name: TableName, pinned: str) -> str:
        """Hide the columns that a table got after the query was defined."""
        recorded = self.recorded.get(name.folded())
        if not recorded:
            return pinned
        known = {column.lower() for column in recorded.names()}
        now = self.columns(name)
        if all(column.lower() in known for column in now):
            return pinned
        return select_columns(reference, name, pinned, [c for c in now if c.lower() in known])

    def _view_query(
        self, reference: Reference, name: TableName, view: View, via: tuple[TableName, ...]
    ) -> str:
        _check_depth(name, len(via))
        inner = self._pin_text(view.text, view.place, (*via, name.folded()))
        alias = _alias(reference, name)
        body = _rename_columns(view, inner)
        if not self._differing_settings(view):
            return f"({body}){alias}"
        return self._register_view(view, body) + alias

    def _differing_settings(self, view: View) -> dict[str, str]:
        return {
            key: value
            for key, value in view.settings.items()
            if key not in _NOISE and self.spark.conf.get(key, None) != value
        }

    def _register_view(self, view: View, body: str) -> str:
        """Create a temporary view under the view's own settings, which Spark stores with it."""
        settings = self._differing_settings(view)
        identity = repr((body, sorted(settings.items()))).encode()
        name = f"__tidegate_view_{hashlib.sha256(identity).hexdigest()[:16]}"
        with temporary_settings(self.spark, settings):
            self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quote_identifier(name)} AS {body}")
        self.registered.add(name)
        return quote_identifier(name)

    def _visit(
        self, reference: Reference, place: Place, via: tuple[TableName, ...]
    ) -> TableName | None:
        name = self._resolve(reference, place)
        if name is None:
            return None
        view = self._find_view(name)
        if view is None:
            self._gather(name, via)
            return name
        _check_depth(name, len(via))
        for inner in parse_query(self.spark, view.text).references:
            self._visit(inner, view.place, (*via, name.folded()))
        return name

    def _resolve(self, reference: Reference, place: Place) -> TableName | None:
        parts = reference.parts
        if is_temporary_view(self.spark, parts):
            self.temporary.add(f"view {'.'.join(parts)}")
            return None
        if len(parts) > 3:
            raise error(
                Code.MT_QUERY_UNSUPPORTED, reason=f"{'.'.join(parts)} has more than three parts"
            )
        return qualify(parts, place.catalog, place.schema)

    def _find_view(self, name: TableName) -> View | None:
        if name.folded() in self.queries:
            self.replaced.add(name.folded())
            return self.queries[name.folded()]
        entry = entry_of(self.spark, name)
        if entry is None or entry.tableType().name() != "VIEW":
            return None
        return read_view(self.spark, entry, Place(name.catalog, name.schema))

    def _gather(self, name: TableName, via: tuple[TableName, ...]) -> None:
        key = name.folded()
        if key in self.sources:
            if is_path(name) and self.sources[key].name != name:
                self.fingerprints.pop(key, None)  # another path that differs only in case
            return
        self.written[key] = name
        state = self.format.sources.find(name)
        if state is not None:
            state = self.states[key] = self._check_id(name, state)
        shown, owned = key, state is not None and state.materialized_id is not None
        if owned:
            # A table with derived columns is a view over its storage table; show the view.
            shown = visible_name(key)
            via = tuple(view for view in via if view.folded() != shown)
        if state is None and self.fingerprinted:
            entry = entry_of(self.spark, name)
            found = fingerprint(self.spark, name, entry, settled=True)
            if found is not None:
                self.fingerprints[key] = found
                forget_cached(self.spark, name, entry)
        self.sources[key] = Source(
            name=_source_name(name, shown),
            kind=SourceKind.PLAIN if state is None else SourceKind.VERSIONED,
            table_id=str(key) if state is None else state.table_id,
            materialized_table=owned,
            via=via,
        )

    def _check_id(self, name: TableName, state: TableState) -> TableState:
        """Return the state of a table, which is the same under each of its names.

        :raises ServerError: MT_QUERY_UNSUPPORTED for two tables with the same id: versions
            recorded by the id would be ambiguous.
        """
        for other, known in self.states.items():
            if known.table_id != state.table_id:
                continue
            location = self.format.sources.location
            if location(self.written[other]) == location(name):
                return known
            raise error(
                Code.MT_QUERY_UNSUPPORTED,
                reason=f"{name.folded()} and {other} have the same table id, since one was copied "
                "file by file; copy it by CREATE TABLE ... SHALLOW CLONE or AS SELECT instead",
            )
        return state

    def _is_permanent(self, parts: tuple[str, ...], place: Place) -> bool:
        """Say whether a function is stored in the metastore and thus has a schema."""
        session: Any = self.spark._jsparkSession
        jvm: Any = java(self.spark)
        catalog = session.sessionState().catalog()
        identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
        name = parts[-1]
        if len(parts) == 1:
            plain = identifier(name)
            if catalog.isBuiltinFunction(plain) or catalog.isTemporaryFunction(plain):
                return False
        schema = parts[0] if len(parts) == 2 else place.schema
        return bool(catalog.isPersistentFunction(identifier(name, jvm.scala.Option.apply(schema))))

    def _column_edits(self, query: ParsedQuery, place: Place) -> Iterator[Edit]:
        """Yield edits from ``schema.table.column`` to ``table.column``.

        A table that is replaced by a subquery keeps only its last name part, as an alias.
        """
        if not query.columns:
            return
        named = {
            qualify(reference.parts, place.catalog, place.schema).folded()
            for reference in query.references
            if not reference.aliased and len(reference.parts) < 4
        }
        for mention in query.columns:
            for name in named:
                rest = _parts_after_table(mention, name)
                if rest is None:
                    continue
                others = [other for other in named if other.table == name.table]
                if len(others) > 1 or name.table in query.aliases:
                    continue  # the short name would mean another table
                written_rest = ".".join(quote_identifier(part) for part in rest)
                table = mention.parts[len(mention.parts) - len(rest) - 1]
                yield Edit(mention.start, mention.end, f"{quote_identifier(table)}.{written_rest}")
                break


def _source_name(name: TableName, shown: TableName) -> TableName:
    """Return the name of a source; other catalogs, and paths, may regard the case."""
    if is_foreign(name):
        return replace(name, catalog=shown.catalog)
    return name if is_path(name) else shown


def read_view(spark: SparkSession, entry: Any, place: Place) -> View:
    """Return a view of the catalog; ``place`` applies to views that do not record one."""
    jvm: Any = java(spark)
    found = [str(part) for part in items(entry.viewCatalogAndNamespace())]
    columns = tuple(field_names(entry.schema()))
    produced = tuple(str(column) for column in items(entry.viewQueryColumnNames()))
    settings = jvm.scala.jdk.javaapi.CollectionConverters.asJava(entry.viewSQLConfigs())
    return View(
        text=str(entry.viewText().get()),
        place=Place(found[0], ".".join(found[1:])) if found else place,
        produced=produced or columns,
        columns=columns,
        settings={str(key): str(value) for key, value in dict(settings).items()},
    )


def select_columns(reference: Reference, name: TableName, table: str, columns: list[str]) -> str:
    """Return a subquery with only these columns of a table."""
    listed = ", ".join(quote_identifier(column) for column in columns) or "NULL"
    return f"(SELECT {listed} FROM {table}){_alias(reference, name)}"


def _alias(reference: Reference, name: TableName) -> str:
    """Return the alias of a subquery in the place of a table."""
    return "" if reference.aliased else f" AS {quote_identifier(name.table)}"


def current_place(spark: SparkSession) -> Place:
    """Return the session's current catalog and schema."""
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()
    return Place(str(manager.currentCatalog().name()), ".".join(manager.currentNamespace()))


def is_temporary_view(spark: SparkSession, parts: tuple[str, ...]) -> bool:
    """Say whether a name, as written, refers to a temporary view."""
    return temporary_view(spark, parts) is not None


def temporary_view(spark: SparkSession, parts: tuple[str, ...]) -> Any:
    """Return the session's temporary view of that name, or None."""
    if len(parts) > 2:
        return None
    session: Any = spark._jsparkSession
    catalog = session.sessionState().catalog()
    if len(parts) == 1:
        found = catalog.getRawTempView(parts[0])
    elif parts[0].lower() == _GLOBAL_TEMPORARY:
        found = catalog.getRawGlobalTempView(parts[1])
    else:
        return None
    return found.get() if found.isDefined() else None


def fingerprint_of(spark: SparkSession, name: TableName, *, settled: bool = False) -> int | None:
    """Return the current :func:`fingerprint` of a table or path."""
    return fingerprint(spark, name, entry_of(spark, name), settled=settled)


def _check_depth(name: TableName, depth: int) -> None:
    if depth >= _DEEPEST_VIEW:
        raise error(Code.MT_QUERY_UNSUPPORTED, reason=f"view {name} is nested too deeply")


def quoted_name(reference: Reference) -> str:
    """Return a reference's name as written, with every part in backticks."""
    return ".".join(quote_identifier(part) for part in reference.parts)


def _rename_columns(view: View, inner: str) -> str:
    """Return a query that gives the text's columns the view's column names."""
    # The line break keeps a comment at the end of the text from swallowing the parenthesis.
    if len({name.lower() for name in view.produced}) < len(view.produced):
        names = ", ".join(quote_identifier(name) for name in view.columns)
        return f"SELECT * FROM ({inner}\n) AS v({names})"
    renamed = ", ".join(
        f"{quote_identifier(old)} AS {quote_identifier(new)}"
        for old, new in zip(view.produced, view.columns, strict=True)
    )
    return f"SELECT {renamed} FROM ({inner}\n)"


def _parts_after_table(mention: Mention, name: TableName) -> tuple[str, ...] | None:
    """Return the name parts after the table in ``schema.table.column``, or None."""
    parts = tuple(part.lower() for part in mention.parts)
    for table in ((name.catalog, name.schema, name.table), (name.schema, name.table)):
        if len(parts) > len(table) and parts[: len(table)] == table:
            return mention.parts[len(table) :]
    return None
