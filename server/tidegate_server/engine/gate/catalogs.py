"""Gives all sessions the catalogs and connections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import CatalogInspected
from tidegate_server.core.messages.requests import CatalogDefinition
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.engine.gate.gate import catalogs
from tidegate_server.engine.storage.jvm import active_session, java

_FIELD = "\x1f"
_CODES = {
    SecuredKind.CATALOG: Code.INVALID_CATALOG,
    SecuredKind.CONNECTION: Code.INVALID_CONNECTION,
}
_UNUSED = "UNUSED"


def put_catalogs(spark: SparkSession, given: Iterable[CatalogDefinition]) -> None:
    """Replace all catalogs and connections; each is loaded when a statement mentions it."""
    entries = java(spark).java.util.ArrayList()
    for each in given:
        entries.add(_entry(spark, each))
    catalogs(spark).replace(entries)


def check_catalog(spark: SparkSession, given: CatalogDefinition) -> None:
    """Load a catalog, and forget it.

    :raises ServerError: INVALID_CATALOG or INVALID_CONNECTION with the reason why that fails.
    """
    with active_session(spark):  # Iceberg's catalogs look for it
        found = catalogs(spark).check(_entry(spark, given))
    kind, _, reason = str(found).partition(_FIELD)
    if kind:
        hint = given.install if kind == "missing" else f"Check the options of the {given.kind}."
        raise error(_CODES[given.kind], name=given.name, reason=reason.rstrip("."), hint=hint)


def load_catalog(spark: SparkSession, name: str) -> None:
    """Give a session a catalog that becomes its current one, without a statement that names it."""
    with active_session(spark):
        catalogs(spark).use(spark._jsparkSession, name)


def inspect_catalog(spark: SparkSession, name: str) -> CatalogInspected:
    """Return whether a catalog has been loaded."""
    state, _, problem = str(catalogs(spark).state(name)).partition(_FIELD)
    return CatalogInspected(state=state or _UNUSED, problem=problem)


def _entry(spark: SparkSession, given: CatalogDefinition) -> Any:
    util = java(spark).java.util
    options, secrets = util.HashMap(), util.ArrayList()
    for key, value in given.options.items():
        options.put(key, value)
    for key in given.secret:
        secrets.add(given.options[key])
    return catalogs(spark).entry(
        given.name,
        given.kind.value,
        given.class_name,
        given.python_type,
        options,
        secrets,
        given.problem,
    )
