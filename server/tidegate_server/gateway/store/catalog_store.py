"""Where the options of catalogs are kept instead of the database: in files, or in memory.

https://nightlies.apache.org/flink/flink-docs-master/docs/dev/table/catalogs/#catalog-store
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import yaml

from tidegate_server.core.config import IN_MEMORY, STORE_KIND_OPTION, STORE_PATH_OPTION, Config
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind
from tidegate_server.gateway.store.external import ExternalObjects, MemoryExternalObjects

log = logging.getLogger(__name__)

_SUFFIX: Final = ".yaml"
_TYPE: Final = "type"
_NAME: Final = re.compile(r"[a-z_]\w*", re.ASCII)
_Stamp = tuple[int, int, int]
"""What changes with a file: its inode, its size and when it was written, in nanoseconds."""


def store_kind(config: Config) -> str:
    """Return the kind of the catalog store; Flink's key in the options has the same meaning."""
    theirs = config.options.get(STORE_KIND_OPTION)
    return theirs if theirs in ("file", IN_MEMORY) else config.catalog_store.kind


def store_folder(config: Config) -> Path:
    """Return the directory of the catalog store if its kind is ``file``."""
    theirs = config.options.get(STORE_PATH_OPTION)
    return Path(config.catalog_store.path or theirs or config.data / "catalogs").resolve()


class SplitExternalObjects:
    """Everything in one place, but the catalogs in another."""

    def __init__(self, others: ExternalObjects, catalogs: ExternalObjects) -> None:
        self._others = others
        self._catalogs = catalogs

    def all(self, kind: SecuredKind) -> tuple[ExternalObject, ...]:
        return self._of(kind).all(kind)

    def create(self, added: ExternalObject) -> bool:
        return self._of(added.kind).create(added)

    def replace(self, changed: ExternalObject) -> bool:
        return self._of(changed.kind).replace(changed)

    def drop(self, object_id: str) -> None:
        self._catalogs.drop(object_id)
        self._others.drop(object_id)

    def _of(self, kind: SecuredKind) -> ExternalObjects:
        return self._catalogs if kind is SecuredKind.CATALOG else self._others


def catalogs_in_memory(others: ExternalObjects) -> ExternalObjects:
    """Return a store whose catalogs are gone after a restart, as Flink's generic_in_memory."""
    return SplitExternalObjects(others, MemoryExternalObjects())


