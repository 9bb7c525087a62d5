"""Finds what a statement reads, and what it accesses beyond tables, before it runs.

This uses Spark's own parser and analyzer, so that no spelling hides anything from the gateway.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Mention, Reach, Reading, Surveyed
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    SYSTEM_SCHEMA,
    TableName,
    qualify,
    quote_identifier,
)
from tidegate_server.core.sql.streams import Stream, find_stream
from tidegate_server.engine.query.references import WRITTEN, parse_query, parse_statement
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.storage.jvm import items, java, kind

logger = logging.getLogger(__name__)


_BY_CLASS = {
    "AddArchivesCommand": Reach.RESOURCES,
    "AddFilesCommand": Reach.RESOURCES,
    "AddJarsCommand": Reach.RESOURCES,
    "CreateFunction": Reach.JAR_FUNCTIONS,
    "CreateFunctionCommand": Reach.JAR_FUNCTIONS,
    "ScriptTransformation": Reach.SCRIPTS,
    "ConvertToDeltaCommand": Reach.PATHS,
    "CreateTempViewUsing": Reach.PATHS,
    "AlterTableSerDePropertiesCommand": Reach.LOCATIONS,
    "InsertIntoDir": Reach.LOCATIONS,
    "LoadData": Reach.LOCATIONS,
    "SetTableSerDeProperties": Reach.LOCATIONS,
    "Call": Reach.UNKNOWN,
    "CompoundBody": Reach.UNKNOWN,
    "UnresolvedExecuteImmediate": Reach.UNKNOWN,
}
_REFLECTION = frozenset({"reflect", "java_method", "try_reflect"})
_INNER_PLANS = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
_VIEW_SETTING = "view.sqlConfig."
"""Prefix of the properties of a view with the settings that its query is analyzed with."""
_TABLE_OPTION = "option."
"""Prefix of the properties of a table that Spark takes as options."""
_CREATING = frozenset(
    {"CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"}
)
_PLACES = frozenset({"path", "paths"})
"""Options that are a location."""
_WITH = re.compile(r"\bWITH\b", re.IGNORECASE)
_LISTINGS = frozenset({"ShowTables", "ShowTablesExtended", "ShowViews"})
_WITHOUT_SOURCE = frozenset({"EmptyRelation", "LocalRelation", "OneRowRelation"})


def survey(child: Child, text: str) -> Surveyed:
    """Return what a statement reads and accesses beyond tables, without running it.

    If it cannot be analyzed, all names that it mentions count as read. It fails when it is run.
    """
    surveyed = _survey(child, text)
    try:
        stream = find_stream(text)
    except ServerError:
        return surveyed
    # Spark itself may accept the same text with another meaning, so both surveys count.
    return surveyed if stream is None else _with_stream(surveyed, child, text, stream)


def _survey(child: Child, text: str) -> Surveyed:
    spark = child.spark
    try:
        plan = parse_statement(spark, text)
    except PySparkException:
        return Surveyed()
    try:
        nodes = tuple(_nodes(json.loads(plan.toJSON())))
    except (Py4JError, PySparkException, ValueError) as error:
        logger.warning("cannot survey a statement: %s", error)
        return Surveyed(reaches=(Reach.UNKNOWN,))
    plain = _is_query(spark, text)
    readings = _readings(spark, plan, nodes, plain=plain)
    system = any(r.name is not None and r.name.schema == SYSTEM_SCHEMA for r in readings)
    body = [survey(child, text) for text in _function_bodies(nodes)]
    options = [*_options(plan, nodes, text), *(option for one in body for option in one.options)]
    return Surveyed(
        readings=(*readings, *(reading for one in body for reading in one.readings)),
        mentions=_mentions(spark, text, child.current()) if plain and system else (),
        reaches=tuple(
            dict.fromkeys(
                [
                    *_reaches(nodes, readings, plain=plain),
                    *_reaches_by_options(nodes, options, text),
                    *(reach for one in body for reach in one.reaches),
                ]
            )
        ),
        locations=tuple(_locations(plan, nodes)),
        settings=tuple(_settings(plan)),
        options=tuple(dict.fromkeys(options)),
        lists_tables=kind(plan) in _LISTINGS,
    )


def _with_stream(surveyed: Surveyed, child: Child, text: str, stream: Stream) -> Surveyed:
    """Add what a query over a stream reads, and the source of the stream itself."""
    rest = _survey(child, stream.with_view(text))
    beyond = (Reach.PATHS,) if stream.foreign else ()
    own = (Reading(location=stream.path),) if stream.path is not None else ()
    return replace(
        surveyed,
        readings=(*surveyed.readings, *rest.readings, *own),
        reaches=tuple(dict.fromkeys([*surveyed.reaches, *rest.reaches, *beyond])),
        options=tuple(dict.fromkeys([*surveyed.options, *rest.options])),
    )


# ---- the parsed plan, as JSON ----------------------------------------------------------------


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a plan's JSON, including plans in fields and expressions."""
    match value:
        case dict():
            yield value
            for inner in value.values():
                yield from _nodes(inner)
        case list():
            for inner in value:
                yield from _nodes(inner)


