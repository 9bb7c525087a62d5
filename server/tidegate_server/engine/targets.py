"""What a statement changes, told by Spark's own parser.

No spelling is missed: names and paths, LOCATION, IDENTIFIER, EXECUTE IMMEDIATE, scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.engine.immediate import statement_of
from tidegate_server.engine.references import (
    constant_text,
    parse_name,
    parse_statement,
)
from tidegate_server.errors import Code, error
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
    yield from _targets(_Place(spark), parse_statement(spark, text))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: on its own or in a script, which may change variables before."""

    spark: SparkSession
    script: bool = False

    def name(self, expression: Any) -> Any:
        """Return what IDENTIFIER(expression) names, as a Scala Seq.

        :raises ServerError: NOT_SUPPORTED if that is only known while a script runs.
        """
        value = constant_text(self.spark, expression, script=self.script)
        if value is None:
            where = " inside a script" if self.script else ""
            what = f"A change of IDENTIFIER({expression.sql()}), not known beforehand{where},"
            raise error(Code.NOT_SUPPORTED, what=what, hint="Write the name itself.")
        return parse_name(self.spark, value)

    def relation(self, node: Any) -> tuple[str, ...] | None:
        """Return the name of the table written to; None for anything but a named one."""
        match kind(node):
            case "UnresolvedRelation":
                return _parts(node.multipartIdentifier())
            case "SubqueryAlias":
                return self.relation(node.child())
            case "TimeTravel" | "RelationTimeTravel":
                return self.relation(node.relation())
            case "PlanWithUnresolvedIdentifier":
                return _parts(self.name(node.identifierExpr()))
            case _:
                return None


def _targets(place: _Place, plan: Any) -> Iterator[Target]:
    found = kind(plan)
    if found in _QUERIES:
        return
    if found in _NESTED:
        inside = place if found in ("UnresolvedWith", "Union") else _Place(place.spark, script=True)
        handled = items(plan.handlers()) if found == "CompoundBody" else ()
        for child in (*items(plan.children()), *(handler.body() for handler in handled)):
            yield from _targets(inside, child)
    elif found == "SingleStatement":
        yield from _targets(_Place(place.spark, script=True), plan.parsedPlan())
    elif found == "UnresolvedExecuteImmediate":
        inner = statement_of(place.spark, plan, script=place.script)
        yield from _targets(place, parse_statement(place.spark, inner))
    elif found == "PlanWithUnresolvedIdentifier":
        named = plan.planBuilder().apply(place.name(plan.identifierExpr()), plan.children())
        yield from _targets(place, named)
    else:
        rule = _RULES.get(found, _named)
        yield from rule(place, plan)


# ---- what each statement changes ---------------------------------------------------------------


def _named(place: _Place, plan: Any) -> Iterator[Target]:
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
            name = place.name(child.identifierExpr())
            built = child.planBuilder().apply(name, child.children())
            yield from _named(place, plan.withNewChildren(_one(place, built)))


def _one(place: _Place, node: Any) -> Any:
    jvm: Any = java(place.spark)
    return jvm.PythonUtils.toSeq([node])


def _rows(action: str, field: str = "table") -> Callable[[_Place, Any], Iterator[Target]]:
    def rule(place: _Place, plan: Any) -> Iterator[Target]:
        name = place.relation(getattr(plan, field)())
        if name is not None:
            yield TableTarget(action=action, name=name, rows=True)

    return rule


def _create(place: _Place, plan: Any) -> Iterator[Target]:
    name = _child_name(place, plan.name())
    if is_path(name):
        yield PathTarget(action="CREATE TABLE", path=name[-1])
    yield from _places("CREATE TABLE", plan.tableSpec())


def _replace(place: _Place, plan: Any) -> Iterator[Target]:
    action = "CREATE OR REPLACE TABLE"
    yield TableTarget(action=action, name=_child_name(place, plan.name()))
    yield from _places(action, plan.tableSpec())


def _places(action: str, spec: Any) -> Iterator[Target]:
    if spec.location().isDefined():
        yield PathTarget(action=action, path=str(spec.location().get()))
    if kind(spec) == "UnresolvedTableSpec":
        for option in items(spec.optionExpression().options()):
            if str(option._1()).lower() == "path" and kind(option._2()) == "Literal":
                yield PathTarget(action=action, path=str(option._2().value().toString()))


def _create_like(place: _Place, plan: Any) -> Iterator[Target]:
    yield from _storage_place("CREATE TABLE", plan.fileFormat(), below=False)


def _clone(place: _Place, plan: Any) -> Iterator[Target]:
    name = place.relation(plan.target())
    if name is not None and (plan.isReplaceCommand() or is_path(name)):
        yield TableTarget(action="CREATE OR REPLACE TABLE", name=name)
    if plan.targetLocation().isDefined():
        yield PathTarget(action="CREATE TABLE", path=str(plan.targetLocation().get()))


def _drop(action: str) -> Callable[[_Place, Any], Iterator[Target]]:
    def rule(place: _Place, plan: Any) -> Iterator[Target]:
        yield TableTarget(action=action, name=_child_name(place, plan.child()))

    return rule


def _create_view(place: _Place, plan: Any) -> Iterator[Target]:
    if plan.replace():
        yield TableTarget(action="CREATE OR REPLACE VIEW", name=_child_name(place, plan.child()))


def _drop_schema(place: _Place, plan: Any) -> Iterator[Target]:
    yield SchemaTarget(name=_child_name(place, plan.namespace()))


def _write_directory(place: _Place, plan: Any) -> Iterator[Target]:
    yield from _storage_place("INSERT OVERWRITE DIRECTORY", plan.storage(), below=True)


def _storage_place(action: str, storage: Any, *, below: bool) -> Iterator[Target]:
    if storage.locationUri().isDefined():
        place = str(storage.locationUri().get().toString())
        yield PathTarget(action=action, path=place, below=below)


def _load(place: _Place, plan: Any) -> Iterator[Target]:
    yield from _named(place, plan)
    if not plan.isLocal():  # files of the cluster are moved away
        yield PathTarget(action="LOAD DATA", path=str(plan.path()))


def _set_location(place: _Place, plan: Any) -> Iterator[Target]:
    yield from _named(place, plan)
    yield PathTarget(action="ALTER TABLE", path=str(plan.location()))


def _convert(place: _Place, plan: Any) -> Iterator[Target]:
    identifier = plan.tableIdentifier()
    schema = (str(identifier.database().get()),) if identifier.database().isDefined() else ()
    yield TableTarget(action="CONVERT TO DELTA", name=(*schema, str(identifier.table())))


def _reorganize(place: _Place, plan: Any) -> Iterator[Target]:
    yield TableTarget(action="REORG", name=_parts(plan.target().multipartIdentifier()))


_RULES: Mapping[str, Callable[[_Place, Any], Iterator[Target]]] = {
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


def _child_name(place: _Place, node: Any) -> tuple[str, ...]:
    """Return the name of an UnresolvedIdentifier or UnresolvedNamespace."""
    match kind(node):
        case "PlanWithUnresolvedIdentifier":
            return _parts(place.name(node.identifierExpr()))
        case "UnresolvedNamespace":
            return _parts(node.multipartIdentifier())
        case _:
            return _parts(node.nameParts())


def is_path(name: tuple[str, ...]) -> bool:
    """Say whether a name as written is that of a place, such as delta.`/place`."""
    return len(name) in (2, 3) and name[-2].lower() in _FILE_FORMATS and "/" in name[-1]
