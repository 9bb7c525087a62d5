"""TTypeDesc as a type name with its sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tidegate.wire.service import constants, ttypes

TIME_ZONE: Final = "session.timeZone"
"""The qualifier of TIMESTAMP that names the session zone; Hive's clients skip it."""

TYPE_NAMES: Final[dict[int, str]] = {
    number: word.removesuffix("_TYPE") for number, word in ttypes.TTypeId._VALUES_TO_NAMES.items()
} | {ttypes.TTypeId.UNION_TYPE: "UNIONTYPE"}
"""Type names as Hive's clients show them, by TTypeId."""

TYPE_IDS: Final[dict[str, int]] = {name: number for number, name in TYPE_NAMES.items()}
"""TTypeId by type name."""

# The first protocol whose clients know the type, with the name that older ones get.
_SINCE: Final[dict[str, tuple[int, str]]] = {
    "INTERVAL_YEAR_MONTH": (ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V8, "STRING"),
    "INTERVAL_DAY_TIME": (ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V8, "STRING"),
    "USER_DEFINED": (ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V10, "STRING"),
    "TIMESTAMPLOCALTZ": (ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V11, "TIMESTAMP"),
}


@dataclass(frozen=True, slots=True)
class WireType:
    """A column type: its name out of TYPE_NAMES and the sizes that go with it.

    ``precision`` and ``scale`` count decimal digits, ``length`` counts characters, ``zone`` is
    the session zone of a TIMESTAMP where the server sends it.
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column of a result."""

    name: str
    type: WireType
    comment: str | None = None


def type_desc(
    wire_type: WireType,
    *,
    protocol: int = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V11,
) -> Any:
    """Return the TTypeDesc, with a name that clients of ``protocol`` know.

    :raises KeyError: if the type's name is not in TYPE_IDS.
    """
    since, older = _SINCE.get(wire_type.name, (protocol, wire_type.name))
    name = wire_type.name if protocol >= since else older
    entry = ttypes.TPrimitiveTypeEntry(TYPE_IDS[name], _qualifiers(wire_type))
    # Nested types too: clients look at primitiveEntry only.
    return ttypes.TTypeDesc([ttypes.TTypeEntry(primitiveEntry=entry)])


def _qualifiers(wire_type: WireType) -> Any:
    numbers = {
        constants.PRECISION: wire_type.precision,
        constants.SCALE: wire_type.scale,
        constants.CHARACTER_MAXIMUM_LENGTH: wire_type.length,
    }
    given = {
        key: ttypes.TTypeQualifierValue(i32Value=number)
        for key, number in numbers.items()
        if number is not None
    }
    if wire_type.zone is not None:
        given[TIME_ZONE] = ttypes.TTypeQualifierValue(stringValue=wire_type.zone)
    return ttypes.TTypeQualifiers(given) if given else None


def read_type_desc(desc: Any) -> WireType:
    """Return the type that a TTypeDesc describes; an unknown one comes back as USER_DEFINED."""
    entry = desc.types[0] if desc.types else ttypes.TTypeEntry()
    if entry.primitiveEntry is None:
        return WireType(_nested_name(entry))
    primitive = entry.primitiveEntry
    found = primitive.typeQualifiers.qualifiers if primitive.typeQualifiers else {}

    def number(key: str) -> int | None:
        return found[key].i32Value if key in found else None

    return WireType(
        TYPE_NAMES.get(primitive.type, "USER_DEFINED"),
        precision=number(constants.PRECISION),
        scale=number(constants.SCALE),
        length=number(constants.CHARACTER_MAXIMUM_LENGTH),
        zone=found[TIME_ZONE].stringValue if TIME_ZONE in found else None,
    )


def _nested_name(entry: Any) -> str:
    if entry.arrayEntry is not None:
        return "ARRAY"
    if entry.mapEntry is not None:
        return "MAP"
    if entry.structEntry is not None:
        return "STRUCT"
    if entry.unionEntry is not None:
        return "UNIONTYPE"
    return "USER_DEFINED"


def table_schema(
    columns: Iterable[WireColumn],
    *,
    protocol: int = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V11,
) -> Any:
    """Return the TTableSchema of ``columns``, positions counted from 1."""
    return ttypes.TTableSchema(
        [
            ttypes.TColumnDesc(
                columnName=column.name,
                typeDesc=type_desc(column.type, protocol=protocol),
                position=position,
                comment=column.comment,
            )
            for position, column in enumerate(columns, start=1)
        ]
    )


def read_table_schema(schema: Any) -> tuple[WireColumn, ...]:
    """Return the columns of a TTableSchema in their order of position."""
    ordered = sorted(schema.columns, key=lambda desc: int(desc.position))
    return tuple(
        WireColumn(desc.columnName, read_type_desc(desc.typeDesc), desc.comment) for desc in ordered
    )