def _kind(node: dict[str, Any]) -> str:
    return str(node.get("class") or node.get("product-class") or "").rpartition(".")[2]


def _mentioned_names(nodes: tuple[dict[str, Any], ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names of tables and views that a plan mentions."""
    for node in nodes:
        written = node.get("multipartIdentifier")
        if isinstance(written, str):
            yield _parts(written)
        elif _kind(node) == "TableIdentifier":
            parts = (node.get("catalog"), node.get("database"), node.get("table"))
            yield tuple(str(part) for part in parts if part)


def _parts(written: str) -> tuple[str, ...]:
    """Parse a Scala Seq of strings; parts with commas are split, but name no metastore table."""
    return tuple(written.removeprefix("[").removesuffix("]").split(", "))


def _function_bodies(nodes: tuple[dict[str, Any], ...]) -> Iterator[str]:
    """Yield the bodies of SQL functions, which the plan contains as text."""
    for node in nodes:
        if _kind(node) == "CreateUserDefinedFunction":
            body = str(node.get("queryText") or node.get("exprText") or "")
            yield body if node.get("isTableFunc") else f"SELECT {body}"


def _reaches(
    nodes: tuple[dict[str, Any], ...], readings: tuple[Reading, ...], *, plain: bool
) -> Iterator[Reach]:
    for node in nodes:
        kind = _kind(node)
        if kind in _BY_CLASS:
            yield _BY_CLASS[kind]
        elif "PathBased" in kind or "PathOrIdentifier" in kind:
            yield Reach.PATHS
        elif kind == "UnresolvedFunction" and _is_reflection(node):
            yield Reach.JAR_FUNCTIONS
        elif kind == "PlanWithUnresolvedIdentifier" and not plain:
            yield Reach.UNKNOWN
        elif "/" in str(node.get("multipartIdentifier", "")):
            yield Reach.PATHS
        elif kind == "CatalogStorageFormat" and "locationUri" in node:
            # The JSON shows that there is a location, but not which one.
            yield Reach.LOCATIONS
    if any(reading.name is None for reading in readings):
        yield Reach.PATHS


def _reaches_by_options(
    nodes: tuple[dict[str, Any], ...], options: list[str], text: str
) -> Iterator[Reach]:
    if not _PLACES.isdisjoint(options):
        yield Reach.LOCATIONS
    if _WITH.search(text) and any(_kind(n) == "PlanWithUnresolvedIdentifier" for n in nodes):
        yield Reach.UNKNOWN  # the plan does not show the options in IDENTIFIER(...) WITH (...)


def _is_reflection(node: dict[str, Any]) -> bool:
    return any(part.lower() in _REFLECTION for part in _parts(str(node.get("nameParts"))))


def _locations(plan: Any, nodes: tuple[dict[str, Any], ...]) -> Iterator[str]:
    for node in nodes:
        if isinstance(place := node.get("location"), str):
            yield place
    if kind(plan) == "CreateNamespace":
        place = plan.properties().get("location")
        if place.isDefined():
            yield str(place.get())


def _settings(plan: Any) -> Iterator[str]:
    """Yield the keys of the settings that a statement shows or changes, for itself or a view."""
    match kind(plan):
        case "SetCommand" if plan.kv().isDefined():
            yield str(plan.kv().get()._1())
        case "ResetCommand" if plan.config().isDefined():
            yield str(plan.config().get())
        case "SetViewProperties":
            for key in items(plan.properties().keys().toSeq()):
                if str(key).startswith(_VIEW_SETTING):
                    yield str(key).removeprefix(_VIEW_SETTING)


def _options(plan: Any, nodes: tuple[dict[str, Any], ...], text: str) -> Iterator[str]:
    """Yield the options of tables that a statement sets, or reads a table with, in lower case.

    Spark copies them to the configuration of Hadoop with which it opens the table's files.
    """
    for node in nodes:
        if _kind(node) == "OptionList":
            yield from (str(pair["_1"]).lower() for pair in node["options"])
    if kind(plan) == "SetTableProperties":
        yield from _prefixed(plan.properties(), _TABLE_OPTION)
    elif kind(plan) in _CREATING:
        table = plan.tableSpec()
        yield from _prefixed(table.properties(), _TABLE_OPTION)
        if table.serde().isDefined():
            yield from _prefixed(table.serde().get().serdeProperties(), "")
    if _WITH.search(text):
        yield from _relation_options(plan)


def _prefixed(properties: Any, prefix: str) -> Iterator[str]:
    for key in items(properties.keys().toSeq()):
        if str(key).lower().startswith(prefix):
            yield str(key).lower().removeprefix(prefix)


def _relation_options(plan: Any) -> Iterator[str]:
    """Yield the options in ``t WITH (...)``, in every part of a parsed plan."""
    inner: list[Any] = [*items(plan.children()), *items(plan.subqueries()), *_inner_plans(plan)]
    match kind(plan):
        case "UnresolvedRelation":
            yield from (str(key) for key in plan.options().keySet() if key != WRITTEN)
        case "RelationTimeTravel":
            inner.append(plan.relation())
        case "InsertIntoStatement":
            inner.append(plan.table())
        case "UnresolvedWith":
            inner += [relation.productElement(1) for relation in items(plan.cteRelations())]
    for one in inner:
        yield from _relation_options(one)


def _is_query(spark: SparkSession, text: str) -> bool:
    session: Any = spark._jsparkSession
    try:
        session.sessionState().sqlParser().parseQuery(text)
    except PySparkException:
        return False
    return True


def _mentions(spark: SparkSession, text: str, place: tuple[str, str]) -> tuple[Mention, ...]:
    """Return the tables that a query names, with their spans; none if they cannot be located."""
    try:
        query = parse_query(spark, text)
    except (PySparkException, Py4JError, ServerError) as error:
        logger.debug("cannot locate the names in a query: %s", error)
        return ()
    return tuple(
        Mention(
            name=qualify(reference.parts, *place).folded(),
            start=reference.start,
            end=reference.end,
            aliased=reference.aliased,
            statement=reference.statement,
        )
        for reference in query.references
        if len(reference.parts) <= 3
    )


# ---- the analyzed plan -----------------------------------------------------------------------


def _readings(
    spark: SparkSession, plan: Any, nodes: tuple[dict[str, Any], ...], *, plain: bool
) -> tuple[Reading, ...]:
    """Return what is read, once for each occurrence."""
    whole = _analyzed_readings(spark, plan)
    if plain and whole is not None:
        return tuple(whole)
    # A command has its query as a child or in a field, or only names what it reads.
    inner_plans = [*items(plan.children()), *_inner_plans(plan)]
    inner = [reading for one in inner_plans for reading in _analyzed_readings(spark, one) or ()]
    named = [
        reading for parts in _mentioned_names(nodes) for reading in _readings_by_name(spark, parts)
    ]
    found = [Counter(part) for part in (whole or (), inner, named)]
    return tuple((found[0] | found[1] | found[2]).elements())


def _inner_plans(plan: Any) -> Iterator[Any]:
    field = _INNER_PLANS.get(kind(plan))
    if field is not None:
        yield getattr(plan, field)()


def _readings_by_name(spark: SparkSession, parts: tuple[str, ...]) -> list[Reading]:
    """Return what is read through a name; nothing if it does not name a table or view."""
    name = ".".join(quote_identifier(part) for part in parts)
    try:
        return _analyzed_readings(spark, parse_statement(spark, f"TABLE {name}")) or []
    except PySparkException:
        return []


def _analyzed_readings(spark: SparkSession, plan: Any) -> list[Reading] | None:
    """Return what an analyzed plan reads, subqueries included; None if analysis fails."""
    session: Any = spark._jsparkSession
    jvm: Any = java(spark)
    skip = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    try:
        return readings_of(session.sessionState().executePlan(plan, skip).analyzed())
    except (PySparkException, Py4JError) as error:
        logger.debug("cannot analyze a statement to survey: %s", error)
        return None


def readings_of(analyzed: Any) -> list[Reading]:
    """Return what an analyzed plan reads, once for each occurrence."""
    found = []
    for plan in (analyzed, *items(analyzed.subqueriesAll())):
        for leaf in items(plan.collectLeaves()):
            name = kind(leaf)
            if name.endswith("Relation") or name == "ResolvedTable":
                if name not in _WITHOUT_SOURCE:
                    found += _leaf_readings(leaf)
            else:
                for inner in items(leaf.innerChildren()):
                    if _is_logical(inner):
                        found += readings_of(inner)
    return found


def _leaf_readings(leaf: Any) -> list[Reading]:
    """Return one reading per directory of a leaf, with its table's name if it has one."""
    match kind(leaf):
        case "LogicalRelation":
            table = leaf.catalogTable()
            name = _v1_name(table.get().identifier()) if table.isDefined() else None
            files, travelled = leaf.relation(), _is_time_travel(leaf.relation())
            return [
                Reading(name=name, location=root, travelled=travelled) for root in _roots(files)
            ]
        case "HiveTableRelation":
            return [Reading(name=_v1_name(leaf.tableMeta().identifier()))]
        case "ResolvedTable":
            return [Reading(name=_v2_name(leaf.catalog(), leaf.identifier()))]
        case "DataSourceV2Relation":
            catalog, identifier = leaf.catalog(), leaf.identifier()
            if catalog.isDefined() and identifier.isDefined():
                return [Reading(name=_v2_name(catalog.get(), identifier.get()))]
            return [Reading()]
        case _:
            return [Reading()]


def _v2_name(catalog: Any, identifier: Any) -> TableName:
    schema = ".".join(str(part) for part in identifier.namespace())
    return TableName(str(catalog.name()), schema, str(identifier.name())).folded()


def _v1_name(identifier: Any) -> TableName:
    catalog, schema = identifier.catalog(), identifier.database()
    return TableName(
        str(catalog.get()) if catalog.isDefined() else DEFAULT_CATALOG,
        str(schema.get()) if schema.isDefined() else "",
        str(identifier.table()),
    ).folded()


def _roots(relation: Any) -> list[str | None]:
    """Return the directories that a relation of files reads; None for unknown ones."""
    try:
        return [str(path) for path in items(relation.location().rootPaths())] or [None]
    except Py4JError:
        return [None]


def _is_time_travel(relation: Any) -> bool:
    """Say whether a relation of files is a Delta table that the query reads by time travel."""
    try:
        return bool(relation.location().isTimeTravelQuery())
    except Py4JError:
        return False


def _is_logical(node: Any) -> bool:
    try:
        node.collectLeaves()
        node.subqueriesAll()
    except Py4JError:
        return False
    return True
