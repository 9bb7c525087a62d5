"""CREATE TABLE ... WITH (...) without a connector is a Delta table."""

from __future__ import annotations

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement


def _parsed(text: str) -> SparkStatement:
    statement = parse(text)
    assert isinstance(statement, SparkStatement)
    return statement


def test_types_comments_partitions_and_properties_are_spark_s() -> None:
    found = _parsed(
        "CREATE TABLE IF NOT EXISTS `lake`.`default`.t (a INT NOT NULL, ts TIMESTAMP(6), // when\n"
        "b VARCHAR(10) COMMENT 'x''y') COMMENT 'c' PARTITIONED BY (b) "
        "WITH ('delta.appendOnly' = 'true', 'format' = 'delta');"
    )
    assert found.text == (
        "CREATE TABLE IF NOT EXISTS `lake`.`default`.`t` (`a` INT NOT NULL, `ts` TIMESTAMP, "
        r"`b` VARCHAR(10) COMMENT 'x\'y') USING delta COMMENT 'c' PARTITIONED BY (`b`) "
        "TBLPROPERTIES ('delta.appendOnly' = 'true', 'format' = 'delta')"
    )
    assert found.remarks == ()


def test_options_and_keys_without_effect_produce_warnings() -> None:
    found = _parsed(
        "CREATE TABLE t (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '4', 'x' = 'y')"
    )
    assert "'primary-key' = 'id'" in found.text
    assert [remark.split(" ")[0] for remark in found.remarks] == ["'bucket'", "'x'", "The"]


def test_a_query_gives_the_columns() -> None:
    text = "CREATE TABLE t WITH () AS SELECT 1 AS a"
    assert _parsed(text).text == "CREATE TABLE `t` USING delta AS SELECT 1 AS a"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (a INT) USING delta",
        "CREATE TABLE t AS WITH c AS (SELECT 1) SELECT * FROM c",
    ],
)
def test_other_statements_stay_as_they_are(text: str) -> None:
    assert _parsed(text).text == text


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("CREATE TEMPORARY TABLE t (a INT) WITH ('x' = 'y')", 8, "without a connector"),
        ("CREATE TABLE t WITH ()", 23, "expected AS"),
        ("CREATE TABLE t (a INT) WITH ('Connector' = 'kafka')", 29, "The option 'Connector'"),
        ("CREATE TABLE t (a AS 1) WITH ()", 16, "The column a"),
        ("CREATE TABLE t (a INT, WATERMARK FOR a AS a) WITH ()", 16, "A WATERMARK"),
        ("CREATE TABLE t (a INT, CONSTRAINT c EXPECT (a > 1)) WITH ()", 16, "A constraint"),
    ],
)
def test_what_a_plain_table_cannot_have_is_rejected(text: str, place: int, words: str) -> None:
    with pytest.raises(ServerError, match=words) as caught:
        parse(text)
    assert caught.value.column == place


def test_a_connector_in_a_comment_is_none() -> None:
    found = _parsed("CREATE TABLE t (a INT) WITH ('x' = 'y' -- 'connector' = 'kafka'\n)")
    assert found.text == "CREATE TABLE `t` (`a` INT) USING delta TBLPROPERTIES ('x' = 'y')"


def test_keys_of_rows_that_are_no_changes_produce_a_warning() -> None:
    columns = "(a INT, PRIMARY KEY (a) NOT ENFORCED)"
    [remark] = _parsed(f"CREATE TABLE t {columns} WITH ('connector' = 'datagen')").remarks
    assert remark.startswith("The primary key (a) has no effect")
    changes = (
        "'connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', "
        "'format' = 'debezium-json'"
    )
    assert _parsed(f"CREATE TABLE t {columns} WITH ({changes})").remarks == ()
