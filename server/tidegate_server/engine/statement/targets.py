"""Finds what a statement changes, with Spark's own parser.

It covers every spelling: names and paths, LOCATION, IDENTIFIER, EXECUTE IMMEDIATE, scripts.
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
    """Whether rows are changed; Spark then resolves views."""
    form: str = field(default="", compare=False)
    """The words after ``action``, such as ``ADD COLUMNS``."""
    at: int | None = field(default=None, compare=False)
    """Offset of the name in the text, in code points; None within EXECUTE IMMEDIATE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathTarget:
    """A path that a statement writes to or turns into a table."""

    action: str
    path: str
    below: bool = False
    """Whether everything below the path is deleted as well."""
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaTarget:
    """A schema that a statement drops."""

    name: tuple[str, ...]
    script: bool = False
    """Whether the statement is part of a script."""
    cascade: bool = False
    """Whether the tables in it are dropped as well."""
    at: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """A table that a statement creates from another one, with its properties (LIKE, CLONE)."""

    name: tuple[str, ...]
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTarget:
    """A table that a statement creates under an unused name."""

    name: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchemaTarget:
    """A schema that a statement creates."""

    name: tuple[str, ...]


Target = TableTarget | PathTarget | SchemaTarget | CopyTarget | NewTarget | NewSchemaTarget


def targets(spark: SparkSession, text: str) -> Iterator[Target]:
    """Yield what a statement changes, by its parsed plan alone."""
    yield from _targets(_Context(spark), parse_statement(spark, text))


@dataclass(frozen=True, slots=True)
class _Context:
    """The context of a statement."""

    spark: SparkSession
    script: bool = False
    """Whether it is part of a script, which may change variables before it runs."""
    placed: bool = True
    """Whether offsets in the statement are offsets in the text that the client sent."""

    def offset_of(self, *nodes: Any) -> int | None:
        """Return the offset of the first parsed node that has one, or None."""
        spans = (span_of(node) for node in nodes if self.placed)
        return next((span[0] for span in spans if span is not None), None)

    def resolve_name(self, expression: Any) -> Any:
        """Return the name in IDENTIFIER(expression), as a Scala Seq.

        :raises ServerError: NOT_SUPPORTED if it is not constant.
        """
        value = constant_text(self.spark, expression, script=self.script)
        if value is None:
            where = " inside a script" if self.script else ""
            what = f"A change of IDENTIFIER({expression.sql()}), which is not constant{where},"
            raise error(Code.NOT_SUPPORTED, what=what, hint="Write the name itself.")
        return parse_name(self.spark, value)

    def relation_name(self, node: Any) -> tuple[str, ...] | None:
        """Return the name of the table that is written; None if it has no name."""
        match kind(node):
            case "UnresolvedRelation":
                return _parts(node.multipartIdentifier())
            case "SubqueryAlias":
                return self.relation_name(node.child())
            case "TimeTravel" | "RelationTimeTravel":
                return self.relation_name(node.relation())
            case "PlanWithUnresolvedIdentifier":
                return _parts(self.resolve_name(node.identifierExpr()))
            case _:
                return None


def _targets(context: _Context, plan: Any) -> Iterator[Target]:
    found = kind(plan)
    if found in _QUERIES:
        return
    if found in _NESTED:
        inside = context if found in ("UnresolvedWith", "Union") else replace(context, script=True)
        handled = items(plan.handlers()) if found == "CompoundBody" else ()
        for child in (*items(plan.children()), *(handler.body() for handler in handled)):
            yield from _targets(inside, child)
    elif found == "SingleStatement":
        yield from _targets(replace(context, script=True), plan.parsedPlan())
    elif found == "UnresolvedExecuteImmediate":
        inner = statement_of(context.spark, plan, script=context.script)
        yield from _targets(replace(context, placed=False), parse_statement(context.spark, inner))
    elif found == "PlanWithUnresolvedIdentifier":
        named = plan.planBuilder().apply(
            context.resolve_name(plan.identifierExpr()), plan.children()
        )
        yield from _targets(context, named)
    else:
        rule = _RULES.get(found, _child_targets)
        yield from rule(context, plan)


