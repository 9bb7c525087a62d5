"""Applies admissions to the plans that run for users.

The rule itself (``Gate.java``) is Java: Spark calls it for every plan, also for those inside
commands, on whatever thread, while only the threads of statements can call Python.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import translate
from functools import cache
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.errors import Code, ServerError, error
from tidegate_server.core.model.access import Access, Act, Admission, Features, ObjectKind
from tidegate_server.engine.gate import tables
from tidegate_server.engine.gate.python_catalogs import connect_python, python_catalogs
from tidegate_server.engine.storage.jvm import compiled_instance, java, java_source, scala_object

_FIELD = "\x1f"
_RECORD = "\x1e"
_COLLECT = "*"
_CATALOG = "catalog:"


@dataclass(slots=True)
class Collected:
    """The accesses of the plans within a block, known when it has ended."""

    accesses: tuple[Access, ...] = ()


def install_gate(spark: SparkSession) -> None:
    """Check the plans of all sessions that are created from now on."""
    gate = _gate(spark)
    python = python_catalogs(spark, uses=places(spark))
    connect_python(spark, python)
    gate.catalogs().connect(python)
    gate.configure(_RECORD.join(_FIELD.join(line) for line in _configuration()))
    session: Any = spark._jsparkSession
    extensions = session.extensions()
    extensions.injectCheckRule(gate)
    extensions.injectHintResolutionRule(gate.outsideRule())  # these rules run first
    jvm = java(spark)
    builtin = scala_object(jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry").builtin()
    for name, need in tables.guarded_functions().items():
        identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
        builder = builtin.lookupFunctionBuilder(identifier)
        if builder.isDefined():
            guarded = gate.guarded(session, name, need.value, builder.get())
            information = builtin.lookupFunction(identifier).get()
            extensions.injectFunction(jvm.scala.Tuple3(identifier, information, guarded))


@contextmanager
def collecting(spark: SparkSession, features: Features, *, mark: bool) -> Iterator[Collected]:
    """Collect what the plans in the block access.

    Nothing is refused but guarded functions, and names of files that the user may not read.

    :param features: those that the user may use.
    :param mark: whether the session is a user's, in which everything needs an admission.
    """
    found = Collected()
    with _admission(spark, features, _COLLECT, mark=mark) as report:
        try:
            yield found
        finally:
            found.accesses = report().found


@contextmanager
def enforcing(
    spark: SparkSession,
    admission: Admission | None,
    user: str,
    *,
    mark: bool = False,
    exact: bool = False,
) -> Iterator[None]:
    """Let the plans in the block access only what is admitted; everything for None.

    :param mark: as in :func:`collecting`.
    :param exact: whether what was admitted in a view is admitted nowhere else; not if the query
        has the texts of views written into it.
    :raises ServerError: ACCESS_DENIED.
    """
    if admission is None:
        with suspended(spark):
            yield
        return
    text = _RECORD.join(_encode(access) for access in admission.accesses)
    features = Features(names=admission.features)
    with _admission(spark, features, text, mark=mark, exact=exact) as report:
        try:
            yield
        except Exception as caught:
            refused = report().refused
            if not refused:
                raise
            raise _error(refused[0], user) from caught


def pass_own_statements(spark: SparkSession) -> None:
    """Let the engine's own statements pass on this thread, unless an admission applies."""
    _gate(spark).suspend(spark.sparkContext._jsc.sc())


@contextmanager
def suspended(spark: SparkSession) -> Iterator[None]:
    """Let the engine's own statements pass until the block ends."""
    gate, context = _gate(spark), spark.sparkContext._jsc.sc()
    before = gate.suspend(context)
    try:
        yield
    finally:
        gate.change(context, before)


@contextmanager
def running_as(spark: SparkSession, user: str) -> Iterator[None]:
    """Make a user ``current_user()`` until the block ends; the owner of what is created."""
    current = java(spark).org.apache.spark.sql.catalyst.CurrentUserContext.CURRENT_USER()
    before = current.get()
    current.set(user or None)
    try:
        yield
    finally:
        current.set(before)


def accesses_of_parsed(spark: SparkSession, plan: Any) -> tuple[Access, ...]:
    """Return the features that a parsed plan uses, as far as it shows before its analysis."""
    return _decode(_gate(spark).inspect(spark._jsparkSession, plan))


def place_of(spark: SparkSession, path: str) -> str:
    """Return where the files of a path are, which may be a pattern: the directory before it."""
    return str(_gate(spark).place(spark._jsparkSession, path))


def names_of_parsed(spark: SparkSession, plan: Any) -> Iterator[tuple[str, ...]]:
    """Yield the names of tables and views in a parsed plan."""
    text = str(_gate(spark).names(spark._jsparkSession, plan))
    return (tuple(name.split(_FIELD)) for name in text.split(_RECORD) if name)


def computed_names(spark: SparkSession, plan: Any) -> Iterator[Any]:
    """Yield the nodes of a parsed plan that have their name from an expression."""
    return iter(_gate(spark).computed(spark._jsparkSession, plan))


