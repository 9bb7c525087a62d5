"""Checks Spark settings before they are applied."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from tidegate_server.core.messages.answers import SettingsChecked
from tidegate_server.engine.storage.jvm import java, scala_object

_OPEN = (
    "spark.databricks.delta.properties.defaults.",
    "spark.hadoop.",
    "spark.sql.catalog.",
    "spark.sql.hive.metastore.",
)
"""Prefixes of settings that Spark does not list by name."""
_KEY = re.compile(r"ConfigEntry\(key=([^,]+),")
_SIMILAR = 0.85
"""Minimum similarity of an unknown name to a known one that is suggested."""


def check_settings(spark: SparkSession, settings: Mapping[str, str]) -> SettingsChecked:
    """Try the settings in a new session; return suggestions for names that look misspelt.

    :raises pyspark.errors.PySparkException: if Spark rejects one.
    """
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(key, value)
    entries: Any = java(spark).org.apache.spark.internal.config.ConfigEntry
    unknown = [
        key for key in settings if not key.startswith(_OPEN) and entries.findEntry(key) is None
    ]
    if not unknown:
        return SettingsChecked()
    # One call for all entries; py4j would fetch each separately.
    known = scala_object(java(spark), "org.apache.spark.sql.internal.SQLConf").getConfigEntries()
    names = _KEY.findall(str(known.toString()))
    found = {key: difflib.get_close_matches(key, names, n=1, cutoff=_SIMILAR) for key in unknown}
    return SettingsChecked(similar={key: near[0] for key, near in found.items() if near})