# ---- what each statement changes ---------------------------------------------------------------


def _child_targets(context: _Context, plan: Any) -> Iterator[Target]:
    """Yield the targets of a command that has them as children, as most commands do."""
    for child in items(plan.children()):
        found = kind(child)
        if found in _NAMED:
            action, _, form = str(child.commandName()).partition(" ...")
            if not action.startswith(_HARMLESS) or action == "SHOW CREATE TABLE":
                yield TableTarget(
                    action=action,
                    name=_parts(child.multipartIdentifier()),
                    form=form.removesuffix("...").strip(),
                    at=context.offset_of(child, plan),
                )
        elif found == "UnresolvedPathBasedDeltaTable":
            yield PathTarget(
                action=str(child.commandName()),
                path=str(child.path()),
                at=context.offset_of(child, plan),
            )
        elif found == "PlanWithUnresolvedIdentifier":
            name = context.resolve_name(child.identifierExpr())
            built = child.planBuilder().apply(name, child.children())
            yield from _child_targets(context, plan.withNewChildren(_single_seq(context, built)))


def _single_seq(context: _Context, node: Any) -> Any:
    jvm: Any = java(context.spark)
    return jvm.PythonUtils.toSeq([node])


def _row_change_rule(
    action: str, child: str = "table"
) -> Callable[[_Context, Any], Iterator[Target]]:
    def rule(context: _Context, plan: Any) -> Iterator[Target]:
        node = getattr(plan, child)()
        name = context.relation_name(node)
        if name is not None:
            yield TableTarget(action=action, name=name, rows=True, at=context.offset_of(node, plan))

    return rule


def _insert(context: _Context, plan: Any) -> Iterator[Target]:
    form = "OVERWRITE" if plan.overwrite() else ""
    for target in _row_change_rule("INSERT")(context, plan):
        yield replace(target, form=form) if isinstance(target, TableTarget) else target


def _create(context: _Context, plan: Any) -> Iterator[Target]:
    name = _child_name(context, plan.name())
    if is_path(name):
        yield PathTarget(
            action="CREATE TABLE", path=name[-1], at=context.offset_of(plan.name(), plan)
        )
    else:
        yield NewTarget(name=name)
    yield from _locations(context, "CREATE TABLE", plan)


def _replace(context: _Context, plan: Any) -> Iterator[Target]:
    action = "CREATE OR REPLACE TABLE"
    name = _child_name(context, plan.name())
    yield TableTarget(action=action, name=name, at=context.offset_of(plan.name(), plan))
    yield from _locations(context, action, plan)


def _locations(context: _Context, action: str, plan: Any) -> Iterator[Target]:
    spec, at = plan.tableSpec(), context.offset_of(plan)
    if spec.location().isDefined():
        yield PathTarget(action=action, path=str(spec.location().get()), at=at)
    if kind(spec) == "UnresolvedTableSpec":
        for option in items(spec.optionExpression().options()):
            if str(option._1()).lower() == "path" and kind(option._2()) == "Literal":
                yield PathTarget(action=action, path=str(option._2().value().toString()), at=at)


def _create_like(context: _Context, plan: Any) -> Iterator[Target]:
    yield from _storage_location(context, "CREATE TABLE", plan, plan.fileFormat(), below=False)
    yield CopyTarget(name=_identifier(plan.targetTable()), source=_identifier(plan.sourceTable()))


def _clone(context: _Context, plan: Any) -> Iterator[Target]:
    name, at = context.relation_name(plan.target()), context.offset_of(plan.target(), plan)
    if name is not None and (plan.isReplaceCommand() or is_path(name)):
        yield TableTarget(action="CREATE OR REPLACE TABLE", name=name, at=at)
    if plan.targetLocation().isDefined():
        yield PathTarget(action="CREATE TABLE", path=str(plan.targetLocation().get()), at=at)
    source = context.relation_name(plan.source())
    if name is not None and source is not None:
        yield CopyTarget(name=name, source=source)


def _drop_rule(action: str) -> Callable[[_Context, Any], Iterator[Target]]:
    def rule(context: _Context, plan: Any) -> Iterator[Target]:
        name = _child_name(context, plan.child())
        yield TableTarget(action=action, name=name, at=context.offset_of(plan.child(), plan))

    return rule


