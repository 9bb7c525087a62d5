"""Every setting that Spark and Delta register has a row that says who may set it."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import items, java, scala_object
from tidegate_server.gateway.authorization.settings import setting_list

pytestmark = pytest.mark.spark

OWNERS = (
    "org.apache.spark.sql.internal.StaticSQLConf",
    "org.apache.spark.sql.hive.HiveUtils",
    "org.apache.spark.sql.delta.sources.DeltaSQLConf",
)
"""Objects that register their entries with SQLConf once they are loaded."""


LAZY = (
    "ALLOW_COLLATIONS_IN_MAP_KEYS",
    "COLLATION_AWARE_HASHING_ENABLED",
    "OBJECT_LEVEL_COLLATIONS_ENABLED",
    "SCHEMA_LEVEL_COLLATIONS_ENABLED",
    "TRIM_COLLATION_ENABLED",
)
"""Entries of SQLConf that are registered at their first use."""


@dataclass(frozen=True)
class Registered:
    """The names of the settings that Spark knows."""

    keys: frozenset[str]
    former: frozenset[str]
    """Names that a key had in earlier versions, which Spark still reads."""
    fixed: frozenset[str]
    """Keys that are fixed when the engine starts."""


@pytest.fixture(scope="module")
def registered(spark_root: SparkSession) -> Registered:
    jvm = java(spark_root)
    for owner in OWNERS:
        scala_object(jvm, owner)
    known = scala_object(jvm, "org.apache.spark.sql.internal.SQLConf")
    for name in LAZY:
        getattr(known, name)()
    keys, former, entries = set(), set(), known.getConfigEntries().iterator()
    while entries.hasNext():
        entry = entries.next()
        keys.add(str(entry.key()))
        former.update(str(name) for name in items(entry.alternatives()))
    fixed = {key for key in keys if known.isStaticConfigKey(key)}
    return Registered(frozenset(keys), frozenset(former), frozenset(fixed))


def test_every_setting_has_a_row_and_every_row_a_setting(registered: Registered) -> None:
    rows = setting_list().settings
    of_spark = {row for row in rows if row.startswith("spark.")}
    missing = sorted((registered.keys | registered.former) - of_spark)
    outdated = sorted(of_spark - registered.keys - registered.former)
    sys.stdout.write(f"{dict(Counter(rows.values()))}, of Spark and Delta {len(of_spark)}\n")
    assert not missing, f"settings without a row in settings.toml: {missing}"
    assert not outdated, f"rows for settings that do not exist: {outdated}"


def test_of_the_fixed_settings_only_one_may_be_seen(registered: Registered) -> None:
    rows = setting_list().settings
    assert {key for key in registered.fixed if rows[key] == "free"} == {"spark.sql.hive.version"}
