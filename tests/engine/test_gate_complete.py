"""The lists of what plans may contain name every class and function of Spark and Delta.

A new version of either fails here until each new class has been judged. ``pytest -s`` prints how
many need what.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate_server.engine.gate import tables
from tidegate_server.engine.gate.tables import Need
from tidegate_server.engine.storage.jvm import compiled_instance, items, java

pytestmark = pytest.mark.spark

_CATALYST = "org.apache.spark.sql.catalyst"
_EXPRESSION = f"{_CATALYST}.expressions.Expression"
_PLAN = f"{_CATALYST}.plans.logical.LogicalPlan"
_SOURCES = tuple(
    f"org.apache.spark.sql.{name}"
    for name in (
        "connector.catalog.TableProvider",
        "execution.datasources.FileFormat",
        "sources.CreatableRelationProvider",
        "sources.DataSourceRegister",
        "sources.RelationProvider",
        "sources.SchemaRelationProvider",
        "sources.StreamSinkProvider",
        "sources.StreamSourceProvider",
    )
)
_HIVE = {
    "serdes": "org.apache.hadoop.hive.serde2.Deserializer",
    "input_formats": "org.apache.hadoop.mapred.InputFormat",
    "output_formats": "org.apache.hadoop.mapred.OutputFormat",
}
_OPTIONAL = ("org.apache.spark.sql.kafka010.", "org.apache.iceberg.")
"""Sources that are on the class path only if the engine was started with Kafka or Iceberg."""

_ICEBERG = "iceberg-spark-runtime"

_DERIVABLE = frozenset(
    {
        f"{_CATALYST}.FunctionIdentifier",
        f"{_CATALYST}.TableIdentifier",
        f"{_CATALYST}.analysis.NamedRelation",
        f"{_CATALYST}.catalog.CatalogTable",
        _PLAN,
        "org.apache.spark.sql.delta.catalog.DeltaTableV2",
        "org.apache.spark.sql.delta.commands.CloneSource",
        "org.apache.spark.sql.execution.datasources.LogicalRelation",
        "scala.Option",
    }
)
"""Types of fields that tell the kind of their object."""

_NAME = "tidegate.test.Classes"
_SOURCE = """
package tidegate.test;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;

public class Classes {
  private final ClassLoader loader = getClass().getClassLoader();

  /** Returns lines of a root and the name of a concrete class below it, for names in lines. */
  public String below(String roots, String names) throws Exception {
    String[] rootNames = roots.split("\\n");
    Class[] above = new Class[rootNames.length];
    for (int i = 0; i < above.length; i++) above[i] = Class.forName(rootNames[i], false, loader);
    StringBuilder found = new StringBuilder();
    String[] all = names.split("\\n");
    for (int i = 0; i < all.length; i++) {
      Class one;
      try {
        one = Class.forName(all[i], false, loader);
      } catch (LinkageError error) {
        continue; // it needs a jar that is not there
      }
      if (one.isInterface() || Modifier.isAbstract(one.getModifiers())) continue;
      for (int j = 0; j < above.length; j++) {
        if (above[j].isAssignableFrom(one)) {
          found.append(rootNames[j]).append(' ').append(all[i]).append('\\n');
          break;
        }
      }
    }
    return found.toString();
  }

