"""What a statement changes, told by Spark's own parser.

No spelling is missed: names and paths, LOCATION, IDENTIFIER, EXECUTE IMMEDIATE, scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.references import (
    identifier_parts,
    parse_statement,
    relation_parts,
    statement_text,
)
from tidegate_server.storage.jvm import items, java, kind

_FILE_FORMATS = frozenset(
    {"delta", "parquet", "orc", "csv", "json", "text", "avro", "xml", "binaryfile", "hudi"}
)
_QUERIES = frozenset(
    {"Project", "Aggregate", "Sort", "GlobalLimit", "LocalLimit", "Distinct", "Filter"}
    | {"SetCommand", "SetCatalogAndNamespace", "ShowTables", "ExplainCommand", "UnresolvedHaving"}
)
_NESTED = frozenset(
    {"UnresolvedWith", "Union", "CompoundBody", "IfElseStatement", "WhileStatement"}
    | {"RepeatStatement", "LoopStatement", "ForStatement", "CaseStatement"}
    | {"SimpleCaseStatement", "SearchedCaseStatement"}
)
_NAMED = frozenset({"UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView"})
_HARMLESS = ("DESCRIBE", "SHOW", "REFRESH")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """A table or view that a statement changes, by its name as written."""

    action: str
    name: tuple[str, ...]
    rows: bool = False
    """Whether rows are changed, for which Spark looks through views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTarget:
    """A place that a statement writes to or makes into a table."""

    action: str
    path: str
    below: bool = False
    """Whether everything below the place goes as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTarget:
    """A schema that a statement drops."""

    name: tuple[str, ...]


Target = TableTarget | PathTarget | SchemaTarget


def targets(spark: SparkSession, text: str) -> Iterator[Target]:
    """Yield what a statement changes, without analyzing it."""
    yield from _targets(spark, parse_statement(spark, text), script=False)


def _targets(spark: SparkSession, plan: Any, *, script: bool) -> Iterator[Target]:
    found = kind(plan)
    if found in _QUERIES:
        return
    if found in _NESTED:
        inside = script or found not in ("UnresolvedWith", "Union")
        handled = items(plan.handlers()) if found == "CompoundBody" else ()
        for child in (*items(plan.children()), *(handler.body() for handler in handled)):
            yield from _targets(spark, child, script=inside)
    elif found == "SingleStatement":
        yield from _targets(spark, plan.parsedPlan(), script=True)
    elif found == "UnresolvedExecuteImmediate":
        inner = statement_text(spark, plan.sqlStmtStr(), script=script)
        yield from _targets(spark, parse_statement(spark, inner), script=script)
    elif found == "PlanWithUnresolvedIdentifier":
        named = plan.planBuilder().apply(
            identifier_parts(spark, plan.identifierExpr()), plan.children()
        )
        yield from _targets(spark, named, script=script)
    else:
        rule = _RULES.get(found, _named)
        yield from rule(spark, plan)


# ---- what each statement changes ---------------------------------------------------------------


def _named(spark: SparkSession, plan: Any) -> Iterator[Target]:
    """Yield the target of the many commands that have it as their first child."""
    for child in items(plan.children()):
        found = kind(child)
        if found in _NAMED:
            action = str(child.commandName()).split(" ...")[0]
            if not action.startswith(_HARMLESS) or action == "SHOW CREATE TABLE":
                yield TableTarget(action=action, name=_parts(child.multipartIdentifier()))
        elif found == "UnresolvedPathBasedDeltaTable":
            yield PathTarget(action=str(child.commandName()), path=str(child.path()))
        elif found == "PlanWithUnresolvedIdentifier":
            name = identifier_parts(spark, child.identifierExpr())
            built = child.planBuilder().apply(name, child.children())
            yield from _named(spark, plan.withNewChildren(_one(spark, built)))


def _one(spark: SparkSession, node: Any) -> Any:
    jvm: Any = java(spark)
    return jvm.PythonUtils.toSeq([node])


def _rows(action: str, field: str = "table") -> Callable[[SparkSession, Any], Iterator[Target]]:
    def rule(spark: SparkSession, plan: Any) -> Iterator[Target]:
        name = relation_parts(spark, getattr(plan, field)())
        if name is not None:
            yield TableTarget(action=action, name=name, rows=True)

    return rule


def _create(spark: SparkSession, plan: Any) -> Iterator[Target]:
    name = _child_name(spark, plan.name())
    if is_path(name):
        yield PathTarget(action="CREATE TABLE", path=name[-1])
    yield from _places("CREATE TABLE", plan.tableSpec())


def _replace(spark: SparkSession, plan: Any) -> Iterator[Target]:
    action = "CREATE OR REPLACE TABLE"
    yield TableTarget(action=action, name=_child_name(spark, plan.name()))
    yield from _places(action, plan.tableSpec())


def _places(action: str, spec: Any) -> Iterator[Target]:
    if spec.location().isDefined():
        yield PathTarget(action=action, path=str(spec.location().get()))
    if kind(spec) == "UnresolvedTableSpec":
        for option in items(spec.optionExpression().options()):
            if str(option._1()).lower() == "path" and kind(option._2()) == "Literal":
                yield PathTarget(action=action, path=str(option._2().value().toString()))


def _create_like(spark: SparkSession, plan: Any) -> Iterator[Target]:
    yield from _storage_place("CREATE TABLE", plan.fileFormat(), below=False)


def _clone(spark: SparkSession, plan: Any) -> Iterator[Target]:
    name = relation_parts(spark, plan.target())
    if name is not None and (plan.isReplaceCommand() or is_path(name)):
        yield TableTarget(action="CREATE OR REPLACE TABLE", name=name)
    if plan.targetLocation().isDefined():
        yield PathTarget(action="CREATE TABLE", path=str(plan.targetLocation().get()))


def _drop(action: str) -> Callable[[SparkSession, Any], Iterator[Target]]:
    def rule(spark: SparkSession, plan: Any) -> Iterator[Target]:
        yield TableTarget(action=action, name=_child_name(spark, plan.child()))

    return rule


def _create_view(spark: SparkSession, plan: Any) -> Iterator[Target]:
    if plan.replace():
        yield TableTarget(action="CREATE OR REPLACE VIEW", name=_child_name(spark, plan.child()))


def _drop_schema(spark: SparkSession, plan: Any) -> Iterator[Target]:
    yield SchemaTarget(name=_child_name(spark, plan.namespace()))


def _write_directory(spark: SparkSession, plan: Any) -> Iterator[Target]:
    yield from _storage_place("INSERT OVERWRITE DIRECTORY", plan.storage(), below=True)


def _storage_place(action: str, storage: Any, *, below: bool) -> Iterator[Target]:
    if storage.locationUri().isDefined():
        place = str(storage.locationUri().get().toString())
        yield PathTarget(action=action, path=place, below=below)


def _load(spark: SparkSession, plan: Any) -> Iterator[Target]:
    yield from _named(spark, plan)
    if not plan.isLocal():  # files of the cluster are moved away
        yield PathTarget(action="LOAD DATA", path=str(plan.path()))


def _set_location(spark: SparkSession, plan: Any) -> Iterator[Target]:
    yield from _named(spark, plan)
    yield PathTarget(action="ALTER TABLE", path=str(plan.location()))


def _convert(spark: SparkSession, plan: Any) -> Iterator[Target]:
    identifier = plan.tableIdentifier()
    schema = (str(identifier.database().get()),) if identifier.database().isDefined() else ()
    yield TableTarget(action="CONVERT TO DELTA", name=(*schema, str(identifier.table())))


def _reorganize(spark: SparkSession, plan: Any) -> Iterator[Target]:
    yield TableTarget(action="REORG", name=_parts(plan.target().multipartIdentifier()))


_RULES: Mapping[str, Callable[[SparkSession, Any], Iterator[Target]]] = {
    "InsertIntoStatement": _rows("INSERT"),
    "AppendData": _rows("INSERT"),
    "OverwriteByExpression": _rows("INSERT"),
    "OverwritePartitionsDynamic": _rows("INSERT"),
    "DeleteFromTable": _rows("DELETE"),
    "UpdateTable": _rows("UPDATE"),
    "MergeIntoTable": _rows("MERGE", "targetTable"),
    "RestoreTableStatement": _rows("RESTORE"),
    "InsertIntoDir": _write_directory,
    "CreateTable": _create,
    "CreateTableAsSelect": _create,
    "ReplaceTable": _replace,
    "ReplaceTableAsSelect": _replace,
    "CreateTableLikeCommand": _create_like,
    "CloneTableStatement": _clone,
    "CreateView": _create_view,
    "DropTable": _drop("DROP TABLE"),
    "DropView": _drop("DROP VIEW"),
    "DropNamespace": _drop_schema,
    "LoadData": _load,
    "SetTableLocation": _set_location,
    "ConvertToDeltaCommand": _convert,
    "DeltaReorgTable": _reorganize,
}


def _parts(sequence: Any) -> tuple[str, ...]:
    return tuple(str(part) for part in items(sequence))


def _child_name(spark: SparkSession, node: Any) -> tuple[str, ...]:
    """Return the name of an UnresolvedIdentifier or UnresolvedNamespace."""
    match kind(node):
        case "PlanWithUnresolvedIdentifier":
            return _parts(identifier_parts(spark, node.identifierExpr()))
        case "UnresolvedNamespace":
            return _parts(node.multipartIdentifier())
        case _:
            return _parts(node.nameParts())


def is_path(name: tuple[str, ...]) -> bool:
    """Say whether a name as written is that of a place, such as delta.`/place`."""
    return len(name) in (2, 3) and name[-2].lower() in _FILE_FORMATS and "/" in name[-1]
