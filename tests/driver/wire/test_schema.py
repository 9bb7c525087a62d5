"""TTypeDesc as a type name with its sizes."""

from __future__ import annotations

import pytest

from tidegate.wire.schema import (
    TYPE_IDS,
    WireColumn,
    WireType,
    read_table_schema,
    read_type_desc,
    table_schema,
    type_desc,
)
from tidegate.wire.service import ttypes

V7 = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V7
V10 = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10


@pytest.mark.parametrize("name", sorted(TYPE_IDS))
def test_every_type_comes_back_as_it_went(name: str) -> None:
    assert read_type_desc(type_desc(WireType(name))) == WireType(name)


def test_nested_types_are_told_as_primitive_entries() -> None:
    entry = type_desc(WireType("ARRAY")).types[0]
    assert entry.primitiveEntry.type == ttypes.TTypeId.ARRAY_TYPE
    assert entry.arrayEntry is None


def test_sizes_and_zone_are_qualifiers() -> None:
    decimal = WireType("DECIMAL", precision=10, scale=0)
    varchar = WireType("VARCHAR", length=5)
    timestamp = WireType("TIMESTAMP", zone="Europe/Berlin")
    for wire_type in (decimal, varchar, timestamp):
        assert read_type_desc(type_desc(wire_type)) == wire_type


@pytest.mark.parametrize(
    ("name", "protocol", "told"),
    [
        ("INTERVAL_DAY_TIME", V7, "STRING"),
        ("INTERVAL_YEAR_MONTH", V7, "STRING"),
        ("INTERVAL_DAY_TIME", V10, "INTERVAL_DAY_TIME"),
        ("TIMESTAMPLOCALTZ", V10, "TIMESTAMP"),
        ("USER_DEFINED", V7, "STRING"),
    ],
)
def test_older_clients_are_told_types_they_know(name: str, protocol: int, told: str) -> None:
    assert read_type_desc(type_desc(WireType(name), protocol=protocol)).name == told


def test_a_type_that_is_not_known_reads_as_user_defined() -> None:
    entry = ttypes.TPrimitiveTypeEntry(999)
    desc = ttypes.TTypeDesc([ttypes.TTypeEntry(primitiveEntry=entry)])
    assert read_type_desc(desc).name == "USER_DEFINED"


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (ttypes.TTypeEntry(arrayEntry=ttypes.TArrayTypeEntry(1)), "ARRAY"),
        (ttypes.TTypeEntry(mapEntry=ttypes.TMapTypeEntry(1, 2)), "MAP"),
        (ttypes.TTypeEntry(structEntry=ttypes.TStructTypeEntry({})), "STRUCT"),
        (ttypes.TTypeEntry(unionEntry=ttypes.TUnionTypeEntry({})), "UNIONTYPE"),
    ],
)
def test_nested_entries_of_other_servers_are_understood(entry: object, name: str) -> None:
    assert read_type_desc(ttypes.TTypeDesc([entry])).name == name


def test_columns_are_ordered_by_position_whatever_it_starts_with() -> None:
    schema = table_schema(
        [WireColumn("a", WireType("INT"), "first"), WireColumn("b", WireType("DATE"))]
    )
    schema.columns.reverse()
    assert [column.name for column in read_table_schema(schema)] == ["a", "b"]
