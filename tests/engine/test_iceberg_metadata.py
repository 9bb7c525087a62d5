"""The history and the columns of Iceberg tables, without Iceberg."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tidegate_server.engine.storage.iceberg.columns import (
    Columns,
    parse_columns,
    same_columns,
    select_list,
)
from tidegate_server.engine.storage.iceberg.snapshots import (
    Snapshot,
    changes_between,
    keeps_rows,
    last_change,
    parse_snapshots,
)
from tidegate_server.engine.storage.retention import is_gone


def snapshot(number: int, operation: str = "append", files: int | None = None) -> Snapshot:
    """Return the snapshot after the one before it in the order of numbers."""
    return Snapshot(
        id=number * 10,
        number=number,
        parent=(number - 1) * 10 or None,
        schema_id=0,
        operation=operation,
        added=1 if operation == "append" and files is None else None,
        files=number if files is None else files,
    )


FIRST, SECOND = snapshot(1), snapshot(2, "overwrite")
COMPACTED, EMPTY = snapshot(3, "replace"), snapshot(4, files=3)
HISTORY = (EMPTY, COMPACTED, SECOND, FIRST)


def test_the_lines_of_a_history_are_read() -> None:
    text = (
        "20\t2\t10\t0\toverwrite\tnull\t2\t700\t0\tnull\n"
        '10\t1\tnull\tnull\tappend\t1\tnull\tnull\t1000\t{"mt": "m"}\n'
    )
    second, first = parse_snapshots(text)
    assert second == replace(SECOND, size=700)
    made = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert first == replace(FIRST, schema_id=None, files=None, made=made, metadata={"mt": "m"})


@pytest.mark.parametrize(
    ("found", "parent", "expected"),
    [
        (COMPACTED, SECOND, True),
        (COMPACTED, None, True),
        (EMPTY, COMPACTED, True),
        (EMPTY, None, False),
        (SECOND, FIRST, False),
        (replace(EMPTY, added=1), COMPACTED, False),
        (replace(EMPTY, files=None), replace(COMPACTED, files=None), False),
        (replace(EMPTY, operation="overwrite"), COMPACTED, False),
    ],
)
def test_only_compactions_and_empty_appends_keep_the_rows(
    found: Snapshot, parent: Snapshot | None, expected: bool
) -> None:
    assert keeps_rows(found, parent) is expected


def test_the_last_change_is_the_oldest_snapshot_with_the_newest_rows() -> None:
    assert last_change(HISTORY) == SECOND
    assert last_change(HISTORY[:2]) == COMPACTED  # those before it have expired
    assert last_change((FIRST,)) == FIRST


def test_the_changes_between_two_snapshots_are_known_along_a_line() -> None:
    assert changes_between(HISTORY, FIRST, EMPTY) == (SECOND,)
    assert changes_between(HISTORY, SECOND, EMPTY) == ()
    assert changes_between(HISTORY, None, COMPACTED) == (SECOND, FIRST)
    # A table that went back, and one whose snapshots in between have expired.
    assert changes_between(HISTORY, COMPACTED, FIRST) is None
    assert changes_between(HISTORY, snapshot(9), EMPTY) is None
    assert changes_between(HISTORY[:2], FIRST, EMPTY) is None
    assert changes_between(HISTORY[:2], None, EMPTY) is None


# ---- columns -----------------------------------------------------------------------------------


def columns(*fields: dict[str, object], schema_id: int = 0) -> Columns:
    text = {"type": "struct", "schema-id": schema_id, "fields": list(fields)}
    return parse_columns(json.dumps(text))


def column(number: int, name: str, type: object = "int", **more: object) -> dict[str, object]:
    return {"id": number, "name": name, "required": False, "type": type, **more}


def struct(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "struct", "fields": list(fields)}


TYPES = {"a": "int", "b": "bigint", "c`d": "struct<x:int>"}


def test_columns_are_the_same_whatever_is_said_of_them() -> None:
    then = columns(column(1, "a", doc="old"), column(2, "s", struct(column(3, "x"))))
    noted = struct({**column(3, "x"), "required": True, "doc": "new"})
    now = columns({**column(1, "a"), "required": True}, column(2, "s", noted), schema_id=7)
    assert same_columns(then, now)
    assert not same_columns(then, columns(column(1, "b"), column(2, "s", noted)))


def test_columns_are_found_by_their_ids() -> None:
    then = columns(column(1, "a"), column(2, "b"), column(3, "gone"), column(4, "again"))
    now = columns(column(2, "b"), column(5, "c`d"), column(1, "a"), column(6, "again"))
    assert select_list(then, now, {**TYPES, "again": "int"}) == (
        "`b`",
        "CAST(NULL AS struct<x:int>) AS `c``d`",
        "`a`",
        "CAST(NULL AS int) AS `again`",
    )


def test_other_changes_have_no_projection() -> None:
    one = columns(column(1, "a"))
    assert select_list(one, columns(column(1, "b")), TYPES) is None
    assert select_list(one, columns(column(1, "a", "long")), TYPES) is None
    then = columns(column(1, "a", struct(column(2, "x"))))
    deeper = columns(column(1, "a", struct(column(2, "x"), column(3, "y"))))
    assert select_list(then, deeper, {"a": "struct<x:int,y:int>"}) is None
    default = columns(*then.fields, column(4, "b", **{"initial-default": 5}))
    assert select_list(then, default, TYPES) is None


def test_an_expired_snapshot_is_recognized() -> None:
    assert is_gone(Exception("Cannot find snapshot with ID 5"))
    assert not is_gone(Exception("Cannot find column 5"))
