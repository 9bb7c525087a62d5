"""What a statement changes, told by Spark's own parser.

No spelling is missed: names and paths, LOCATION, IDENTIFIER, EXECUTE IMMEDIATE, scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, error
from tidegate_server.engine.query.references import (
    constant_text,
    parse_name,
    parse_statement,
    span_of,
)
from tidegate_server.engine.statement.execute_immediate import statement_of
from tidegate_server.engine.storage.jvm import items, java, kind

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
    form: str = field(default="", compare=False)
    """What is done besides the words of ``action``, such as ``ADD COLUMNS``."""
    at: int | None = field(default=None, compare=False)
    """Where in the text it is named, in code points; None inside of another statement's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTarget:
    """A place that a statement writes to or makes into a table."""

    action: str
    path: str
    below: bool = False
    """Whether everything below the place goes as well."""
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTarget:
    """A schema that a statement drops."""

    name: tuple[str, ...]
    script: bool = False
    """Whether it does so in the middle of a script."""
    cascade: bool = False
    """Whether it drops the tables in it as well."""
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """A table that a statement makes like another one, whose properties it gets (LIKE, CLONE)."""

    name: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTarget:
    """A table that a statement makes where there is none of that name."""

    name: tuple[str, ...]


Target = TableTarget | PathTarget | SchemaTarget | CopyTarget | NewTarget


