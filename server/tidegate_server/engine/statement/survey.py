"""Finds what a statement reads and accesses before it runs.

This uses Spark's own parser and analyzer, so that no spelling hides anything from the gateway.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from tidegate_server.core.connectors.mysql import FUNCTION as MYSQL
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import Mention, Reading, Surveyed
from tidegate_server.core.messages.requests import Survey
from tidegate_server.core.model.access import Access, Act, Features, ObjectKind
from tidegate_server.core.model.locations import contains
from tidegate_server.core.model.names import (
    DEFAULT_CATALOG,
    SYSTEM_SCHEMA,
    TableName,
    qualify,
    quote_identifier,
)
from tidegate_server.core.sql.statements import ListingKind
from tidegate_server.core.sql.streams import Stream, find_stream
from tidegate_server.engine.gate.gate import (
    accesses_of_parsed,
    catalogs,
    collecting,
    computed_names,
    names_of_parsed,
    place_of,
    suspended,
)
from tidegate_server.engine.query.references import (
    constant_text,
    parse_name,
    parse_query,
    parse_single_query,
    parse_statement,
)
from tidegate_server.engine.query.streams import stream_view
from tidegate_server.engine.session.sessions import Child
from tidegate_server.engine.statement.execute_immediate import statement_of
from tidegate_server.engine.statement.scripts import SCRIPT, analyzed_statements
from tidegate_server.engine.storage.jvm import analyze_only, items, kind

logger = logging.getLogger(__name__)

_LISTINGS = {
    "ShowFunctions": ListingKind.FUNCTIONS,
    "ShowNamespacesCommand": ListingKind.SCHEMAS,
    "ShowTables": ListingKind.TABLES,
    "ShowTablesExtended": ListingKind.TABLE_EXTENDED,
    "ShowViews": ListingKind.VIEWS,
}
_OPAQUE = frozenset({"Call", SCRIPT})
_INNER_PLANS = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
_CONNECTIONS = (ObjectKind.CONNECTION, ObjectKind.CATALOG)
_WITHOUT_SOURCE = frozenset({"EmptyRelation", "LocalRelation", "OneRowRelation"})


def survey(child: Child, request: Survey) -> Surveyed:
    """Return what a statement reads and accesses, without running it.

    If it cannot be analyzed, all tables that it mentions count as read. It fails when it is run.
    """
    if request.features is None:
        with suspended(child.spark):
            return _survey(child, request.sql)
    mark = bool(request.session_id)
    with collecting(child.spark, request.features, mark=mark) as collected:
        try:
            child.surveyed = None
            surveyed = _survey(child, request.sql, request.features)
        except (PySparkException, Py4JError) as error:
            # A function that is refused when it is constructed; it is among the accesses. After
            # any other error nothing is admitted.
            logger.info("cannot survey a statement: %s", error)
            surveyed = Surveyed()
    accesses = dict.fromkeys((*surveyed.accesses, *collected.accesses))
    return replace(surveyed, accesses=tuple(accesses))


def _survey(child: Child, text: str, features: Features | None = None) -> Surveyed:
    try:
        stream = find_stream(text)
    except ServerError:
        stream = None
    if stream is not None and stream.table:  # Spark would also read the files of the table as such
        return _with_stream(Surveyed(), child, text, stream, features)
    surveyed = _survey_statement(child, text, features)
    # Spark itself may accept the same text with another meaning, so both surveys count.
    return surveyed if stream is None else _with_stream(surveyed, child, text, stream, features)


def _survey_statement(child: Child, text: str, features: Features | None) -> Surveyed:
    spark, written = child.spark, text
    try:
        plan, is_query = _parse(spark, text)
        name = kind(plan)
        while name == "UnresolvedExecuteImmediate":  # its analysis would run it
            text = statement_of(spark, plan, script=False)
            plan, is_query = _parse(spark, text)
            name = kind(plan)
    except (PySparkException, ServerError):
        return Surveyed()  # it fails in the same way when it runs
    parsed = accesses_of_parsed(spark, plan)
    if features is not None and _reaches_beyond(parsed, features):
        return Surveyed(accesses=parsed)  # its analysis alone might open files
    analyzed = _analyze(spark, plan) if is_query else None
    if analyzed is not None:
        readings = tuple(readings_of(analyzed))
        system = any(r.name is not None and r.name.schema == SYSTEM_SCHEMA for r in readings)
        return Surveyed(
            readings=readings,
            mentions=_mentions(spark, text, child.current()) if system else (),
            accesses=parsed,
            plan_id=child.keep_surveyed(text, analyzed) if text == written else "",
        )
    readings = _readings(spark, plan)
    inner = [_survey(child, body, features) for body in _function_bodies(spark, plan)]
    return Surveyed(
        readings=(*readings, *(reading for one in inner for reading in one.readings)),
        accesses=(*parsed, *(access for one in inner for access in one.accesses)),
        lists=_LISTINGS.get(name),
        opaque=name in _OPAQUE,
    )


def _reaches_beyond(accesses: Iterable[Access], features: Features) -> bool:
    return any(_is_beyond(access, features) for access in accesses)


def _is_beyond(access: Access, features: Features) -> bool:
    if access.kind is ObjectKind.PATH and access.act is Act.READ and "paths" not in features.names:
        return not any(contains(place, access.name) for place in features.readable)
    return access.kind is ObjectKind.FEATURE and access.catalog not in features.names


def _with_stream(
    surveyed: Surveyed,
    child: Child,
    text: str,
    stream: Stream,
    features: Features | None,
) -> Surveyed:
    """Add what a query over a stream reads, and the source of the stream itself."""
    spark = child.spark
    own = (Reading(location=stream.path),) if stream.path is not None else ()
    source = (_source_of(spark, stream),) if stream.foreign else ()
    found = replace(
        surveyed,
        plan_id="",
        readings=(*surveyed.readings, *own),
        accesses=(*surveyed.accesses, *source),
    )
    if features is not None:
        connected = {each.name for each in source if each.kind in _CONNECTIONS}
        if _reaches_beyond(source, features) or connected - set(features.catalogs):
            return found
    try:
        with stream_view(spark, stream, text):
            rest = _survey_statement(child, stream.with_view(text), features)
    except (AnalysisException, ServerError) as error:
        # The columns of files may not be known yet. Each refresh is surveyed with them.
        logger.debug("cannot load a stream to survey: %s", error)
        return found
    return replace(
        found,
        readings=(*found.readings, *rest.readings),
        accesses=(*found.accesses, *rest.accesses),
    )


def _source_of(spark: SparkSession, stream: Stream) -> Access:
    """Return the access to a stream of files, or to one of another system or database."""
    if stream.function == MYSQL:
        name = stream.parameters["connection"].lower()
        kind = catalogs(spark).kind(name) or ObjectKind.CONNECTION.value
        return Access(act=Act.USE, kind=ObjectKind(kind), name=name)
    if stream.path is None:
        what = f"STREAM {stream.name}"
        return Access(act=Act.USE, kind=ObjectKind.FEATURE, catalog="paths", schema=what)
    return Access(act=Act.READ, kind=ObjectKind.PATH, name=place_of(spark, stream.path))


# ---- the parsed plan --------------------------------------------------------------------------


def _function_bodies(spark: SparkSession, plan: Any) -> Iterator[str]:
    """Yield queries that read what the body and the defaults of a new SQL function read.

    The plan has them as text; the parameters are columns of a row here.
    """
    if kind(plan) != "CreateUserDefinedFunction":
        return
    parameters = ""
    if plan.inputParamText().isDefined():
        session: Any = spark._jsparkSession
        fields = session.sessionState().sqlParser().parseRoutineParam(plan.inputParamText().get())
        nulls = []
        for field in fields.fields():
            name = quote_identifier(str(field.name()))
            nulls.append(f"CAST(NULL AS {field.dataType().sql()}) AS {name}")
            if field.metadata().contains("default"):
                yield f"SELECT {field.metadata().getString('default')}"
        parameters = ", ".join(nulls)
    row = f"(SELECT {parameters or '1'}) AS {quote_identifier(_function_name(plan))}"
    if plan.exprText().isDefined():
        yield f"SELECT ({plan.exprText().get()}\n) FROM {row}"
    if plan.queryText().isDefined():
        yield f"SELECT * FROM {row}, LATERAL ({plan.queryText().get()}\n)"


def _function_name(plan: Any) -> str:
    child = plan.child()
    return str(child.nameParts().last()) if kind(child) == "UnresolvedIdentifier" else "f"


def _parse(spark: SparkSession, text: str) -> tuple[Any, bool]:
    """Return the parsed plan of a statement, and whether it is a single query.

    :raises pyspark.errors.ParseException: if Spark cannot parse it.
    """
    try:
        return parse_single_query(spark, text), True
    except PySparkException:
        return parse_statement(spark, text), False


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


def _readings(spark: SparkSession, plan: Any) -> tuple[Reading, ...]:
    """Return what is read, once for each occurrence."""
    if kind(plan) == SCRIPT:
        statements = analyzed_statements(spark, plan)
        inner = [_readings_of_statement(spark, one.parsed, one.plan) for one in statements]
        return tuple(reading for one in inner for reading in one)
    return _readings_of_statement(spark, plan, _analyze(spark, plan))


def _readings_of_statement(
    spark: SparkSession, parsed: Any, analyzed: Any | None
) -> tuple[Reading, ...]:
    whole = None if analyzed is None else readings_of(analyzed)
    # A command has its query as a child or in a field, or only names what it reads.
    inner_plans = [*items(parsed.children()), *_inner_plans(parsed)]
    below = [reading for one in inner_plans for reading in _analyzed_readings(spark, one) or ()]
    names = _names(spark, parsed) if whole is None else names_of_parsed(spark, parsed)
    # Looking up what an analyzed command names is not an access of the command.
    with nullcontext() if whole is None else suspended(spark):
        named = [reading for parts in names for reading in _readings_by_name(spark, parts)]
    found = [Counter(part) for part in (whole or (), below, named)]
    return tuple((found[0] | found[1] | found[2]).elements())


def _names(spark: SparkSession, plan: Any) -> Iterator[tuple[str, ...]]:
    """Yield the names of tables and views that a statement mentions, also computed ones."""
    yield from names_of_parsed(spark, plan)
    for node in computed_names(spark, plan):
        text = constant_text(spark, node.identifierExpr(), script=False)
        if text is not None:
            yield tuple(str(part) for part in items(parse_name(spark, text)))


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
    """Return what a parsed plan reads, subqueries included; None if its analysis fails."""
    analyzed = _analyze(spark, plan)
    return None if analyzed is None else readings_of(analyzed)


def _analyze(spark: SparkSession, plan: Any) -> Any | None:
    """Return an analyzed plan, without running the commands in it; None if the analysis fails."""
    try:
        return analyze_only(spark, plan)
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
                travelled = bool(leaf.timeTravelSpec().isDefined())
                name = _v2_name(catalog.get(), identifier.get())
                return [Reading(name=name, travelled=travelled)]
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
