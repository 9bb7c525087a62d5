"""Statements on catalogs, as frozen records; names of catalogs are in lower case.

https://nightlies.apache.org/flink/flink-docs-master/docs/dev/table/sql/create/#create-catalog
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Places = Mapping[str, tuple[int, int]]
"""Lines and columns of options in the text, by their keys; for errors alone."""


def _no_places() -> Places:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCatalog:
    """CREATE CATALOG [IF NOT EXISTS] c [COMMENT '...'] WITH ('type'='...', ...)."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    """As written, with references to secrets."""
    comment: str | None = None
    if_not_exists: bool = False
    places: Places = field(default_factory=_no_places, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCatalogOptions:
    """ALTER CATALOG c SET ('k'='v', ...)."""

    name: str
    options: Mapping[str, str]
    places: Places = field(default_factory=_no_places, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetCatalogOptions:
    """ALTER CATALOG c RESET ('k', ...)."""

    name: str
    keys: tuple[str, ...]
    places: Places = field(default_factory=_no_places, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCatalogComment:
    """ALTER CATALOG c COMMENT '...'."""

    name: str
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCatalog:
    """DROP CATALOG [IF EXISTS] c."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCatalogs:
    """SHOW CATALOGS [[NOT] { LIKE | ILIKE } '...']; Spark also has it without LIKE."""

    pattern: str | None = None
    negated: bool = False
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCurrentCatalog:
    """SHOW CURRENT CATALOG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCatalog:
    """{ DESCRIBE | DESC } CATALOG [EXTENDED] c."""

    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateCatalog:
    """SHOW CREATE CATALOG c."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCatalog:
    """USE CATALOG c, or Spark's SET CATALOG c."""

    name: str


CatalogStatement = (
    CreateCatalog
    | SetCatalogOptions
    | ResetCatalogOptions
    | SetCatalogComment
    | DropCatalog
    | ShowCatalogs
    | ShowCurrentCatalog
    | DescribeCatalog
    | ShowCreateCatalog
    | UseCatalog
)
