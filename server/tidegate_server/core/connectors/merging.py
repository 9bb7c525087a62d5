"""CREATE TABLE ... LIKE: what a table takes from the definition of another one.

https://nightlies.apache.org/flink/flink-docs-stable/docs/dev/table/sql/create/#like
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable
from tidegate_server.core.model.clauses import Watermark


class Feature(Enum):
    """A part of a definition; the value is its spelling."""

    CONSTRAINTS = "CONSTRAINTS"
    DISTRIBUTION = "DISTRIBUTION"
    GENERATED = "GENERATED"
    METADATA = "METADATA"
    OPTIONS = "OPTIONS"
    PARTITIONS = "PARTITIONS"
    WATERMARKS = "WATERMARKS"


class Merging(Enum):
    """What becomes of a part of the other table; the value is its spelling."""

    INCLUDING = "INCLUDING"
    EXCLUDING = "EXCLUDING"
    OVERWRITING = "OVERWRITING"


DEFAULT: Final[Mapping[Feature, Merging]] = {
    **dict.fromkeys(Feature, Merging.INCLUDING),
    Feature.OPTIONS: Merging.OVERWRITING,
}
"""What happens without a list after the name of the other table."""
OVERWRITABLE: Final = (Feature.GENERATED, Feature.METADATA, Feature.OPTIONS, Feature.WATERMARKS)
"""Of the others a table has one at most, or they are not told apart."""


class MergeError(Exception):
    """Both tables define the same thing; the message is a clause, ``hint`` says what to write."""

    def __init__(self, message: str, hint: str) -> None:
        self.hint = hint
        super().__init__(message)


def merge(
    other: ConnectorTable, own: ConnectorTable, how: Mapping[Feature, Merging]
) -> ConnectorTable:
    """Return the definition of a new table.

    :param other: the definition of the other table, whose physical columns are always taken.
    :param own: what the statement itself defines.
    :param how: has all features.
    :raises MergeError: if both define the same thing and it is not overwritten.
    """
    taken = _taken(other, how)
    return ConnectorTable(
        columns=_columns(taken, own, how),
        options=_options(taken, own, how),
        primary_key=_one(taken.primary_key, own.primary_key, "a primary key", Feature.CONSTRAINTS),
        partition_keys=_one(
            taken.partition_keys, own.partition_keys, "partitions", Feature.PARTITIONS
        ),
        watermark=_watermark(taken, own, how),
    )


def _taken(other: ConnectorTable, how: Mapping[Feature, Merging]) -> ConnectorTable:
    """Return the other definition without what is excluded."""

    def kept(feature: Feature) -> bool:
        return how[feature] is not Merging.EXCLUDING

    return ConnectorTable(
        columns=tuple(
            each for each in other.columns if (feature := _feature(each)) is None or kept(feature)
        ),
        options=other.options if kept(Feature.OPTIONS) else {},
        primary_key=other.primary_key if kept(Feature.CONSTRAINTS) else (),
        partition_keys=other.partition_keys if kept(Feature.PARTITIONS) else (),
        watermark=other.watermark if kept(Feature.WATERMARKS) else None,
    )


def _feature(column: ConnectorColumn) -> Feature | None:
    """Return the feature that a column belongs to; None for a physical one."""
    if column.expression:
        return Feature.GENERATED
    return None if column.metadata is None else Feature.METADATA


def _columns(
    taken: ConnectorTable, own: ConnectorTable, how: Mapping[Feature, Merging]
) -> tuple[ConnectorColumn, ...]:
    found = {each.name.lower(): each for each in taken.columns}
    for column in own.columns:
        before, feature = found.get(column.name.lower()), _feature(column)
        if before is not None:
            what = f"the column {column.name}"
            if feature is None or _feature(before) is not feature:
                hint = "Leave it out, or give it another name."
                raise MergeError(f"it already has {what}", hint)
            if how[feature] is not Merging.OVERWRITING:
                raise _twice(what, feature)
        found[column.name.lower()] = column
    return tuple(found.values())


def _options(
    taken: ConnectorTable, own: ConnectorTable, how: Mapping[Feature, Merging]
) -> Mapping[str, str]:
    if how[Feature.OPTIONS] is not Merging.OVERWRITING:
        for key in own.options:
            if key in taken.options:
                raise _twice(f"the option '{key}'", Feature.OPTIONS)
    return {**taken.options, **own.options}


def _one(
    taken: tuple[str, ...], own: tuple[str, ...], what: str, feature: Feature
) -> tuple[str, ...]:
    if taken and own:
        raise _twice(what, feature)
    return own or taken


def _watermark(
    taken: ConnectorTable, own: ConnectorTable, how: Mapping[Feature, Merging]
) -> Watermark | None:
    both = taken.watermark is not None and own.watermark is not None
    if both and how[Feature.WATERMARKS] is not Merging.OVERWRITING:
        raise _twice("a WATERMARK", Feature.WATERMARKS)
    return own.watermark or taken.watermark


def _twice(what: str, feature: Feature) -> MergeError:
    hint = f"Write EXCLUDING {feature.value}"
    if feature in OVERWRITABLE:
        hint += f" or OVERWRITING {feature.value}"
    return MergeError(f"it already has {what}", f"{hint} in brackets after its name.")