@contextmanager
def limiting(spark: SparkSession, features: Features | None, user: str) -> Iterator[None]:
    """Let the plans that are analyzed in the block, but not run, use only these features.

    :raises ServerError: ACCESS_DENIED.
    """
    if features is None:
        with suspended(spark):
            yield
        return
    with _admission(spark, features, _COLLECT, mark=True) as report:
        failure: Exception | None = None
        try:
            yield
        except Exception as caught:
            failure = caught
        beyond = [
            *report().refused,
            *(
                access
                for access in report().found
                if access.kind is ObjectKind.FEATURE and access.catalog not in features.names
            ),
        ]
        if beyond:
            raise _error(beyond[0], user) from failure
        if failure is not None:
            raise failure


def describe(access: Access) -> str:
    """Return an access in the words of an error message."""
    match access.kind:
        case ObjectKind.FEATURE:
            return f"{access.catalog}: {access.schema}"
        case ObjectKind.PATH | ObjectKind.SETTING | ObjectKind.SCHEMA:
            return f"{access.act.value} on {access.kind.value.lower()} {access.name}"
        case _:
            name = ".".join(filter(None, (access.catalog, access.schema, access.name)))
            return f"{access.act.value} on {access.kind.value.lower()} {name}"


def _error(refused: Access, user: str) -> ServerError:
    hint = "Write the names of all objects into the statement."
    if refused.kind is ObjectKind.PATH:
        hint = "Name the path itself: a computed name, a link or the log of a table leads there."
    return error(
        Code.ACCESS_DENIED,
        user=user,
        privilege="administration",
        object=f"{describe(refused)}, which was not known before the statement ran",
        hint=hint,
    )


@dataclass(frozen=True, slots=True)
class _Report:
    """What the plans under an admission did."""

    found: tuple[Access, ...] = ()
    refused: tuple[Access, ...] = ()


@contextmanager
def _admission(
    spark: SparkSession, features: Features, text: str, *, mark: bool, exact: bool = False
) -> Iterator[Callable[[], _Report]]:
    """Apply an admission until the block ends or the yielded function is called, which reports."""
    gate, session, key = _gate(spark), spark._jsparkSession, uuid.uuid4().hex
    outside = (*features.readable, *(f"{_CATALOG}{name}" for name in features.catalogs))
    names = _FIELD.join(features.names)
    before = gate.begin(session, key, names, _FIELD.join(outside), text, mark, exact)

    @cache
    def end() -> _Report:
        found, _, refused = str(gate.end(session, key, before)).partition(_RECORD + _RECORD)
        return _Report(_decode(found), _decode(refused))

    try:
        yield end
    finally:
        end()


def _configuration() -> Iterator[tuple[str, ...]]:
    """Yield the lists of what plans may contain as lines for the rule."""
    for name, need in tables.class_needs().items():
        yield "class", name, need.value
    for name, fields in tables.command_rows().items():
        yield "command", name
        for field, acts in fields.items():
            for act in acts:
                yield "command", name, field, *_act(act)
    for name, need in tables.source_needs().items():
        yield "source", name, need.value
    for name, need in tables.guarded_functions().items():
        yield "function", name, need.value
    formats = tables.hive_formats()
    for name in formats.serdes | formats.input_formats | formats.output_formats:
        yield "format", name
    for kind, rules in (("property", tables.property_rules()), ("option", tables.option_rules())):
        yield kind, "default", rules.default.value
        for pattern, need in rules.patterns:
            yield kind, "pattern", translate(pattern), need.value
        for key, values in rules.values.items():
            for value in values:
                yield kind, "value", key, value


def _act(act: tables.Act) -> tuple[str, ...]:
    condition = act.condition
    return (
        act.action.value,
        act.kind.value if act.kind is not None else "",
        act.need.value if act.need is not None else "",
        condition.field if condition is not None else "",
        str(condition is not None and condition.present).lower(),
    )


def _gate(spark: SparkSession) -> Any:
    python = python_catalogs(spark, uses=places(spark))
    catalogs = compiled_instance(spark, "tidegate.Catalogs", _source("Catalogs"), uses=python)
    return compiled_instance(spark, "tidegate.Gate", _source("Gate"), uses=catalogs)


def _source(name: str) -> str:
    return java_source(__package__, name)


def places(spark: SparkSession) -> Any:
    """Return what finds out where files are (``Places.java``)."""
    return compiled_instance(spark, "tidegate.Places", _source("Places"))


def catalogs(spark: SparkSession) -> Any:
    """Return the catalogs and connections of all sessions (``Catalogs.java``)."""
    return _gate(spark).catalogs()


def _encode(access: Access) -> str:
    return _FIELD.join(
        (
            *(access.act.value, access.kind.value, access.catalog, access.schema, access.name),
            *(access.owner, access.via, access.location),
        )
    )


def _decode(text: str) -> tuple[Access, ...]:
    return tuple(_access(line.split(_FIELD)) for line in text.split(_RECORD) if line)


def _access(fields: list[str]) -> Access:
    act, kind, catalog, schema, name, owner, via, location = fields
    return Access(
        act=Act(act),
        kind=ObjectKind(kind),
        catalog=catalog,
        schema=schema,
        name=name,
        owner=owner,
        via=via,
        location=location,
    )
