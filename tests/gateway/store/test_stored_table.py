"""The stored form of tables, which other releases read and write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.contract.examples import NOON, name, table, vary
from tidegate_server.core.model.clauses import (
    Assertion,
    Distribution,
    Expectation,
    OnUpdate,
    StartKind,
    StartMode,
    Violation,
    Watermark,
)
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.table import (
    ColumnOrigin,
    DerivedColumn,
    Dropping,
    HeldVersion,
    Leaving,
    PendingOperation,
    RollingBack,
    Swapping,
)
from tidegate_server.gateway.store.stored_table import (
    StoredRollback,
    StoredTable,
    decode_definition,
    encode_definition,
)

FULL = table(
    version=2,
    storage_table=name("__rows_daily"),
    lineage=(ColumnOrigin(column="Ds", source=name("ev"), source_column="ds", unchanged=True),),
    downstream=True,
    on_update=OnUpdate(at_most_every=Freshness(10, TimeUnit.MINUTE)),
    start_mode=StartMode(kind=StartKind.FROM_NOW, interval=Freshness(2, TimeUnit.DAY)),
    execute_as="bo",
    declared=True,
    derived=(DerivedColumn(name="twice", type="int", position=1, expression="total * 2"),),
    persisted_metadata={"total": "sum"},
    watermark=Watermark(column="Ds", expression="Ds - INTERVAL 1 DAY"),
    distribution=Distribution(kind="HASH", columns=("Ds",), buckets=4),
    expectations=(Expectation(name="e", condition="total > 0", violation=Violation.QUARANTINE),),
    assertions=(Assertion(name="a", condition="row_count > 0", violation=Violation.HOLD),),
    immutable="Ds < '2024'",
    backfilled_from=name("old"),
    defined_by="bo",
    defined_at=NOON,
    restored_from=1,
    status_reason="too many failures",
    held=HeldVersion(refresh_id="r-2", since=NOON, reason="the assertion a"),
    resume_options={"k": "v"},
    checkpoint_floor=7,
)

MARK = RollingBack(refresh_id="r-1", active=True, to=vary(FULL, version=3))
TEXT = Path(__file__).with_name("stored_table.json").read_text(encoding="utf-8")
""":data:`FULL` as the release before this module wrote it."""


def stored_text(stored: StoredTable) -> str:
    return json.dumps(json.loads(msgspec.json.encode(stored)), indent=2, ensure_ascii=False) + "\n"


def test_the_stored_form_is_that_of_earlier_releases() -> None:
    assert stored_text(StoredTable.of(FULL)) == TEXT
    assert msgspec.json.decode(TEXT, type=StoredTable).table() == FULL


def test_a_missing_key_has_its_default_and_an_unknown_one_is_ignored() -> None:
    known: dict[str, Any] = json.loads(TEXT)
    first = list(known)[: list(known).index("location")]
    text = json.dumps({key: known[key] for key in first} | {"unknown": 1})
    found = decode_definition(text)
    assert (found.id, found.location, found.execution_target) == ("t-1", "", "embedded")
    assert (found.definition.version, found.definition.options, found.pending) == (1, {}, None)
    with pytest.raises(msgspec.ValidationError, match="expanded_query"):
        decode_definition(json.dumps({**known, "expanded_query": None}))


@pytest.mark.parametrize("pending", [None, Leaving(), Swapping(), Dropping(), MARK])
def test_a_pending_operation_comes_back(pending: PendingOperation | None) -> None:
    marked = replace(FULL, pending=pending)
    assert StoredTable.of(marked).table() == marked


@pytest.mark.parametrize(
    ("marks", "pending"),
    [
        ({"leaving": True, "swapping": True}, Swapping()),
        ({"leaving": True, "rolling_back": StoredRollback.of(MARK)}, MARK),
        ({"leaving": True, "swapping": True, "dropping": True}, Dropping()),
    ],
)
def test_of_several_marks_the_one_whose_recovery_covers_the_others_counts(
    marks: dict[str, Any], pending: PendingOperation
) -> None:
    assert replace(StoredTable.of(FULL), **marks).table() == replace(FULL, pending=pending)


def test_the_property_lacks_what_recovery_reads_from_the_storage() -> None:
    marked = replace(FULL, pending=MARK)
    assert decode_definition(encode_definition(marked)) == vary(FULL, held=None)
