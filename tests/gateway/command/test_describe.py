"""DESCRIBE in its three forms."""

from __future__ import annotations

import json

import pytest

from tests.gateway.command.fakes import NOW, Column, Schema, World, analysis
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.answers import TableInfo
from tidegate_server.core.messages.requests import Execute
from tidegate_server.core.model.names import TableName

TEXT = (
    "CREATE MATERIALIZED TABLE m (PRIMARY KEY(a) NOT ENFORCED, u AS upper(b) COMMENT 'loud', "
    "file STRING METADATA FROM 'file_name' VIRTUAL, c INT METADATA FROM 'k', "
    "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND, CONSTRAINT ok EXPECT (a > 0)) "
    "PARTITIONED BY (b) AS SELECT * FROM s"
)


@pytest.fixture
def described_world(world: World) -> World:
    columns = (
        Column(name="a", type="bigint", nullable=False, comment="id"),
        Column(name="b", type="string"),
        Column(name="c", type="int"),
        Column(name="ts", type="timestamp"),
    )
    world.engine.analyses["SELECT * FROM s"] = analysis(Schema(columns), "s")
    world.execute(TEXT)
    return world


def test_columns_stand_where_the_table_shows_them(described_world: World) -> None:
    assert described_world.rows("DESCRIBE m")[:6] == [
        ("u", "string", "loud"),
        ("file", "string", None),
        ("a", "bigint", "id"),
        ("b", "string", None),
        ("c", "int", None),
        ("ts", "timestamp", None),
    ]


def test_partition_columns_are_repeated_below(described_world: World) -> None:
    assert described_world.rows("DESC m")[6:] == [
        ("# Partition Information", "", ""),
        ("# col_name", "data_type", "comment"),
        ("b", "string", None),
    ]


def test_extended_adds_the_facts(described_world: World) -> None:
    facts = {row[0]: row[1] for row in described_world.rows("DESC EXTENDED d.m")}
    assert facts["logical_refresh_mode"] == "AUTOMATIC"
    assert facts["refresh_mode"] == "CONTINUOUS"
    assert facts["refresh_status"] == "ACTIVATED"
    assert facts["original_query"] == "SELECT * FROM s"
    assert facts["freshness"] == "3 MINUTE"
    assert facts["watermark"] == "`ts` AS ts - INTERVAL '1' SECOND"
    assert facts["expectations"] == "ok EXPECT (a > 0) ON VIOLATION WARN"
    assert facts["derived_columns"] == ("`u` AS upper(b); `file` METADATA FROM 'file_name' VIRTUAL")


def test_the_lag_and_its_cause_follow_from_the_history(described_world: World) -> None:
    described_world.execute("ALTER MATERIALIZED TABLE m REFRESH")
    facts = {row[0]: row[1] for row in described_world.rows("DESC EXTENDED m")}
    assert facts["data_timestamp"] == f"{NOW:%Y-%m-%d %H:%M:%S} UTC"
    assert facts["actual_lag"] == "at most 0 s"
    assert facts["continuous_strategy"] == "FULL"


def test_json_has_the_columns_and_the_same_facts(described_world: World) -> None:
    [(text,)] = described_world.rows("DESCRIBE m AS JSON")
    answer = json.loads(str(text))
    extended = [row[0] for row in described_world.rows("DESC EXTENDED m")]
    facts = extended[extended.index("# Materialized Table Information") + 1 :]
    assert [key for key in answer if key != "columns"] == facts
    assert [column["name"] for column in answer["columns"] if not column["stored"]] == ["u", "file"]


def test_flinks_format_has_keys_extras_and_watermarks(described_world: World) -> None:
    described_world.execute("SET 'materialized-table.describe.format'='flink'")
    result = described_world.execute("DESCRIBE m")
    assert result.schema.names() == ("name", "type", "null", "key", "extras", "watermark")
    assert described_world.rows("DESCRIBE m") == [
        ("u", "STRING", "TRUE", None, "AS upper(b)", None),
        ("file", "STRING", "TRUE", None, "METADATA FROM 'file_name' VIRTUAL", None),
        ("a", "BIGINT", "FALSE", "PRI(a)", None, None),
        ("b", "STRING", "TRUE", None, None, None),
        ("c", "INT", "TRUE", None, "METADATA FROM 'k'", None),
        ("ts", "TIMESTAMP", "TRUE", None, None, "ts - INTERVAL '1' SECOND"),
    ]


def test_anything_else_goes_to_spark_as_written(world: World) -> None:
    world.execute("DESC  plain -- x")
    assert [request.sql for request in world.engine.requests_of(Execute)] == ["DESC  plain -- x"]


def test_the_statement_may_say_that_the_table_is_materialized(described_world: World) -> None:
    said = described_world.rows("DESCRIBE MATERIALIZED TABLE EXTENDED m")
    assert said == described_world.rows("DESCRIBE EXTENDED m")


@pytest.mark.parametrize(
    ("name", "code"), [("nowhere", Code.MT_NOT_FOUND), ("plain", Code.MT_WRONG_KIND)]
)
def test_it_has_to_be_one_then(described_world: World, name: str, code: Code) -> None:
    plain = TableName("spark_catalog", "d", "plain")
    described_world.engine.plain = (TableInfo(name=plain, type="TABLE"),)
    with pytest.raises(ServerError) as caught:
        described_world.rows(f"DESCRIBE MATERIALIZED TABLE EXTENDED {name} AS JSON")
    assert caught.value.code == code.name
