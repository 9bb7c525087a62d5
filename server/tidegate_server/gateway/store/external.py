"""External locations, connections and catalogs, in the store and in memory."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import Any, Protocol

from sqlalchemy import Delete, Insert, Row, Update, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.store.database import Database
from tidegate_server.gateway.store.tables import external_objects as e


class ExternalObjects(Protocol):
    """The external locations, connections and catalogs; names are unique for each kind."""

    def all(self, kind: SecuredKind) -> tuple[ExternalObject, ...]:
        """Return those of a kind by name."""
        ...

    def create(self, added: ExternalObject) -> bool:
        """Add an object; False if its name is taken."""
        ...

    def replace(self, changed: ExternalObject) -> bool:
        """Replace the object of the same id; False if there is none or its new name is taken."""
        ...

    def drop(self, object_id: str) -> None:
        """Remove an object; ignores an unknown id."""
        ...


class MemoryExternalObjects:
    """Everything in a dictionary: reference implementation and test double."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, ExternalObject] = {}

    def all(self, kind: SecuredKind) -> tuple[ExternalObject, ...]:
        with self._lock:
            found = [each for each in self._objects.values() if each.kind is kind]
        return tuple(sorted(found, key=lambda each: each.name))

    def create(self, added: ExternalObject) -> bool:
        with self._lock:
            return self._put(added)

    def replace(self, changed: ExternalObject) -> bool:
        with self._lock:
            return changed.id in self._objects and self._put(changed)

    def drop(self, object_id: str) -> None:
        with self._lock:
            self._objects.pop(object_id, None)

    def _put(self, put: ExternalObject) -> bool:
        others = (each for each in self._objects.values() if each.id != put.id)
        if any((each.kind, each.name) == (put.kind, put.name) for each in others):
            return False
        self._objects[put.id] = put
        return True


class SqlExternalObjects:
    """Everything in the store.

    Every statement asks for the objects, so they are remembered where no other server can change
    them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: tuple[ExternalObject, ...] | None = None

    def all(self, kind: SecuredKind) -> tuple[ExternalObject, ...]:
        with self._lock:
            known = self._read() if self._known is None else self._known
            if not self._database.shared:
                self._known = known
        return tuple(each for each in known if each.kind is kind)

    def create(self, added: ExternalObject) -> bool:
        return self._write(insert(e).values(**_row(added)))

    def replace(self, changed: ExternalObject) -> bool:
        return self._write(update(e).where(e.c.id == changed.id).values(**_row(changed)))

    def drop(self, object_id: str) -> None:
        self._write(delete(e).where(e.c.id == object_id))

    def _read(self) -> tuple[ExternalObject, ...]:
        with self._database.read() as connection:
            return tuple(_read(row) for row in connection.execute(select(e).order_by(e.c.name)))

    def _write(self, change: Insert | Update | Delete) -> bool:
        """Change one row; False if there is none or the name is taken."""
        with self._lock:
            self._known = None
            try:
                with self._database.begin() as connection:
                    return connection.execute(change).rowcount != 0  # -1 is unknown, of INSERT
            except IntegrityError:
                return False


def _row(stored: ExternalObject) -> dict[str, Any]:
    return {**asdict(stored), "kind": stored.kind.value}


def _read(row: Row[Any]) -> ExternalObject:
    return ExternalObject(**{**row._mapping, "kind": SecuredKind(row.kind)})