class CatalogFiles:
    """One YAML file for each catalog, as Flink's FileCatalogStore writes and reads them.

    The files contain the options alone. Owners and comments, for which Flink has no place, are in
    the database; a catalog whose file another program created is unowned. Files may change at any
    time.
    """

    def __init__(self, folder: Path, database: ExternalObjects, new_id: Callable[[], str]) -> None:
        self._folder = folder
        self._database = database
        self._new_id = new_id
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[_Stamp, Mapping[str, str] | None]] = {}
        """The content of files by their paths; None for one that cannot be read."""

    def all(self, kind: SecuredKind) -> tuple[ExternalObject, ...]:
        """Return the catalogs by name.

        :raises ServerError: CATALOG_STORE.
        """
        with self._lock:
            files = self._options()
            recorded = {each.name: each for each in self._database.all(SecuredKind.CATALOG)}
            for name in recorded.keys() - files.keys():
                self._database.drop(recorded[name].id)
            found = []
            for name, (path, options) in sorted(files.items()):
                known = recorded.get(name) or self._record(name, path)
                found.append(replace(known, type=options.get(_TYPE, ""), options=options))
        return tuple(found)

    def create(self, added: ExternalObject) -> bool:
        """Add a catalog; False if its name is taken.

        :raises ServerError: CATALOG_STORE.
        """
        path = self._path(added.name)
        with self._lock:
            if added.name in self._options():
                return False
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(as_yaml(_all_options(added)))
            except FileExistsError:
                return False
            except OSError as problem:
                raise self._unusable(problem) from problem
            if not self._database.create(replace(added, options={})):
                path.unlink(missing_ok=True)
                return False
        return True

    def replace(self, changed: ExternalObject) -> bool:
        """Replace a catalog, whose name stays; False if there is none.

        :raises ServerError: CATALOG_STORE.
        """
        with self._lock:
            found = self._options().get(changed.name)
            if found is None:
                return False
            path, before = found
            options = _all_options(changed)
            if options != before:
                temporary = path.with_suffix(".new")
                try:
                    temporary.write_text(as_yaml(options), "utf-8")
                    os.replace(temporary, path)
                except OSError as problem:
                    raise self._unusable(problem) from problem
            return self._database.replace(replace(changed, options={}))

    def drop(self, object_id: str) -> None:
        """Remove a catalog; ignores an unknown id.

        :raises ServerError: CATALOG_STORE.
        """
        with self._lock:
            for each in self._database.all(SecuredKind.CATALOG):
                if each.id == object_id:
                    found = self._options().get(each.name)
                    try:
                        (found[0] if found else self._path(each.name)).unlink(missing_ok=True)
                    except OSError as problem:
                        raise self._unusable(problem) from problem
                    self._database.drop(object_id)

    def _options(self) -> Mapping[str, tuple[Path, Mapping[str, str]]]:
        """Return the files with their options, by names of catalogs."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            paths = sorted(self._folder.glob(f"*{_SUFFIX}"))
        except OSError as problem:
            raise self._unusable(problem) from problem
        found: dict[str, tuple[Path, Mapping[str, str]]] = {}
        for path in paths:
            name = path.name.removesuffix(_SUFFIX).lower()
            options = self._content(path)
            if options is not None and name not in found and _NAME.fullmatch(name):
                found[name] = (path, options)
        for gone in self._read.keys() - set(paths):
            del self._read[gone]
        return found

    def _content(self, path: Path) -> Mapping[str, str] | None:
        stamp: _Stamp = (0, 0, 0)
        try:
            status = path.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._read.get(path)
            if known is not None and known[0] == stamp:
                return known[1]
            options: Mapping[str, str] | None = read_yaml(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as problem:
            log.warning("%s is no catalog: %s", path, problem)
            options = None
        self._read[path] = (stamp, options)
        return options

    def _record(self, name: str, path: Path) -> ExternalObject:
        """Record a catalog whose file others have created."""
        added = ExternalObject(
            kind=SecuredKind.CATALOG,
            id=self._new_id(),
            name=name,
            owner=UNOWNED,
            created_at=datetime.fromtimestamp(int(path.stat().st_mtime), UTC),
        )
        if self._database.create(added):
            return added
        recorded = self._database.all(SecuredKind.CATALOG)  # another gateway was faster
        return next((each for each in recorded if each.name == name), added)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_SUFFIX}"

    def _unusable(self, problem: OSError) -> Exception:
        reason = problem.strerror or str(problem)
        return error(Code.CATALOG_STORE, path=self._folder, reason=reason)


def _all_options(catalog: ExternalObject) -> Mapping[str, str]:
    others = {key: value for key, value in catalog.options.items() if key.lower() != _TYPE}
    return {_TYPE: catalog.type, **others}


class _Quoted(str):
    """A text that is written in double quotes, as Flink's files have their values."""


class _Dumper(yaml.SafeDumper):
    """Writes such texts."""


def _represent(dumper: yaml.SafeDumper, text: _Quoted) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')


_Dumper.add_representer(_Quoted, _represent)


def as_yaml(options: Mapping[str, str]) -> str:
    """Return options as the content of a file."""
    quoted = {key: _Quoted(value) for key, value in options.items()}
    text: str = yaml.dump(
        quoted, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1 << 30
    )
    return text


def read_yaml(text: str) -> Mapping[str, str]:
    """Return the options in a file; every value is the text that it is written as.

    :raises ValueError: if it is not a flat mapping.
    """
    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)  # it makes texts of all scalars
    except yaml.YAMLError as problem:
        raise ValueError(str(problem).replace("\n", " ")) from problem
    if not isinstance(found, dict) or not all(
        isinstance(part, str) for pair in found.items() for part in pair
    ):
        raise ValueError("it is not a list of keys with values")
    return found
