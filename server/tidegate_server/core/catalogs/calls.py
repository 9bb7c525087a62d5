"""Answers the calls of the engine to catalogs written in Python; no Spark is needed here."""

from __future__ import annotations

import base64
import json
import logging
import threading
import traceback
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from tidegate_server.core.catalogs.base import (
    Catalog,
    CatalogError,
    CatalogTable,
    PythonCatalogType,
)
from tidegate_server.core.catalogs.encoding import decode_filter, decode_table, encode_table
from tidegate_server.core.catalogs.rows import Overwrite, RowReader, RowScan, RowWriter

logger = logging.getLogger(__name__)

_CLOSED: Final = "it was changed or dropped meanwhile"
_HIDDEN: Final = "*****"
_CLOSE_SECONDS: Final = 2.0
_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "schemas": (),
    "tables": ("schema",),
    "get_table": ("schema", "table_name"),
    "partitions": ("schema", "table_name"),
    "create_schema": ("schema", "properties"),
    "drop_schema": ("schema",),
    "create_table": ("schema", "table_name", "table"),
    "alter_table": ("schema", "table_name", "table"),
    "drop_table": ("schema", "table_name"),
    "rename_table": ("schema", "table_name", "new_schema", "new_name"),
    "table_version": ("schema", "table_name", "at_version", "at_millis"),
    "read_rows": ("schema", "table_name", "scan"),
    "write_rows": ("schema", "table_name", "overwrite"),
    "commit_rows": ("schema", "table_name", "overwrite", "written"),
    "discard_rows": ("schema", "table_name", "written"),
}
"""The methods, with the fields of a request that are their arguments."""


class Workers(Protocol):
    """Makes functions of catalogs ready for Spark's workers."""

    def reading(self, reader: RowReader, columns: str) -> bytes:
        """Return the function that reads parts; ``columns`` is the type of the rows as JSON."""
        ...

    def writing(self, writer: RowWriter) -> bytes:
        """Return the function that writes rows."""
        ...


class NotOfferedError(CatalogError):
    """A catalog lacks a method."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A catalog that was opened."""

    catalog: Catalog
    secrets: tuple[str, ...]