  /** Returns lines of the name and the type of the accessors of a class. */
  public String accessors(String name) throws Exception {
    StringBuilder found = new StringBuilder();
    Method[] all = Class.forName(name, false, loader).getMethods();
    for (int i = 0; i < all.length; i++) {
      if (all[i].getParameterTypes().length == 0 && !all[i].isBridge()) {
        String type = all[i].getReturnType().getName();
        found.append(all[i].getName()).append(' ').append(type).append('\\n');
      }
    }
    return found.toString();
  }
}
"""


@pytest.fixture(scope="module")
def classes(spark_root: SparkSession) -> Any:
    """The reader of classes in the JVM."""
    return compiled_instance(spark_root, _NAME, _SOURCE)


@pytest.fixture(scope="module")
def by_root(spark_root: SparkSession, classes: Any) -> Mapping[str, frozenset[str]]:
    """Concrete classes of the class path, by what they extend."""
    path = str(java(spark_root).java.lang.System.getProperty("java.class.path"))
    jars = [part for part in path.split(os.pathsep) if part.endswith(".jar")]
    assert any("delta-spark" in jar for jar in jars)
    assert any("spark-catalyst" in jar for jar in jars)
    names = "\n".join(sorted({name for jar in jars for name in _names_in(jar)}))
    roots = (_EXPRESSION, _PLAN, *_SOURCES)
    lines = str(classes.below("\n".join(roots), names)).splitlines()
    pairs = [line.split(" ") for line in lines]
    return {root: frozenset(name for above, name in pairs if above == root) for root in roots}


def _names_in(jar: str) -> Iterator[str]:
    """Yield the classes of a jar that mention Spark SQL, as every class below the roots does.

    Plans of Iceberg come from its extensions of Spark's parser, which are not loaded, and are
    refused because they are not listed.
    """
    with zipfile.ZipFile(jar) as opened:
        for entry in opened.namelist():
            if not entry.endswith(".class") or entry.startswith("META-INF/"):
                continue
            if _ICEBERG in jar and entry.startswith("org/apache/spark/"):
                continue
            if b"org/apache/spark/sql/" in opened.read(entry):
                yield entry.removesuffix(".class").replace("/", ".")


def _compare(listed: Iterable[str], present: Iterable[str]) -> None:
    """Fail with the names that are not listed, and with those that do not exist."""
    missing = sorted(set(present) - set(listed))
    unknown = sorted(set(listed) - set(present))
    assert not missing, f"not listed: {missing}"
    assert not unknown, f"listed, but not there: {unknown}"


def _report(title: str, needs: Iterable[Need]) -> None:
    counts = Counter(need.value for need in needs)
    shown = ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
    sys.stdout.write(f"\n{title}: {shown}\n")


def test_every_plan_and_expression_is_listed(by_root: Mapping[str, frozenset[str]]) -> None:
    needs, commands = tables.class_needs(), tables.command_rows()
    plans, expressions = by_root[_PLAN], by_root[_EXPRESSION]
    _report("expressions", (needs[name] for name in expressions if name in needs))
    _report("plans", (needs[name] for name in plans if name in needs))
    sys.stdout.write(f"commands: {len(commands)}\n")
    _compare([*needs, *commands], plans | expressions)
    assert commands.keys() <= plans


def test_every_field_of_a_command_exists(classes: Any) -> None:
    wrong = []
    for name, row in tables.command_rows().items():
        types = _accessors(classes, name)
        for field, acts in row.items():
            conditions = [act.condition for act in acts if act.condition is not None]
            wrong += [
                f"{name}: no field {used}"
                for used in (field, *(condition.field for condition in conditions))
                if used and used not in types
            ]
            wrong += [
                f"{name}: {condition.field} is neither a truth value nor an Option"
                for condition in conditions
                if types.get(condition.field) not in ("boolean", "scala.Option")
            ]
            if any(act.kind is None and act.need is None for act in acts):
                used = types.get(field)
                if used not in _DERIVABLE:
                    wrong.append(f"{name}: {field}, a {used}, does not tell its object's kind")
    assert not wrong


def test_every_expression_with_options_has_them(classes: Any) -> None:
    for name, need in tables.class_needs().items():
        if need is Need.OPTIONS:
            assert "options" in _accessors(classes, name), name


def _accessors(classes: Any, name: str) -> dict[str, str]:
    return dict(line.split(" ") for line in str(classes.accessors(name)).splitlines())


def test_every_function_of_a_fresh_session_is_listed(spark_root: SparkSession) -> None:
    session: Any = spark_root.newSession()._jsparkSession
    state = session.sessionState()
    present = {
        str(name.unquotedString())
        for registry in (state.functionRegistry(), state.tableFunctionRegistry())
        for name in items(registry.listFunction())
    }
    _report("functions", tables.function_needs().values())
    _compare(tables.function_needs(), present)


def test_every_source_is_listed(by_root: Mapping[str, frozenset[str]]) -> None:
    present = frozenset[str]().union(*(by_root[root] for root in _SOURCES))
    _report("sources", tables.source_needs().values())
    absent = {name for name in tables.sources() if name.startswith(_OPTIONAL)} - present
    _compare(tables.sources().keys() - absent, present)


def test_every_short_name_of_a_source_is_listed(spark_root: SparkSession) -> None:
    jvm = java(spark_root)
    loader = spark_root._jsparkSession.getClass().getClassLoader()
    service = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.sources.DataSourceRegister", False, loader
    )
    found = jvm.java.util.ServiceLoader.load(service, loader).iterator()
    while found.hasNext():
        source = found.next()
        name, short_name = str(source.getClass().getName()), str(source.shortName())
        assert name in tables.sources() and short_name in tables.sources()[name].short_names, name


def test_every_format_of_hive_exists(spark_root: SparkSession, classes: Any) -> None:
    formats = tables.hive_formats()
    for field, root in _HIVE.items():
        listed = sorted(getattr(formats, field))
        found = str(classes.below(root, "\n".join(listed))).splitlines()
        assert [line.split(" ")[1] for line in found] == listed
