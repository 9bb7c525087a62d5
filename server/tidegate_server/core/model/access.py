"""What a plan accesses: acts on objects, by which rights are judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Act(Enum):
    """What a plan does with an object."""

    SELECT = "SELECT"
    DESCRIBE = "DESCRIBE"
    """Show its definition."""
    MODIFY = "MODIFY"
    """Change, add or remove rows."""
    ALTER = "ALTER"
    OWN = "OWN"
    """Drop, rename or replace it."""
    CREATE = "CREATE"
    """Create the object. For a schema: create an object in it."""
    USAGE = "USAGE"
    """List what is in a schema, or make it the current one."""
    EXECUTE = "EXECUTE"
    READ = "READ"
    WRITE = "WRITE"
    SET = "SET"
    SHOW = "SHOW"
    USE = "USE"


class ObjectKind(Enum):
    """The kind of an object that a plan accesses."""

    TABLE = "TABLE"
    VIEW = "VIEW"
    SCHEMA = "SCHEMA"
    FUNCTION = "FUNCTION"
    PATH = "PATH"
    """Files named by their path. To CREATE one is to make it the directory of an object."""
    DIRECTORY = "DIRECTORY"
    """The directory to which a link in the location of an external table leads."""
    CONNECTION = "CONNECTION"
    """Another system; to MODIFY it is to change anything there."""
    CATALOG = "CATALOG"
    """A catalog that was created, likewise."""
    CATALOG_TABLE = "CATALOG_TABLE"
    """What such a catalog has under a name. Only a materialized table has rights of its own."""
    SETTING = "SETTING"
    FEATURE = "FEATURE"
    """A way to programs, files or the JVM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One act on one object.

    A table, view or function has a catalog, a schema and a name, a schema has a catalog and a name,
    all in lower case. Of a feature, ``catalog`` is its name in the configuration and ``schema``
    says what uses it. A path or the key of a setting is the ``name``.
    """

    act: Act
    kind: ObjectKind
    catalog: str = ""
    schema: str = ""
    name: str = ""
    owner: str = ""
    """The owner in the metastore, empty if unknown."""
    via: str = ""
    """The innermost view or function in whose query it is, empty for the statement itself."""
    location: str = ""
    """The directory of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a user may use beyond tables."""

    names: tuple[str, ...] = ()
    """As in the configuration."""
    readable: tuple[str, ...] = ()
    """The directories of which the analysis of a statement may open files."""
    catalogs: tuple[str, ...] = ()
    """The catalogs and connections that it may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What the plans of a statement may access."""

    accesses: tuple[Access, ...] = ()
    features: tuple[str, ...] = ()
    """Features that may be used in any way."""
