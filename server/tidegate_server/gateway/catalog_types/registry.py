"""Finds the types of catalogs: the built-in ones, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Final, cast

from tidegate_server.core.catalogs.base import PythonCatalogType
from tidegate_server.core.catalogs.hive.catalog_type import HiveType
from tidegate_server.core.catalogs.kafka import KafkaType
from tidegate_server.core.catalogs.loading import GROUP, is_python_type, load_type
from tidegate_server.core.errors import Code, error
from tidegate_server.gateway.catalog_types.base import CatalogType
from tidegate_server.gateway.catalog_types.iceberg import IcebergType
from tidegate_server.gateway.catalog_types.jdbc import JdbcType
from tidegate_server.gateway.catalog_types.options import nearest
from tidegate_server.gateway.catalog_types.paimon import PaimonType
from tidegate_server.gateway.catalog_types.tidegate import TidegateType

AnyType = CatalogType | PythonCatalogType
_BUILT_IN: Final[tuple[AnyType, ...]] = (
    JdbcType(),
    IcebergType(),
    PaimonType(),
    TidegateType(),
    KafkaType(),
    HiveType(),
)
_ELSEWHERE: Final[Mapping[str, str]] = {
    "generic_in_memory": "Temporary views last as long as a session: CREATE TEMPORARY VIEW.",
}
"""Types of Flink that have no meaning here, and what serves their purpose."""
_METHODS = ("spark_catalog", "options")


@cache
def known_types() -> tuple[str, ...]:
    """Return the names of all types."""
    offered = {each.name for each in entry_points(group=GROUP)}
    return tuple(sorted({each.name for each in _BUILT_IN} | offered))


@cache
def find_type(name: str) -> AnyType | None:
    """Return a type, the built-in one first; None if there is none of this name.

    :raises ServerError: CATALOG_TYPE if a package offers it, but it cannot be loaded.
    """
    for each in _BUILT_IN:
        if each.name == name:
            return each
    try:
        found = load_type(name)
    except Exception as caught:
        reason = f"the package that offers it cannot be loaded: {caught}"
        raise error(Code.CATALOG_TYPE, type=name, reason=reason, hint="") from caught
    complete = all(hasattr(found, method) for method in _METHODS)
    if found is not None and not complete and not is_python_type(found):
        reason = "the package that offers it does not implement CatalogType or PythonCatalogType"
        raise error(Code.CATALOG_TYPE, type=name, reason=reason, hint="")
    return cast("AnyType | None", found)


def require_type(name: str, place: tuple[int, int] | None = None) -> AnyType:
    """Return a type.

    :param place: line and column of the option that names it.
    :raises ServerError: CATALOG_TYPE.
    """
    found = find_type(name.lower())
    if found is not None:
        return found
    line, column = place or (None, None)
    hint = _ELSEWHERE.get(name.lower()) or nearest(name, known_types())
    raise error(
        Code.CATALOG_TYPE, type=name, reason="it is not known", hint=hint, line=line, column=column
    )
