"""The engine's storage in memory: the warehouse after a command, complete or interrupted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.messages.answers import (
    Answer,
    DefinitionsFound,
    Done,
    ExpressionsChecked,
    FoundDefinition,
    Inspected,
    LastCommitted,
    Rewritten,
    TableCreated,
    TableInfo,
    TablesPlaced,
)
from tidegate_server.core.messages.requests import (
    CheckExpressions,
    CreateTable,
    DiscardHeld,
    DropTable,
    DropView,
    EvolveTable,
    InspectTable,
    LastCommit,
    ListDefinitions,
    PlaceTables,
    PutView,
    RenameTable,
    Request,
    RewriteNames,
    SetTableProperties,
    TablePlace,
)
from tidegate_server.core.model.names import TableName, visible_name
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.refresh.request import CommittedRefresh

_COMMIT = CommittedRefresh(epoch=5, version=9, definition_version=1, vector={}, refresh_id="r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A Delta table."""

    schema: Schema
    partition_keys: tuple[str, ...] = ()
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str = ""
    """Where it lies; empty for the usual place of its name, as a plain table has it."""

    @property
    def owner(self) -> str | None:
        return self.properties.get("tidegate.id")


_LISTED = re.compile(r"([^`]+) AS `(\w+)`")


class FakeStorage:
    """Answers the requests that change storage, as the engine does."""

    def __init__(self) -> None:
        self.tables: dict[TableName, Stored] = {}
        self.views: dict[TableName, PutView] = {}
        self.held: dict[TableName, CommittedRefresh] = {}
        self.types = {"current_timestamp": "timestamp", "now()": "timestamp"}
        """The type of a computed column by its expression; others are STRING."""
        self.unusable: dict[str, ServerError] = {}
        self.checked: list[CheckExpressions] = []
        self.lying: dict[tuple[str, str | None], Stored] = {}
        """Tables by where they lie and whose they are, once names were pointed elsewhere."""
        self.commits: dict[str, CommittedRefresh] = {}
        """The last commit of each materialized table, by its id."""
        self.rows: dict[int, int] = {}
        """By which version the rows of each version were computed."""

    def answer(self, request: Request) -> Answer | None:
        """Carry a request out; None if it is not about storage."""
        match request:
            case CreateTable(name=name):
                return self._create(name, request)
            case SetTableProperties(name=name, properties=properties):
                self._change(name, properties=properties)
            case EvolveTable():
                self._evolve(request)
            case RenameTable():
                self._rename(request)
            case PlaceTables(places=places):
                return self._place(places)
            case PutView(name=name):
                if name in self.tables:
                    raise already_exists()
                self.views[name] = request
            case DropView(name=name, table_id=table_id):
                if (view := self.views.get(name)) is not None and view.table_id == table_id:
                    del self.views[name]
            case DropTable(name=name, table_id=table_id):
                if (found := self.tables.get(name)) is not None and found.owner == table_id:
                    del self.tables[name]
            case InspectTable(name=name):
                return self._inspect(name)
            case ListDefinitions():
                return self._definitions()
            case LastCommit(name=name, table_id=table_id):
                exists = name in self.tables
                commit = self.commits.get(table_id, _COMMIT)
                return LastCommitted(commit=commit, exists=exists, held=self.held.get(name))
            case DiscardHeld(name=name):
                self.held.pop(name, None)
                return Done()
            case CheckExpressions():
                return self._check(request)
            case RewriteNames(queries=queries, name=old, new_name=new):
                return Rewritten(
                    queries=tuple(
                        text.replace(str(old), str(new)) if str(old) in text else None
                        for text in queries
                    )
                )
            case _:
                return None
        return Done()

    def commit(self, table_id: str, refresh_id: str, version: int, rows_of: int | None) -> int:
        """Commit a version of a table, with the rows of another one; returns the one before."""
        before = self.commits.get(table_id, _COMMIT)
        self.rows[version] = version if rows_of is None else self.rows.get(rows_of, rows_of)
        self.commits[table_id] = replace(before, refresh_id=refresh_id, version=version)
        return before.version

    def content(self, table_id: str) -> int:
        """Return which version computed the rows that a table has."""
        version = self.commits.get(table_id, _COMMIT).version
        return self.rows.get(version, version)

    def table_infos(self) -> tuple[TableInfo, ...]:
        """What the metastore lists."""
        tables = (TableInfo(name=name, type="TABLE") for name in self.tables)
        views = (
            TableInfo(name=name, type="VIEW", comment=view.comment)
            for name, view in self.views.items()
        )
        return (*tables, *views)

    def _create(self, name: TableName, request: CreateTable) -> TableCreated:
        if name in self.tables or name in self.views:
            raise already_exists()
        owner = request.properties["tidegate.id"]
        location = f"/warehouse/{visible_name(name).table}-{owner}"
        self.tables[name] = Stored(
            schema=request.schema,
            partition_keys=request.partition_keys,
            comment=request.comment,
            properties=dict(request.properties),
            location=location,
        )
        return TableCreated(location=location, table_id="delta-id")

    def _change(self, name: TableName, properties: Mapping[str, str]) -> None:
        found = self.tables.get(name)
        if found is not None:
            self.tables[name] = replace(found, properties={**found.properties, **properties})

    def _evolve(self, request: EvolveTable) -> None:
        found = self.tables.get(request.name)
        owners = (request.table_id, request.adopts)
        if found is None or (found.owner or "") not in owners:
            raise error(Code.MT_DATA_LOST, table=request.name, reason="it is gone")
        merged = {**found.properties, **request.properties}
        self.tables[request.name] = Stored(
            schema=request.schema,
            partition_keys=found.partition_keys,
            comment=request.comment,
            properties={key: value for key, value in merged.items() if value is not None},
            location=found.location,
        )

    def _rename(self, request: RenameTable) -> None:
        found = self.tables.get(request.name)
        if found is not None and found.owner == request.table_id:
            if request.new_name in self.tables or request.new_name in self.views:
                raise already_exists()
            self.tables[request.new_name] = self.tables.pop(request.name)

    def _place(self, places: Sequence[TablePlace]) -> TablesPlaced:
        # What no name points at any more still lies there.
        self.lying.update({(self._location(n), t.owner): t for n, t in self.tables.items()})
        lying = self.lying
        for place in places:
            if (place.location, place.table_id) not in lying:
                raise error(Code.MT_DATA_LOST, table=place.name, reason="it is elsewhere")
        for place in places:
            found = lying[place.location, place.table_id]
            self.tables[place.name] = replace(found, location=place.location)
        return TablesPlaced(table_ids=tuple(f"delta-{place.table_id}" for place in places))

    def _location(self, name: TableName) -> str:
        return self.tables[name].location or f"/warehouse/{name.table}"

    def _inspect(self, name: TableName) -> Inspected:
        if name in self.views:
            return Inspected(format="view")
        found = self.tables.get(name)
        if found is None:
            return Inspected(format=None)
        return Inspected(
            format="delta",
            schema=found.schema,
            partition_keys=found.partition_keys,
            comment=found.comment,
            location=self._location(name),
            properties=found.properties,
            materialized_id=found.owner,
        )

    def _definitions(self) -> DefinitionsFound:
        return DefinitionsFound(
            found=tuple(
                FoundDefinition(
                    storage=name,
                    table_id=stored.owner or "",
                    location=self._location(name),
                    definition=stored.properties["tidegate.definition"],
                )
                for name, stored in sorted(self.tables.items())
                if "tidegate.definition" in stored.properties
            )
        )

    def _check(self, request: CheckExpressions) -> ExpressionsChecked:
        self.checked.append(request)
        texts = [text for _, text in request.computed]
        conditions = (request.watermark, *request.conditions, request.region)
        texts += [text for text in conditions if text is not None]
        texts += request.assertions
        for text in texts:
            if text in self.unusable:
                raise self.unusable[text]
        listed = [(name, text.lstrip(", ")) for text, name in _LISTED.findall(request.listed)]
        columns = (
            Column(name=name, type=self.types.get(text, "string"))
            for name, text in (*request.computed, *listed)
        )
        given = request.columns.columns if request.listed else ()
        watermark = self.types.get(request.watermark or "", "timestamp")
        return ExpressionsChecked(computed=Schema((*given, *columns)), watermark=watermark)


def already_exists() -> ServerError:
    return ServerError(code="TABLE_OR_VIEW_ALREADY_EXISTS", sqlstate="42P07", message="exists")