class CatalogCalls:
    """Opens catalogs, and calls their methods as texts of JSON ask for it."""

    def __init__(
        self, find: Callable[[str], PythonCatalogType], workers: Workers | None = None
    ) -> None:
        """``find`` returns the type of a name; it may raise anything.

        :param workers: None if no rows are read.
        """
        self._find = find
        self._workers = workers
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def answer(self, text: str) -> str:
        """Return the answer to a request; never raises, since the caller is not Python."""
        request = json.loads(text)
        try:
            return json.dumps({"value": self._value(request)})
        except Exception as caught:
            return json.dumps(self._failure(request, caught))

    def _value(self, request: Mapping[str, Any]) -> Any:
        match request["method"]:
            case "open":
                return self._open_catalog(request)
            case "close":
                return self._close(request["catalog"])
            case "version":
                return self._version(request)
            case "read_rows":
                return self._read_rows(request)
            case "write_rows":
                return self._write_rows(request)
            case method:
                return _called(self._found(request).catalog, method, request)

    def _open_catalog(self, request: Mapping[str, Any]) -> str:
        opened = self._find(request["type"]).open(request["options"])
        handle = uuid.uuid4().hex
        with self._lock:
            self._open[handle] = _Open(opened, tuple(filter(None, request["secrets"])))
        return handle

    def _close(self, handle: str) -> None:
        with self._lock:
            found = self._open.pop(handle, None)
        close = getattr(found.catalog, "close", None) if found is not None else None
        if close is not None:
            # On a thread of its own, since a system that does not answer would block this one.
            thread = threading.Thread(target=_run_close, args=(close,), daemon=True)
            thread.start()
            thread.join(_CLOSE_SECONDS)

    def _found(self, request: Mapping[str, Any]) -> _Open:
        with self._lock:
            found = self._open.get(request["catalog"])
        if found is None:
            raise CatalogError(_CLOSED)
        return found

    def _version(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """Return the version of a table, and whether the catalog knows versions at all."""
        method = getattr(self._found(request).catalog, "version", None)
        if method is None:
            return {"known": False}
        version = method(request["schema"], request["table_name"])
        if version is not None and not isinstance(version, str):
            raise TypeError(f"version returned {version!r}, which is no text")
        return {"known": True, "version": version}

    def _read_rows(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        reader = _called(self._found(request).catalog, "read_rows", request)
        assert self._workers is not None, "no rows are read here"
        return {
            "function": _text(self._workers.reading(reader, request["columns"])),
            "parts": [_text(part) for part in reader.parts],
            "rows": reader.rows,
            "size": reader.size,
            "removed": reader.removed,
        }

    def _write_rows(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        writer = _called(self._found(request).catalog, "write_rows", request)
        assert self._workers is not None, "no rows are written here"
        return {
            "function": _text(self._workers.writing(writer)),
            "cluster_by": list(writer.cluster_by),
            "one_task": writer.one_task,
        }

    def _failure(self, request: Mapping[str, Any], caught: Exception) -> Mapping[str, str]:
        method, secrets = request["method"], self._secrets(request)
        kind, reason = "failed", f"{type(caught).__name__}: {caught}"
        if isinstance(caught, NotOfferedError):
            kind, reason = "not offered", str(caught)
        elif isinstance(caught, CatalogError) or (
            method == "open" and isinstance(caught, ValueError)
        ):
            kind, reason = "refused", str(caught)
        else:
            trace = "".join(traceback.format_exception(caught))
            logger.error("%s of a catalog failed:\n%s", method, _without(secrets, trace))
        return {"failure": kind, "reason": _without(secrets, reason)}

    def _secrets(self, request: Mapping[str, Any]) -> Collection[str]:
        if request["method"] == "open":
            return tuple(request["secrets"])
        with self._lock:
            found = self._open.get(request["catalog"])
        return found.secrets if found is not None else ()


def _run_close(close: Callable[[], None]) -> None:
    try:
        close()
    except Exception as caught:
        logger.warning("a catalog could not be closed: %s", type(caught).__name__)


def _called(catalog: Catalog, name: str, request: Mapping[str, Any]) -> Any:
    method = getattr(catalog, name, None)
    if method is None:
        raise NotOfferedError(name)
    found = method(*(_argument(field, request[field]) for field in _METHODS[name]))
    match name:
        case "table_version":
            return None if found is None else asdict(found)
        case "read_rows" | "write_rows":
            return found
        case "schemas" | "tables":
            return _names(name, found)
        case "partitions":
            return [asdict(each) for each in found]
        case "get_table":
            return None if found is None else encode_table(_table(name, found))
        case "create_table":
            return encode_table(_table(name, found))
        case "drop_table":
            return bool(found)
        case _:
            return None


def _argument(field: str, value: Any) -> Any:
    match field:
        case "table":
            return decode_table(value)
        case "scan":
            filters = tuple(map(decode_filter, value["filters"]))
            return RowScan(**{**value, "columns": tuple(value["columns"]), "filters": filters})
        case "overwrite":
            return Overwrite(value)
        case "written":
            return tuple(map(base64.b64decode, value))
        case _:
            return value


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _names(method: str, found: Sequence[str]) -> list[str]:
    names = list(found)
    if not all(isinstance(each, str) for each in names):
        raise TypeError(f"{method} returned {names!r}, which are not all texts")
    return names


def _table(method: str, found: object) -> CatalogTable:
    if not isinstance(found, CatalogTable):
        raise TypeError(f"{method} returned {type(found).__name__}, which is no CatalogTable")
    if not found.format:
        raise ValueError(f"{method} returned a table without a format")
    return found


def _without(secrets: Collection[str], text: str) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text
