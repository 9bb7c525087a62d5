"""The list of settings: what is on it, and how keys are looked up."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from tidegate_server.core.config import Config
from tidegate_server.gateway.authorization import settings
from tidegate_server.gateway.authorization.redaction import REDACTED, redact
from tidegate_server.gateway.authorization.settings import (
    is_free,
    is_visible,
    nearest_free,
    normalise_key,
    setting_list,
)

FILE = Path(settings.__file__).with_name("settings.toml")

FREE = (
    *("spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.sql.ansi.enabled"),
    *("spark.sql.sources.partitionOverwriteMode", "spark.sql.sources.default"),
    *("spark.databricks.delta.schema.autoMerge.enabled", "spark.sql.hive.version"),
    "spark.databricks.delta.properties.defaults.appendOnly",
    *("hive.exec.dynamic.partition", "hive.exec.dynamic.partition.mode", "mapred.reduce.tasks"),
    *("day", "my-day", "hivevar:day", "hiveconf:day", "set:hiveconf:day", "HIVECONF:day"),
    *("hiveconf:spark.sql.ansi.enabled", "materialized-table.initialize", "execution.mode"),
    *("table.local-time-zone", "Table.Local-Time-Zone", "parallelism.default", "pipeline.name"),
)
RESTRICTED = (
    *("spark.redaction.regex", "spark.sql.redaction.string.regex", "spark.sql.variable.substitute"),
    *("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.hive.exec.dynamic.partition"),
    *("fs.defaultFS", "hive.metastore.uris", "javax.jdo.option.ConnectionPassword"),
    *("hiveconf:fs.defaultFS", "hivevar:hiveconf:fs.defaultFS", "fs.defaultFS ", " fs.defaultFS"),
    *("parquet.crypto.factory.class", "spark.jars", "spark.executor.memory", "spark.driver.memory"),
    *("spark.sql.analyzer.singlePassResolver.enabled", "spark.sql.debug.maxToStringFields"),
    *("spark.sql.optimizer.excludedRules", "spark.sql.runSQLOnFiles", "spark.sql.extensions"),
    *("spark.sql.catalog.mine", "spark.sql.warehouse.dir", "spark.sql.defaultCatalog"),
    *("spark.sql.legacy.notReserveProperties", "spark.sql.legacy.keepCommandOutputSchema"),
    "spark.databricks.delta.properties.defaults.redirectReaderWriter",
    "spark.databricks.delta.properties.defaults.coordinatedCommits.commitCoordinator-preview",
    *("spark.databricks.delta.retentionDurationCheck.enabled", "spark.delta.logStore.s3.impl"),
    *("spark.databricks.delta.commitInfo.userMetadata", "spark.sql.udt.allowedDynamicUDTClasses"),
    *("Spark.SQL.ANSI.enabled", "spark.sql.ansi", "spark.sql.ansi.enabled.", "a.b", "", "a b"),
)


@pytest.mark.parametrize("key", FREE)
def test_a_user_may_set_and_see(key: str) -> None:
    assert is_free(key)
    assert is_visible(key)


@pytest.mark.parametrize("key", RESTRICTED)
def test_a_user_may_neither_set_nor_see(key: str) -> None:
    assert not is_free(key)
    assert not is_visible(key)


@pytest.mark.parametrize(
    "key", ["workflow-scheduler.password", "Workflow-Scheduler.x", "table.catalog-store.file.path"]
)
def test_options_of_the_server_alone_are_not_shown(key: str) -> None:
    assert is_free(key)  # SET warns that it has no effect
    assert not is_visible(key)


def test_a_key_loses_the_scopes_of_hive_and_nothing_else() -> None:
    assert normalise_key("set:hiveconf:A.b") == "A.b"
    assert normalise_key("hivevar:hivevar:a") == "a"
    assert normalise_key("a.hiveconf:b") == "a.hiveconf:b"
    assert normalise_key("spark.hadoop.a") == "spark.hadoop.a"


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("spark.sql.shuffle.partition", "spark.sql.shuffle.partitions"),
        ("SPARK.SQL.SHUFFLE.PARTITIONS", "spark.sql.shuffle.partitions"),
        ("hiveconf:spark.sql.shuffel.partitions", "spark.sql.shuffle.partitions"),
        ("refresh.retries", None),
        ("javax.jdo.option.ConnectionPassword", None),
    ],
)
def test_the_nearest_free_name_is_suggested(key: str, near: str | None) -> None:
    assert nearest_free(key) == near


def test_nothing_of_hadoops_is_free_by_its_prefix() -> None:
    assert setting_list().free_prefixes == ("spark.databricks.delta.properties.defaults.",)
    rows = setting_list().settings
    assert not [row for row in rows if row.startswith(("spark.hadoop.", "fs.", "javax."))]
    assert not [row for row in rows if "." not in row]


def test_no_free_setting_names_code_or_a_secret() -> None:
    free = {row for row, who in setting_list().settings.items() if who == "free"}
    suspicious = re.compile(
        r"(?<!error)class(es)?$|location|directory|\bdir$|\burl|jars?\b|regex$|provider|rules$|log\b"
        r"|loglevel$",
        re.IGNORECASE,
    )
    assert {row for row in free if suspicious.search(row)} == set()
    assert {row for row in free if redact(row, "1", Config()) != "1"} == set()


def test_the_rows_of_each_group_are_sorted() -> None:
    lines = FILE.read_text("utf-8").splitlines()
    groups = groupby(lines, lambda line: line.startswith('"'))
    rows = [[line.split('"')[1] for line in group] for is_row, group in groups if is_row]
    assert sum(map(len, rows)) == len(setting_list().settings)
    for group in rows:
        assert group == sorted(group, key=lambda row: (row.lower(), row))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "x"),
        ("spark.hadoop.fs.s3a.access.key", "x"),
        ("spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net", "x"),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", "x"),
        ("workflow-scheduler.password", "x"),
        ("my_api_key", "x"),
        ("credential", "x"),
        ("a", "jdbc:postgresql://ada:lovelace@host/db"),
        ("a", "jdbc:postgresql://host/db?password=lovelace"),
    ],
)
def test_secrets_are_hidden(key: str, value: str) -> None:
    assert redact(key, value, Config()) == REDACTED


@pytest.mark.parametrize("value", ["200", "", "s3a://bucket/path", "2026-01-01", None])
def test_other_values_are_shown(value: str | None) -> None:
    assert redact("spark.sql.x", value, Config()) == value


def test_the_configuration_may_hide_more_but_not_less() -> None:
    config = Config.model_validate({"engine": {"settings": {"spark.redaction.regex": "(?i)pin"}}})
    assert redact("my.PIN", "1", config) == REDACTED
    assert redact("my.secret", "1", config) == REDACTED
    assert redact("my.number", "1", config) == "1"


def test_a_pattern_that_the_gateway_cannot_apply_is_an_error_at_startup() -> None:
    with pytest.raises(ValueError, match=r"spark\.redaction\.regex"):
        Config.model_validate({"engine": {"settings": {"spark.redaction.regex": "("}}})
