"""Updates the metastore's entries of what a statement changes.

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
    entry_of,
    provider_of,
    set_schema_property,
)
from tidegate_server.engine.storage.jvm import java, with_fields

logger = logging.getLogger(__name__)

_COMMENTING: Final = ("COMMENT ON TABLE", "ALTER TABLE", "RESTORE", "CREATE OR REPLACE TABLE")
_COMMENT: Final = 14
"""Position of the comment in Spark's CatalogTable."""


@contextmanager
def update_entries(spark: SparkSession, targets: Iterable[Target], user: str) -> Iterator[None]:
    """After the block, record the owner of created schemas and the comment of changed tables.

    :param targets: what the statement changes.
    :param user: the user who runs the statement; empty if unknown.
    """
    targets = tuple(targets)
    changed = _changed_tables(spark, targets)
    catalog: Any = spark._jsparkSession.sharedState().externalCatalog()
    schemas = [target.name[-1].lower() for target in targets if isinstance(target, NewSchemaTarget)]
    new_schemas = [schema for schema in schemas if not catalog.databaseExists(schema)]
    yield
    for schema in new_schemas if user else ():
        _own_schema(catalog, schema, user)
    for name in dict.fromkeys(changed):
        try:
            _update_comment(spark, name)
        except (PySparkException, Py4JError):
            # Not an error: the statement has succeeded, and the entry is as Spark left it.
            logger.warning("the metastore entry of %s is out of date", name, exc_info=True)


def _own_schema(catalog: Any, schema: str, user: str) -> None:
    if catalog.databaseExists(schema):  # otherwise it has another catalog
        set_schema_property(catalog, schema, SCHEMA_OWNER, user)


def _changed_tables(spark: SparkSession, targets: Iterable[Target]) -> list[TableName]:
    """Return the tables whose comment a statement may change."""
    names: list[tuple[str, ...]] = []
    for target in targets:
        match target:
            case NewTarget(name=parts) | CopyTarget(name=parts):
                names.append(parts)
            case TableTarget(action=action, name=parts) if action in _COMMENTING:
                names.append(parts)
            case _:
                continue
    place = current_place(spark)
    fitting = (parts for parts in names if len(parts) <= 3 and not is_path(parts))
    return [qualify(parts, place.catalog, place.schema) for parts in fitting]


def _update_comment(spark: SparkSession, name: TableName) -> None:
    entry = entry_of(spark, name)
    if entry is None or provider_of(entry) != "delta":
        return
    jvm: Any = java(spark)
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, entry.identifier())
    described = newest_snapshot(jvm, log).metadata().description()
    known = entry.comment().get() if entry.comment().isDefined() else None
    if described != known:
        changed = with_fields(entry, {_COMMENT: jvm.scala.Option.apply(described)})
        spark._jsparkSession.sharedState().externalCatalog().alterTable(changed)
