"""The schema of a result: its names and types, and whether there is one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.gateway.protocol.gateway import (
    Gateway,
    rows_of,
)
from tests.gateway.protocol.peer import Peer
from tidegate.wire.service import (
    ttypes,
)
from tidegate_server.core.model.result import RowsResult
from tidegate_server.core.model.types import Column, Schema


def test_a_result_set_is_announced_in_the_reply(peer: Peer) -> None:
    session = peer.session()
    assert peer.execute(session, "SELECT 1").operationHandle.hasResultSet is True
    assert peer.execute(session, "USE default").operationHandle.hasResultSet is False


def test_a_result_set_can_be_forced(peer: Peer) -> None:
    operation = peer.execute(
        peer.session(**{"tidegate.result.set": "always"}), "USE default"
    ).operationHandle
    assert operation.hasResultSet is True
    schema = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
    assert [c.columnName for c in schema.columns] == ["Result"]
    assert len(peer.fetch(operation).results.columns) == 1


@pytest.mark.parametrize("text", ["SHOW TABLES IN `zoo`", "show views", "/* x */ SHOW TABLES"])
def test_names_are_listed_as_hive_lists_them_where_that_is_asked_for(
    gateway: Gateway, peer: Peer, text: str
) -> None:
    columns = (("namespace", "string"), ("tableName", "string"), ("isTemporary", "boolean"))
    schema = Schema(tuple(Column(name=name, type=kind) for name, kind in columns))
    rows = [("zoo", f"t{number}", False) for number in range(3)]
    types = (pa.string(), pa.string(), pa.bool_())
    gateway.answers[text] = lambda _: RowsResult(schema, list(rows), types=types)
    spark = peer.execute(peer.session(), text).operationHandle
    assert peer.names(spark) == ["namespace", "tableName", "isTemporary"]
    hive = peer.execute(peer.session(**{"tidegate.show.tables": "hive"}), text).operationHandle
    assert peer.names(hive) == ["tab_name"]
    assert peer.fetch(hive, 2).results.columns[0].stringVal.values == [b"t0", b"t1"]
    assert peer.fetch(hive, 2).results.columns[0].stringVal.values == [b"t2"]


@pytest.mark.parametrize(
    ("spark_type", "version", "type_id"),
    [
        ("array<int>", 9, "ARRAY_TYPE"),
        ("map<string,int>", 9, "MAP_TYPE"),
        ("struct<a:int>", 9, "STRUCT_TYPE"),
        ("timestamp", 10, "TIMESTAMP_TYPE"),
        ("timestamp_ntz", 5, "TIMESTAMP_TYPE"),
        ("interval day to second", 5, "STRING_TYPE"),
        ("interval day to second", 9, "INTERVAL_DAY_TIME_TYPE"),
        ("interval year to month", 9, "INTERVAL_YEAR_MONTH_TYPE"),
        ("interval", 9, "STRING_TYPE"),
        ("variant", 9, "STRING_TYPE"),
        ("void", 9, "NULL_TYPE"),
        ("char(3)", 9, "CHAR_TYPE"),
    ],
)
def test_every_type_is_one_primitive_entry(
    gateway: Gateway, peer: Peer, spark_type: str, version: int, type_id: str
) -> None:
    gateway.answers["SELECT typed"] = lambda _: rows_of("c", spark_type, pa.array(["x"]))
    operation = peer.execute(peer.session(version), "SELECT typed").operationHandle
    schema = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
    (entry,) = schema.columns[0].typeDesc.types
    assert ttypes.TTypeId._VALUES_TO_NAMES[entry.primitiveEntry.type] == type_id


def test_sizes_are_qualifiers(gateway: Gateway, peer: Peer) -> None:
    for spark_type, expected in (
        ("decimal(10,2)", {"precision": 10, "scale": 2}),
        ("varchar(7)", {"characterMaximumLength": 7}),
    ):
        gateway.answers["SELECT sized"] = lambda _, t=spark_type: rows_of("c", t, pa.array(["1"]))
        operation = peer.execute(peer.session(), "SELECT sized").operationHandle
        schema = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
        found = schema.columns[0].typeDesc.types[0].primitiveEntry.typeQualifiers.qualifiers
        assert {k: v.i32Value for k, v in found.items()} == expected


def test_names_keep_their_case_and_may_repeat(gateway: Gateway, peer: Peer) -> None:
    schema = Schema((Column(name="A.b", type="string"), Column(name="A.b", type="string")))
    gateway.answers["SELECT twice"] = lambda _: RowsResult(schema, [("x", "y")])
    operation = peer.execute(peer.session(), "SELECT twice").operationHandle
    answer = peer.client.GetResultSetMetadata(ttypes.TGetResultSetMetadataReq(operation)).schema
    assert [(c.columnName, c.position) for c in answer.columns] == [("A.b", 1), ("A.b", 2)]