def targets(spark: SparkSession, text: str) -> Iterator[Target]:
    """Yield what a statement changes, without analyzing it."""
    yield from _targets(_Place(spark), parse_statement(spark, text))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: on its own or in a script, which may change variables before."""

    spark: SparkSession
    script: bool = False
    placed: bool = True
    """Whether places in the statement are places in the text that was sent."""

    def at(self, *nodes: Any) -> int | None:
        """Return where the first of some parsed nodes begins that knows it."""
        spans = (span_of(node) for node in nodes if self.placed)
        return next((span[0] for span in spans if span is not None), None)

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
        inside = place if found in ("UnresolvedWith", "Union") else replace(place, script=True)
        handled = items(plan.handlers()) if found == "CompoundBody" else ()
        for child in (*items(plan.children()), *(handler.body() for handler in handled)):
            yield from _targets(inside, child)
    elif found == "SingleStatement":
        yield from _targets(replace(place, script=True), plan.parsedPlan())
    elif found == "UnresolvedExecuteImmediate":
        inner = statement_of(place.spark, plan, script=place.script)
        yield from _targets(replace(place, placed=False), parse_statement(place.spark, inner))
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
            action, _, form = str(child.commandName()).partition(" ...")
            if not action.startswith(_HARMLESS) or action == "SHOW CREATE TABLE":
                yield TableTarget(
                    action=action,
                    name=_parts(child.multipartIdentifier()),
                    form=form.removesuffix("...").strip(),
                    at=place.at(child, plan),
                )
        elif found == "UnresolvedPathBasedDeltaTable":
            yield PathTarget(
                action=str(child.commandName()), path=str(child.path()), at=place.at(child, plan)
            )
        elif found == "PlanWithUnresolvedIdentifier":
            name = place.name(child.identifierExpr())
            built = child.planBuilder().apply(name, child.children())
            yield from _named(place, plan.withNewChildren(_one(place, built)))


def _one(place: _Place, node: Any) -> Any:
    jvm: Any = java(place.spark)
    return jvm.PythonUtils.toSeq([node])


def _rows(action: str, child: str = "table") -> Callable[[_Place, Any], Iterator[Target]]:
    def rule(place: _Place, plan: Any) -> Iterator[Target]:
        node = getattr(plan, child)()
        name = place.relation(node)
        if name is not None:
            yield TableTarget(action=action, name=name, rows=True, at=place.at(node, plan))

    return rule


def _create(place: _Place, plan: Any) -> Iterator[Target]:
    name = _child_name(place, plan.name())
    if is_path(name):
        yield PathTarget(action="CREATE TABLE", path=name[-1], at=place.at(plan.name(), plan))
    else:
        yield NewTarget(name=name)
    yield from _places(place, "CREATE TABLE", plan)


def _replace(place: _Place, plan: Any) -> Iterator[Target]:
    action = "CREATE OR REPLACE TABLE"
    name = _child_name(place, plan.name())
    yield TableTarget(action=action, name=name, at=place.at(plan.name(), plan))
    yield from _places(place, action, plan)


def _places(place: _Place, action: str, plan: Any) -> Iterator[Target]:
    spec, at = plan.tableSpec(), place.at(plan)
    if spec.location().isDefined():
        yield PathTarget(action=action, path=str(spec.location().get()), at=at)
    if kind(spec) == "UnresolvedTableSpec":
        for option in items(spec.optionExpression().options()):
            if str(option._1()).lower() == "path" and kind(option._2()) == "Literal":
                yield PathTarget(action=action, path=str(option._2().value().toString()), at=at)


def _create_like(place: _Place, plan: Any) -> Iterator[Target]:
    yield from _storage_place(place, "CREATE TABLE", plan, plan.fileFormat(), below=False)
    yield CopyTarget(name=_identifier(plan.targetTable()), source=_identifier(plan.sourceTable()))


def _clone(place: _Place, plan: Any) -> Iterator[Target]:
    name, at = place.relation(plan.target()), place.at(plan.target(), plan)
    if name is not None and (plan.isReplaceCommand() or is_path(name)):
        yield TableTarget(action="CREATE OR REPLACE TABLE", name=name, at=at)
    if plan.targetLocation().isDefined():
        yield PathTarget(action="CREATE TABLE", path=str(plan.targetLocation().get()), at=at)
    source = place.relation(plan.source())
    if name is not None and source is not None:
        yield CopyTarget(name=name, source=source)


def _drop(action: str) -> Callable[[_Place, Any], Iterator[Target]]:
    def rule(place: _Place, plan: Any) -> Iterator[Target]:
        name = _child_name(place, plan.child())
        yield TableTarget(action=action, name=name, at=place.at(plan.child(), plan))

    return rule


def _create_view(place: _Place, plan: Any) -> Iterator[Target]:
    if plan.replace():
        name, at = _child_name(place, plan.child()), place.at(plan.child(), plan)
        yield TableTarget(action="CREATE OR REPLACE VIEW", name=name, at=at)


def _drop_schema(place: _Place, plan: Any) -> Iterator[Target]:
    name = _child_name(place, plan.namespace())
    yield SchemaTarget(
        name=name,
        script=place.script,
        cascade=bool(plan.cascade()),
        at=place.at(plan.namespace(), plan),
    )


def _write_directory(place: _Place, plan: Any) -> Iterator[Target]:
    action = "INSERT OVERWRITE DIRECTORY"
    yield from _storage_place(place, action, plan, plan.storage(), below=True)


def _storage_place(
    place: _Place, action: str, plan: Any, storage: Any, *, below: bool
) -> Iterator[Target]:
    if storage.locationUri().isDefined():
        path = str(storage.locationUri().get().toString())
        yield PathTarget(action=action, path=path, below=below, at=place.at(plan))


def _load(place: _Place, plan: Any) -> Iterator[Target]:
    yield from _named(place, plan)
    if not plan.isLocal():  # files of the cluster are moved away
        yield PathTarget(action="LOAD DATA", path=str(plan.path()), at=place.at(plan))


def _set_location(place: _Place, plan: Any) -> Iterator[Target]:
    yield from _named(place, plan)
    yield PathTarget(action="ALTER TABLE", path=str(plan.location()), at=place.at(plan))


def _convert(place: _Place, plan: Any) -> Iterator[Target]:
    name = _identifier(plan.tableIdentifier())
    yield TableTarget(action="CONVERT TO DELTA", name=name, at=place.at(plan))


def _reorganize(place: _Place, plan: Any) -> Iterator[Target]:
    name = _parts(plan.target().multipartIdentifier())
    yield TableTarget(action="REORG", name=name, at=place.at(plan.target(), plan))


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


def _identifier(identifier: Any) -> tuple[str, ...]:
    """Return the parts of a TableIdentifier."""
    before = (identifier.catalog(), identifier.database())
    known = (str(part.get()) for part in before if part.isDefined())
    return *known, str(identifier.table())


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
