"""Reads a snapshot of an Iceberg table with the columns that the table has now; pure.

Changing columns makes no snapshot. Spark reads a chosen snapshot with the columns of its time, but
the table with those of today, which are matched by their ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate_server.core.model.names import quote_identifier

_DEFAULT: Final = "initial-default"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table, as Iceberg's JSON describes them."""

    schema_id: int
    fields: tuple[Mapping[str, Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(str(field["name"]) for field in self.fields)


def parse_columns(text: str) -> Columns:
    """Read the JSON of a schema."""
    found = json.loads(text)
    return Columns(int(found.get("schema-id", 0)), tuple(found["fields"]))


def same_columns(one: Columns, other: Columns) -> bool:
    """Say whether two schemas have the same columns, apart from comments and NOT NULL."""
    return list(map(_essence, one.fields)) == list(map(_essence, other.fields))


def select_list(then: Columns, now: Columns, types: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the expressions that turn rows with the columns ``then`` into those of ``now``.

    :param types: the Spark types of the columns of today, by name.
    :return: None unless columns were only added, dropped or moved: columns with other names or
        types must be seen by whatever reads the analyzed query. None also if a new column has a
        default value.
    """
    before = {field["id"]: field for field in then.fields}
    found = []
    for field in now.fields:
        name, old = str(field["name"]), before.get(field["id"])
        shown = quote_identifier(name)
        if old is not None and _essence(old) == _essence(field):
            found.append(shown)
        elif old is None and field.get(_DEFAULT) is None:
            found.append(f"CAST(NULL AS {types[name]}) AS {shown}")
        else:
            return None
    return tuple(found)


def _essence(field: Mapping[str, Any]) -> tuple[Any, ...]:
    return field["id"], field["name"], _type(field)


def _type(field: Mapping[str, Any]) -> Any:
    return _without_notes(field["type"])


def _without_notes(value: Any) -> Any:
    """Return a type without comments and NOT NULL."""
    if isinstance(value, list):
        return [_without_notes(each) for each in value]
    if not isinstance(value, dict):
        return value
    noted = ("doc", "required", "element-required", "value-required")
    return {key: _without_notes(each) for key, each in value.items() if key not in noted}
