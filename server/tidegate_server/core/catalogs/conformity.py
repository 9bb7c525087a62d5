"""The rules that a catalog written in Python keeps, each tried on a real one; no Spark is needed.

What is created is in a schema of its own, and dropped again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlparse

from tidegate_server.core.catalogs.base import (
    DELTA,
    Catalog,
    CatalogTable,
    PythonCatalogType,
    TableColumn,
    TablePartition,
)
from tidegate_server.core.catalogs.encoding import decode_table, encode_table
from tidegate_server.core.catalogs.options import CatalogOption
from tidegate_server.core.catalogs.rows import ROWS

_MOST_TABLES: Final = 50
_THREADS: Final = 8
_COLUMNS: Final = (
    TableColumn(name="id", type="INT", comment="a number"),
    TableColumn(name="v", type="DECIMAL(10,2)"),
    TableColumn(name="day", type="DATE"),
)


class Outcome(Enum):
    """What came of a rule."""

    HOLDS = "holds"
    BROKEN = "broken"
    NOT_OFFERED = "not offered"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule, and whether a catalog keeps it."""

    rule: str
    outcome: Outcome
    reason: str = ""


class BrokenRuleError(Exception):
    """How a catalog breaks a rule."""


@dataclass(slots=True)
class Trial:
    """A catalog on trial, with the places for what is created."""

    kind: PythonCatalogType
    options: Mapping[str, str]
    scratch: Path
    """An empty directory for the files of tables with a location."""
    new_name: Callable[[], str] = lambda: uuid.uuid4().hex[:8]
    opened: list[Catalog] = field(default_factory=list)
    schema: str = ""
    """The schema that was created."""

    @property
    def catalog(self) -> Catalog:
        """The catalog; opened once."""
        return self.opened[0] if self.opened else self.open()

    def open(self) -> Catalog:
        """Open the catalog once more."""
        self.opened.append(self.kind.open(self.options))
        return self.opened[-1]

    def method(self, name: str) -> Callable[..., Any]:
        """Return a method that may be missing."""
        return getattr(self.catalog, name)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, and how it is tried."""

    text: str
    try_out: Callable[[Trial], None]
    needs: tuple[str, ...] = ()
    """The methods without which it does not apply."""


def check(trial: Trial, rules: Sequence[Rule] | None = None) -> Iterator[Finding]:
    """Try the rules, one after the other; everything that was opened is closed."""
    try:
        for rule in RULES if rules is None else rules:
            yield _find(rule, trial)
    finally:
        for catalog in trial.opened:
            close = getattr(catalog, "close", None)
            if close is not None:
                close()


def _find(rule: Rule, trial: Trial) -> Finding:
    try:
        if any(not hasattr(trial.catalog, method) for method in rule.needs):
            return Finding(rule.text, Outcome.NOT_OFFERED)
        rule.try_out(trial)
    except Exception as caught:  # whatever a catalog raises breaks the rule
        reason = str(caught)
        if not isinstance(caught, BrokenRuleError):
            reason = f"{type(caught).__name__}: {caught}"
        return Finding(rule.text, Outcome.BROKEN, reason)
    return Finding(rule.text, Outcome.HOLDS)


def _require(holds: object, reason: str) -> None:
    if not holds:
        raise BrokenRuleError(reason)


# ---- the type -----------------------------------------------------------------------------------


def _describes_itself(trial: Trial) -> None:
    kind = trial.kind
    plain = kind.name.islower() and kind.name.isascii() and ":" not in kind.name
    _require(plain, f"its name is {kind.name!r}")
    _require(kind.description.endswith("."), "its description is no sentence")


def _describes_options(trial: Trial) -> None:
    options = trial.kind.options
    _require(isinstance(options, tuple), "options is no tuple")
    for each in options:
        _require(isinstance(each, CatalogOption), f"{each!r} is no CatalogOption")
        _require(each.name == each.name.lower(), f"the name {each.name} is not in lower case")
        _require(each.name != "type", "type is the name of an option")
    names = [each.name for each in options]
    _require(len(set(names)) == len(names), "an option is there twice")


def _opens(trial: Trial) -> None:
    for name in ("schemas", "tables", "get_table"):
        _require(callable(getattr(trial.catalog, name, None)), f"the catalog has no method {name}")


# ---- reading ------------------------------------------------------------------------------------


def _lists_schemas(trial: Trial) -> None:
    _require_names(trial.catalog.schemas(), "schemas")


def _lists_tables(trial: Trial) -> None:
    for schema in trial.catalog.schemas():
        _require_names(trial.catalog.tables(schema), f"tables({schema!r})")


def _require_names(found: Sequence[object], what: str) -> None:
    names = list(found)
    _require(all(isinstance(each, str) and each for each in names), f"{what} returned {names!r}")
    _require(len(set(names)) == len(names), f"{what} returned a name twice: {names!r}")


def _knows_no_missing_schema(trial: Trial) -> None:
    missing = f"missing_{trial.new_name()}"
    found = list(trial.catalog.tables(missing))
    _require(not found, f"tables({missing!r}) returned {found!r}")
    _require(trial.catalog.get_table(missing, "t") is None, "get_table returned a table")


def _knows_no_missing_table(trial: Trial) -> None:
    for schema in trial.catalog.schemas():
        found = trial.catalog.get_table(schema, f"missing_{trial.new_name()}")
        _require(found is None, f"get_table returned {found!r}")


def _tables(trial: Trial) -> Iterator[tuple[str, str, CatalogTable]]:
    names = (
        (schema, name)
        for schema in trial.catalog.schemas()
        for name in trial.catalog.tables(schema)
    )
    for count, (schema, name) in enumerate(names):
        if count == _MOST_TABLES:
            return
        found = trial.catalog.get_table(schema, name)
        _require(isinstance(found, CatalogTable), f"get_table({schema!r}, {name!r}) is {found!r}")
        assert found is not None
        yield schema, name, found


def _returns_listed_tables(trial: Trial) -> None:
    for _ in _tables(trial):
        pass


def _returns_usable_tables(trial: Trial) -> None:
    for schema, name, table in _tables(trial):
        _require_usable(table, f"{schema}.{name}")


def _require_usable(table: CatalogTable, name: str) -> None:
    _require(table.format, f"{name} has no format")
    if table.format.lower() == DELTA:
        _require(table.location, f"{name} is a Delta table without a location")
    else:
        _require(table.columns, f"{name} has no columns")
    if table.location is not None:
        _require_absolute(table.location, name)
    _require(
        decode_table(json.loads(json.dumps(encode_table(table)))) == table, f"{name} is changed"
    )


def _require_absolute(location: str, name: str) -> None:
    absolute = bool(urlparse(location).scheme) or location.startswith("/")
    _require(absolute, f"the location {location} of {name} is not absolute")


def _lists_partitions(trial: Trial) -> None:
    for schema, name, table in _tables(trial):
        if not table.read_only or not table.partition_keys:
            continue
        for each in trial.method("partitions")(schema, name):
            _require(isinstance(each, TablePartition), f"partitions returned {each!r}")
            complete = len(each.values) == len(table.partition_keys)
            _require(complete, f"{schema}.{name} has a partition with the values {each.values!r}")
            _require_absolute(each.location, f"a partition of {schema}.{name}")


def _serves_threads(trial: Trial) -> None:
    def read(_: int) -> list[tuple[str, str, CatalogTable]]:
        return list(_tables(trial))

    with ThreadPoolExecutor(_THREADS) as pool:
        first, *others = pool.map(read, range(_THREADS))
    _require(all(each == first for each in others), "threads at the same time read other tables")


def _has_versions(trial: Trial) -> None:
    for schema, name, _ in _tables(trial):
        version = trial.method("version")(schema, name)
        _require(version is None or isinstance(version, str), f"version returned {version!r}")
        again = trial.method("version")(schema, name)
        _require(version == again, f"{schema}.{name} has the version {version!r}, then {again!r}")


# ---- writing ------------------------------------------------------------------------------------


def _creates_schemas(trial: Trial) -> None:
    name = f"conformity_{trial.new_name()}"
    trial.method("create_schema")(name, {"comment": "of the conformity suite"})
    trial.schema = name
    _require(name in trial.catalog.schemas(), f"{name} is not listed")
    _require(not trial.catalog.tables(name), f"{name} has tables")


def _creates_tables(trial: Trial) -> None:
    schema = _schema(trial)
    given = CatalogTable(
        columns=_COLUMNS, partition_keys=("day",), comment="c", properties={"user.team": "x"}
    )
    made = trial.method("create_table")(schema, "t", given)
    _require(isinstance(made, CatalogTable), f"create_table returned {made!r}")
    _require_usable(made, "the table that create_table returned")
    found = trial.catalog.get_table(schema, "t")
    _require(found == made, f"create_table returned {made!r}, get_table {found!r}")
    _require("t" in trial.catalog.tables(schema), "the new table is not listed")
    if made.format.lower() != DELTA:
        _require(made.columns == given.columns, f"its columns are {made.columns!r}")
        _require(made.partition_keys == ("day",), f"it has the keys {made.partition_keys!r}")
        _require(made.comment == "c", f"its comment is {made.comment!r}")
        _require(made.properties == given.properties, f"its properties are {made.properties!r}")


def _keeps_what_is_given(trial: Trial) -> None:
    schema, place = _schema(trial), trial.scratch / "given"
    place.mkdir()
    file = place / "part-0"
    file.write_text("1\n")
    form = _plain_table(trial, schema, "form").format
    if form == ROWS:
        return  # only the catalog knows where its rows are
    given = CatalogTable(
        format=form, columns=_COLUMNS[:1], location=str(place), options={"compression": "gzip"}
    )
    made = trial.method("create_table")(schema, "given", given)
    for what in ("format", "location", "options"):
        wanted, got = getattr(given, what), getattr(made, what)
        _require(wanted == got, f"the {what} is {got!r}, not {wanted!r}")
    trial.method("drop_table")(schema, "given")
    _require(file.exists(), "it deleted the files of a LOCATION that it does not own")


def _alters_tables(trial: Trial) -> None:
    schema = _schema(trial)
    before = _plain_table(trial, schema, "altered")
    if before.format.lower() == DELTA:
        return  # only its log is altered
    wider = (*_COLUMNS[:1], replace(_COLUMNS[1], comment="new"))
    after = replace(before, columns=wider, comment="d", properties={"user.k": "w"})
    trial.method("alter_table")(schema, "altered", after)
    found = trial.catalog.get_table(schema, "altered")
    _require(found == after, f"get_table returned {found!r}, not {after!r}")
    trial.method("drop_table")(schema, "altered")


def _renames_tables(trial: Trial) -> None:
    schema = _schema(trial)
    before = _plain_table(trial, schema, "before")
    trial.method("rename_table")(schema, "before", schema, "after")
    _require(trial.catalog.get_table(schema, "before") is None, "the old name is still there")
    found = trial.catalog.get_table(schema, "after")
    if found is not None and found.format == ROWS:
        found = replace(found, location=before.location)  # only for information
    _require(found == before, f"{before!r} became {found!r}")
    again = _plain_table(trial, schema, "before")
    same = again.location == before.location and before.format != ROWS
    _require(not same, "a new table of the old name has the same files")
    for name in ("before", "after"):
        trial.method("drop_table")(schema, name)


def _drops_tables(trial: Trial) -> None:
    schema = _schema(trial)
    _plain_table(trial, schema, "dropped")
    _require(trial.method("drop_table")(schema, "dropped") is True, "drop_table is not True")
    _require(trial.catalog.get_table(schema, "dropped") is None, "the table is still there")
    _require("dropped" not in trial.catalog.tables(schema), "the table is still listed")
    _require(trial.method("drop_table")(schema, "dropped") is False, "a second time is not False")


def _shows_others(trial: Trial) -> None:
    schema = _schema(trial)
    made = _plain_table(trial, schema, "shared")
    found = trial.open().get_table(schema, "shared")
    _require(found == made, f"another open catalog returned {found!r}, not {made!r}")
    trial.method("drop_table")(schema, "shared")


def _drops_schemas(trial: Trial) -> None:
    schema = _schema(trial)
    for name in list(trial.catalog.tables(schema)):
        trial.method("drop_table")(schema, name)
    trial.method("drop_schema")(schema)
    _require(schema not in trial.catalog.schemas(), f"{schema} is still listed")
    trial.schema = ""


def _schema(trial: Trial) -> str:
    _require(trial.schema, "the schema for it could not be created")
    return trial.schema


def _plain_table(trial: Trial, schema: str, name: str) -> CatalogTable:
    given = CatalogTable(columns=_COLUMNS[:1], properties={"user.k": "v"})
    made: CatalogTable = trial.method("create_table")(schema, name, given)
    return made


_WRITES = ("create_schema", "drop_schema", "create_table", "drop_table")

RULES: Final = (
    Rule("the type has a name in lower case and a description", _describes_itself),
    Rule("the options of the type are well formed", _describes_options),
    Rule("open returns a catalog with the methods that read", _opens),
    Rule("schemas are listed once", _lists_schemas),
    Rule("tables are listed once", _lists_tables),
    Rule("a missing schema has no tables", _knows_no_missing_schema),
    Rule("a missing table is None", _knows_no_missing_table),
    Rule("each listed table is found", _returns_listed_tables),
    Rule("each table has what Spark needs to read it", _returns_usable_tables),
    Rule("partitions have a value for each key, and a place", _lists_partitions, ("partitions",)),
    Rule("threads read at the same time", _serves_threads),
    Rule("a table that does not change keeps its version", _has_versions, ("version",)),
    Rule("a schema is created", _creates_schemas, _WRITES),
    Rule("a table is created as it was described", _creates_tables, _WRITES),
    Rule("format, location, options and foreign files are kept", _keeps_what_is_given, _WRITES),
    Rule("a table is altered", _alters_tables, (*_WRITES, "alter_table")),
    Rule("a table is renamed", _renames_tables, (*_WRITES, "rename_table")),
    Rule("a table is dropped once", _drops_tables, _WRITES),
    Rule("a second open catalog sees changes", _shows_others, _WRITES),
    Rule("a schema is dropped", _drops_schemas, _WRITES),
)
"""All rules, in the order in which they are tried."""
