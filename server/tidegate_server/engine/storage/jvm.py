"""Java and Scala from Python: classes, objects, Spark's active session."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

FILES = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
"""The class of all relations over files."""


class Java:
    """Caches the packages, classes and static methods below a name.

    py4j looks up every part of ``org.apache.hadoop.fs.Path`` in the JVM each time it is used. These
    round trips were a third of all those of a small refresh.
    """

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._found, name)
        if isinstance(found, (JavaPackage, JavaClass)):
            found = Java(found)
        elif not isinstance(found, JavaMember) and name != "MODULE$":
            return found  # static fields may change, so they are not cached
        self.__dict__[name] = found
        return found

    def __call__(self, *arguments: Any) -> Any:
        """Construct an object of the class."""
        return self._found(*arguments)


def java(session: SparkSession) -> Any:
    """Return the root package of a session's JVM."""
    return _root(session._jvm)


@cache
def _root(jvm: Any) -> Java:
    return Java(jvm)


@contextmanager
def temporary_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply the modifiable settings until the block ends, and those that are not Spark's own."""
    usable = {
        key: value
        for key, value in settings.items()
        if session.conf.isModifiable(key) or not key.startswith("spark.")
    }
    before = {key: session.conf.get(key, None) for key in usable}
    try:
        for key, value in usable.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, value)


def field_names(schema: Any) -> Iterator[str]:
    """Yield the names of a struct's fields, in one call to the JVM however many they are."""
    for field in json.loads(str(schema.json()))["fields"]:
        yield str(field["name"])


def texts(session: SparkSession, pairs: Any) -> dict[str, str]:
    """Return the entries of a Java map of texts, in two round trips.

    py4j takes several for each entry, and a hundred more for the exception that ends an iteration.
    """
    writer = java(session).com.fasterxml.jackson.databind.ObjectMapper()
    found: dict[str, str] = json.loads(str(writer.writeValueAsString(pairs)))
    return found


def is_instance(jvm: Any, value: Any, name: str) -> bool:
    """Say whether a Java object is an instance of a class."""
    return bool(jvm.java.lang.Class.forName(name).isInstance(value))


def kind(value: Any) -> str:
    """Return the simple name of a Java object's class, or of a Scala object."""
    return str(_class_names(value._gateway_client).getSimpleName(value)).rstrip("$")


def is_command(frame: DataFrame) -> bool:
    """Say whether a frame is the result of a command, which has run already."""
    return kind(frame._jdf.queryExecution().executedPlan()) == "CommandResultExec"


@cache
def _class_names(client: Any) -> Java:
    """Return a class that names a class in one round trip, where ``getClass`` takes two."""
    return Java(JavaClass("org.apache.commons.lang3.ClassUtils", client))


def count_executors(context: Any) -> int:
    """Return the number of executors that a cluster has given to Spark's Java context."""
    return len(context.statusTracker().getExecutorInfos()) - 1  # the driver is among them


def string_array(spark: SparkSession, parts: Sequence[str]) -> Any:
    """Return an array of Java strings."""
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.String, len(parts))
    for place, part in enumerate(parts):
        array[place] = part
    return array


def items(sequence: Any) -> Iterator[Any]:
    """Return the elements of a Scala Seq."""
    return (sequence.apply(index) for index in range(sequence.size()))


def with_fields(record: Any, changes: Mapping[int, Any]) -> Any:
    """Return a copy of a Scala case class instance, with fields changed by position."""
    fields = [record.productElement(n) for n in range(record.productArity())]
    return record.copy(*(changes.get(n, field) for n, field in enumerate(fields)))


def scala_object(jvm: Any, owner: str, name: str = "") -> Any:
    """Return the Scala object ``owner``, or the object ``name`` inside it."""
    *package, last = owner.split(".")
    place = jvm
    for part in package:
        place = getattr(place, part)
    return getattr(getattr(place, f"{last}${name}$" if name else f"{last}$"), "MODULE$")


@cache
def java_source(package: str, name: str) -> str:
    """Return the source of a Java class that is beside the modules of a package."""
    return files(package).joinpath(f"{name}.java").read_text("utf-8")


_instances: dict[str, Any] = {}
_compiling = Lock()


def compiled_instance(
    spark: SparkSession, name: str, source: str, *, uses: Any = None, executors: bool = False
) -> Any:
    """Return the instance of a Java class, compiled once with Spark's own compiler, Janino.

    For loops over many small objects: from Python, each one would take a round trip to the JVM.

    :param uses: an instance that was compiled before, whose class the source mentions.
    :param executors: whether executors load the class, too.
    """
    if name not in _instances:
        # py4j remembers methods by the name of their class, so that of two classes with the same
        # name, which two threads would compile, calls of one fail.
        with _compiling:
            if name not in _instances:
                _instances[name] = _compile(spark, name, source, uses, executors=executors)
    return _instances[name]


def _compile(spark: SparkSession, name: str, source: str, uses: Any, *, executors: bool) -> Any:
    known = spark._jsparkSession if uses is None else uses
    compiler = java(spark).org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(known.getClass().getClassLoader())
    compiler.cook(source)
    if executors:
        _send_to_executors(spark, name, compiler.getBytecodes())
    return compiler.getClassLoader().loadClass(name).newInstance()


def _send_to_executors(spark: SparkSession, name: str, classes: Mapping[str, bytes]) -> None:
    """Add a jar of classes to the application, from which executors load them."""
    jvm = java(spark)
    directory = jvm.org.apache.spark.util.Utils.createTempDir()  # deleted with the application
    jar = Path(str(directory.getPath()), f"{name}.jar")
    with zipfile.ZipFile(jar, "w") as file:
        for each in classes:
            # Without the time, the same classes make the same file: Spark rejects another one.
            entry = zipfile.ZipInfo(f"{each.replace('.', '/')}.class")
            file.writestr(entry, bytes(classes[each]))
    context: Any = spark.sparkContext._jsc
    context.addJar(jar.as_uri())
    if context.sc().isLocal():
        # The executor of this process copies the jar before its next task, and makes the copy
        # executable for everybody.
        context.parallelize(jvm.java.util.Collections.singletonList(0), 1).count()
        Path(str(jvm.org.apache.spark.SparkFiles.get(jar.name))).chmod(0o600)


def known_instance(name: str) -> Any | None:
    """Return the instance of a class that was compiled before; None if there is none."""
    return _instances.get(name)


def analyze_only(spark: SparkSession, plan: Any) -> Any:
    """Return an analyzed plan without running the commands in it.

    :raises pyspark.errors.AnalysisException: if the plan is invalid.
    """
    return _execution(spark, plan).analyzed()


def plan_only(spark: SparkSession, plan: Any) -> Any:
    """Return the physical plan of a parsed one without running the commands in it.

    :raises pyspark.errors.AnalysisException: if the plan is invalid.
    """
    return _execution(spark, plan).executedPlan()


def _execution(spark: SparkSession, plan: Any) -> Any:
    session: Any = spark._jsparkSession
    skip = java(spark).org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    return session.sessionState().executePlan(plan, skip)


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Return the frame of a plan, which Spark analyzes unless that was done already.

    :raises pyspark.errors.AnalysisException: if the plan is invalid.
    """
    dataset = java(spark).org.apache.spark.sql.classic.Dataset
    return ClassicFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


@contextmanager
def active_session(session: SparkSession) -> Iterator[None]:
    """Make a session the thread's active one until the block ends; Delta's classes use that."""
    sessions = java(session).org.apache.spark.sql.classic.SparkSession
    previous = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if previous.isDefined():
            sessions.setActiveSession(previous.get())
        else:
            sessions.clearActiveSession()