def _create_view(context: _Context, plan: Any) -> Iterator[Target]:
    if plan.replace():
        name, at = _child_name(context, plan.child()), context.offset_of(plan.child(), plan)
        yield TableTarget(action="CREATE OR REPLACE VIEW", name=name, at=at)


def _drop_schema(context: _Context, plan: Any) -> Iterator[Target]:
    name = _child_name(context, plan.namespace())
    yield SchemaTarget(
        name=name,
        script=context.script,
        cascade=bool(plan.cascade()),
        at=context.offset_of(plan.namespace(), plan),
    )


def _create_schema(context: _Context, plan: Any) -> Iterator[Target]:
    yield NewSchemaTarget(name=_child_name(context, plan.name()))


def _write_directory(context: _Context, plan: Any) -> Iterator[Target]:
    action = "INSERT OVERWRITE DIRECTORY"
    yield from _storage_location(context, action, plan, plan.storage(), below=True)


def _storage_location(
    context: _Context, action: str, plan: Any, storage: Any, *, below: bool
) -> Iterator[Target]:
    if storage.locationUri().isDefined():
        path = str(storage.locationUri().get().toString())
        yield PathTarget(action=action, path=path, below=below, at=context.offset_of(plan))


def _load(context: _Context, plan: Any) -> Iterator[Target]:
    yield from _child_targets(context, plan)
    if not plan.isLocal():  # LOAD DATA moves the files of a file system, unlike LOCAL ones
        yield PathTarget(action="LOAD DATA", path=str(plan.path()), at=context.offset_of(plan))


def _set_location(context: _Context, plan: Any) -> Iterator[Target]:
    yield from _child_targets(context, plan)
    yield PathTarget(action="ALTER TABLE", path=str(plan.location()), at=context.offset_of(plan))


def _convert(context: _Context, plan: Any) -> Iterator[Target]:
    name = _identifier(plan.tableIdentifier())
    yield TableTarget(action="CONVERT TO DELTA", name=name, at=context.offset_of(plan))


def _reorganize(context: _Context, plan: Any) -> Iterator[Target]:
    name = _parts(plan.target().multipartIdentifier())
    yield TableTarget(action="REORG", name=name, at=context.offset_of(plan.target(), plan))


_RULES: Mapping[str, Callable[[_Context, Any], Iterator[Target]]] = {
    "InsertIntoStatement": _insert,
    "AppendData": _row_change_rule("INSERT"),
    "OverwriteByExpression": _row_change_rule("INSERT"),
    "OverwritePartitionsDynamic": _row_change_rule("INSERT"),
    "DeleteFromTable": _row_change_rule("DELETE"),
    "UpdateTable": _row_change_rule("UPDATE"),
    "MergeIntoTable": _row_change_rule("MERGE", "targetTable"),
    "RestoreTableStatement": _row_change_rule("RESTORE"),
    "InsertIntoDir": _write_directory,
    "CreateTable": _create,
    "CreateTableAsSelect": _create,
    "ReplaceTable": _replace,
    "ReplaceTableAsSelect": _replace,
    "CreateTableLikeCommand": _create_like,
    "CloneTableStatement": _clone,
    "CreateNamespace": _create_schema,
    "CreateView": _create_view,
    "DropTable": _drop_rule("DROP TABLE"),
    "DropView": _drop_rule("DROP VIEW"),
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


def _child_name(context: _Context, node: Any) -> tuple[str, ...]:
    """Return the name of an UnresolvedIdentifier or UnresolvedNamespace."""
    match kind(node):
        case "PlanWithUnresolvedIdentifier":
            return _parts(context.resolve_name(node.identifierExpr()))
        case "UnresolvedNamespace":
            return _parts(node.multipartIdentifier())
        case _:
            return _parts(node.nameParts())


def is_path(name: tuple[str, ...]) -> bool:
    """Say whether a name, as written, is a path, such as delta.`/path`."""
    return len(name) in (2, 3) and name[-2].lower() in _FILE_FORMATS and "/" in name[-1]
