"""Reads the lists of what plans may contain: ``expressions.toml``, ``plans.toml`` and so on."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, TypeVar

_COMMANDS = "commands"

_Row = TypeVar("_Row")


class Need(Enum):
    """What a part of a plan needs, with the name that the lists and the configuration give it."""

    FREE = "free"
    INTERNAL = "internal"
    """Nothing; but only plans that Spark or Delta make themselves contain it."""
    RELATIONS = "relations"
    """Reads an object, which must be determined."""
    OBJECTS = "objects"
    """Names the object of a command, whose row says what is done to it."""
    OPTIONS = "options"
    """What its options need, by :func:`need_of_option`."""
    UNRESOLVED = "unresolved"
    """Never in an analyzed plan."""
    RESOURCES = "resources"
    JAR_FUNCTIONS = "jar-functions"
    SCRIPTS = "scripts"
    PATHS = "paths"
    LOCATIONS = "locations"
    CONNECTIONS = "connections"
    ADMINISTRATORS = "administrators"


class Action(Enum):
    """What a command does to an object."""

    SELECT = "SELECT"
    DESCRIBE = "DESCRIBE"
    MODIFY = "MODIFY"
    ALTER = "ALTER"
    OWN = "OWN"
    CREATE = "CREATE"
    USAGE = "USAGE"
    READ = "READ"
    """Reads files named by their path."""
    WRITE = "WRITE"
    """Writes files named by their path."""
    SET = "SET"
    """Chooses a location, a class, a setting, or keys with values."""
    FEATURE = "FEATURE"
    """Uses a feature, which :attr:`Act.need` names."""


class Kind(Enum):
    """The kind of an object, or of what a command sets."""

    TABLE = "TABLE"
    VIEW = "VIEW"
    TEMPORARY_VIEW = "TEMPORARY VIEW"
    FUNCTION = "FUNCTION"
    SCHEMA = "SCHEMA"
    PATH = "PATH"
    STORAGE = "STORAGE"
    """Provider, location, SerDe, properties and options at once."""
    DIRECTORY = "DIRECTORY"
    """The same of files that are written without a table."""
    READER = "READER"
    """Options that may contain the path of files to read."""
    CATALOG = "CATALOG"
    """The current catalog of the session."""
    LOCATION = "LOCATION"
    PROVIDER = "PROVIDER"
    SERDE = "SERDE"
    OPTIONS = "OPTIONS"
    PROPERTIES = "PROPERTIES"
    SETTING = "SETTING"


@dataclass(frozen=True, slots=True)
class Condition:
    """A field of a command on which an act depends.

    It is present if it is neither false nor None.
    """

    field: str
    present: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a command does to the objects in one of its fields."""

    action: Action
    kind: Kind | None = None
    """None if the type of the field tells it."""
    need: Need | None = None
    """The feature, for Action.FEATURE."""
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A data source."""

    need: Need
    short_names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveFormats:
    """The classes that tables of Hive may use; all others are refused."""

    serdes: frozenset[str]
    input_formats: frozenset[str]
    output_formats: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRules:
    """What keys of properties or options need; the first pattern that matches decides."""

    patterns: tuple[tuple[str, Need], ...]
    default: Need
    values: Mapping[str, frozenset[str]]
    """The values that are free, by key, if not all of them are."""

    def need(self, key: str, value: str) -> Need:
        """Return what setting a key to a value needs."""
        folded = key.lower()
        allowed = self.values.get(folded)
        if allowed is not None and value.lower() not in allowed:
            return Need.JAR_FUNCTIONS
        for pattern, need in self.patterns:
            if fnmatchcase(folded, pattern):
                return need
        return self.default


# ---- classes of plans and expressions ----------------------------------------------------------


@cache
def class_needs() -> Mapping[str, Need]:
    """Return what each class of plans and expressions needs, by its binary name.

    Commands are not among them: see :func:`command_rows`.
    """
    tables = [_read("expressions.toml"), _read("plans.toml")]
    return _unique(
        (f"{package}.{name}", Need(need))
        for table in tables
        for need, packages in table.items()
        if need != _COMMANDS
        for package, names in packages.items()
        for name in names
    )


@cache
def command_rows() -> Mapping[str, Mapping[str, tuple[Act, ...]]]:
    """Return what each command does to the objects in its fields.

    The first key is the binary name of the class; the second, the field, empty for what the command
    is by itself.
    """
    rows = _read("plans.toml")[_COMMANDS]
    return MappingProxyType({name: _command_row(row) for name, row in rows.items()})


def _command_row(row: Mapping[str, str | list[str]]) -> Mapping[str, tuple[Act, ...]]:
    fields: dict[str, tuple[Act, ...]] = {}
    for key, value in row.items():
        field, condition = _field(key)
        texts = [value] if isinstance(value, str) else value
        acts = tuple(_act(text, condition) for text in texts)
        fields[field] = (*fields.get(field, ()), *acts)
    return MappingProxyType(fields)


def _field(key: str) -> tuple[str, Condition | None]:
    """Split ``field``, ``field if other`` or ``field unless other``."""
    match key.split(" "):
        case [field]:
            return field, None
        case [field, "if", other]:
            return field, Condition(other, present=True)
        case [field, "unless", other]:
            return field, Condition(other, present=False)
    raise ValueError(f"not a field of a command: {key}")


def _act(text: str, condition: Condition | None) -> Act:
    action, _, rest = text.partition(" ")
    if action == Action.FEATURE.value:
        return Act(action=Action.FEATURE, need=Need(rest), condition=condition)
    kind = Kind(rest) if rest else None
    return Act(action=Action(action), kind=kind, condition=condition)


# ---- functions ---------------------------------------------------------------------------------


@cache
def function_needs() -> Mapping[str, Need]:
    """Return what each built-in function needs, by its name."""
    table = _read("functions.toml")
    return _unique((name, Need(need)) for need, names in table.items() for name in names)


@cache
def guarded_functions() -> Mapping[str, Need]:
    """Return the functions to check when they are constructed, with what they need."""
    return MappingProxyType({k: v for k, v in function_needs().items() if v is not Need.FREE})


# ---- data sources, formats, keys ---------------------------------------------------------------


@cache
def sources() -> Mapping[str, Source]:
    """Return the data sources by the binary name of their class."""
    table = _read("sources.toml")["sources"]
    return _unique(
        (name, Source(Need(need), tuple(short_names)))
        for need, rows in table.items()
        for name, short_names in rows.items()
    )


@cache
def source_needs() -> Mapping[str, Need]:
    """Return what each data source needs, by the binary name of its class."""
    return MappingProxyType({name: source.need for name, source in sources().items()})


@cache
def hive_formats() -> HiveFormats:
    """Return the SerDes and formats that tables of Hive may use."""
    table = _read("sources.toml")
    return HiveFormats(
        serdes=frozenset(table["serdes"]["free"]),
        input_formats=frozenset(table["input-formats"]["free"]),
        output_formats=frozenset(table["output-formats"]["free"]),
    )


@cache
def property_rules() -> KeyRules:
    """Return the rules for properties; keys that need OPTIONS are those of options."""
    return _key_rules(_read("sources.toml")["table-properties"])


@cache
def option_rules() -> KeyRules:
    """Return the rules for options of readers and writers, and for properties of SerDes."""
    return _key_rules(_read("sources.toml")["options"])


def need_of_property(key: str, value: str) -> Need:
    """Return what setting a property of a table, view or schema needs."""
    need = property_rules().need(key, value)
    return need_of_option(key, value) if need is Need.OPTIONS else need


def need_of_option(key: str, value: str) -> Need:
    """Return what an option, or the property that Spark makes an option of, needs."""
    return option_rules().need(_without_prefix(key, "option."), value)


def _without_prefix(key: str, prefix: str) -> str:
    return key[len(prefix) :] if key.lower().startswith(prefix) else key


def _key_rules(table: Mapping[str, Any]) -> KeyRules:
    values = table.get("values", {})
    return KeyRules(
        patterns=tuple(
            (pattern.lower(), Need(need))
            for need, patterns in table.items()
            if need not in ("default", "values")
            for pattern in patterns
        ),
        default=Need(table["default"]),
        values=MappingProxyType({k.lower(): frozenset(v) for k, v in values.items()}),
    )


# ---- reading -----------------------------------------------------------------------------------


@cache
def _read(name: str) -> Mapping[str, Any]:
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return MappingProxyType(tomllib.loads(text))


def _unique(rows: Iterable[tuple[str, _Row]]) -> Mapping[str, _Row]:
    """Return rows by their key.

    :raises ValueError: if two of them have the same key.
    """
    found: dict[str, _Row] = {}
    for key, row in rows:
        if key in found:
            raise ValueError(f"listed twice: {key}")
        found[key] = row
    return MappingProxyType(found)
