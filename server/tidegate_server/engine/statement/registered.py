"""Updates owner and comment in the metastore's entries of what a statement changes.

Spark records the user of its own process as the owner of a schema, and Delta changes a comment only
in its log. Metadata calls and SHOW TABLE EXTENDED read the entries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.model.names import TableName, qualify
from tidegate_server.engine.query.resolution import current_place
from tidegate_server.engine.statement.targets import (
    CopyTarget,
    NewSchemaTarget,
    NewTarget,
    TableTarget,
    Target,
    is_path,
)
from tidegate_server.engine.storage.delta.commits import newest_snapshot
from tidegate_server.engine.storage.entries import (
    SCHEMA_OWNER,
    TABLE_OWNER,
    entry_of,
    provider_of,
    set_schema_property,
)
from tidegate_server.engine.storage.jvm import java, with_fields

logger = logging.getLogger(__name__)

_REPLACING: Final = "CREATE OR REPLACE TABLE"
_COMMENTING: Final = ("COMMENT ON TABLE", "ALTER TABLE", "RESTORE", _REPLACING)
_COMMENT: Final = 14
"""Position of the comment in Spark's CatalogTable."""


@contextmanager
def update_entries(spark: SparkSession, targets: Iterable[Target], user: str) -> Iterator[None]:
    """After the block, record the owner of created tables and the comment of changed ones.

    :param targets: what the statement changes.
    :param user: the user who runs the statement; empty if unknown.
    """
    targets = tuple(targets)
    makes, comments = _changes(spark, targets)
    new = [name for name in makes if entry_of(spark, name) is None]
    catalog: Any = spark._jsparkSession.sharedState().externalCatalog()
    schemas = [target.name[-1].lower() for target in targets if isinstance(target, NewSchemaTarget)]
    new_schemas = [schema for schema in schemas if not catalog.databaseExists(schema)]
    yield
    for schema in new_schemas if user else ():
        _own_schema(catalog, schema, user)
    for name in dict.fromkeys((*makes, *comments)):
        try:
            _update_entry(spark, name, owner=user if name in new else "")
        except (PySparkException, Py4JError):
            # Not an error: the statement has succeeded, and the entry is as Spark left it.
            logger.warning("the metastore entry of %s is out of date", name, exc_info=True)


def _own_schema(catalog: Any, schema: str, user: str) -> None:
    if catalog.databaseExists(schema):  # otherwise it has another catalog
        set_schema_property(catalog, schema, SCHEMA_OWNER, user)


def _changes(
    spark: SparkSession, targets: Iterable[Target]
) -> tuple[list[TableName], list[TableName]]:
    """Return the tables that a statement may create, and those whose comment it may change."""
    makes: list[tuple[str, ...]] = []
    comments: list[tuple[str, ...]] = []
    for target in targets:
        match target:
            case NewTarget(name=parts) | CopyTarget(name=parts):
                makes.append(parts)
            case TableTarget(action=action, name=parts) if action in _COMMENTING:
                (makes if action == _REPLACING else comments).append(parts)
            case _:
                continue
    place = current_place(spark)

    def full(names: Iterable[tuple[str, ...]]) -> list[TableName]:
        fitting = (parts for parts in names if len(parts) <= 3 and not is_path(parts))
        return [qualify(parts, place.catalog, place.schema) for parts in fitting]

    return full(makes), full(comments)


def _update_entry(spark: SparkSession, name: TableName, owner: str) -> None:
    entry = entry_of(spark, name)
    if entry is None or entry.tableType().name() == "VIEW":
        return
    changes: dict[int, Any] = {}
    if owner and entry.owner() != owner:
        changes[TABLE_OWNER] = owner
    if provider_of(entry) == "delta":
        jvm: Any = java(spark)
        logs = jvm.org.apache.spark.sql.delta.DeltaLog
        log = logs.forTable(spark._jsparkSession, entry.identifier())
        described = newest_snapshot(jvm, log).metadata().description()
        known = entry.comment().get() if entry.comment().isDefined() else None
        if described != known:
            changes[_COMMENT] = jvm.scala.Option.apply(described)
    if changes:
        catalog: Any = spark._jsparkSession.sharedState().externalCatalog()
        catalog.alterTable(with_fields(entry, changes))
