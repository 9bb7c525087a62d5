"""How old content is, from histories made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.contract.examples import NOON, name, run, source, table
from tidegate_server.core.model.freshness import Freshness, TimeUnit
from tidegate_server.core.model.runs import RefreshRun, Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.gateway.freshness.staleness import (
    Bound,
    Known,
    OnStale,
    as_of,
    is_whole,
    parse_bound,
)

LATER = NOON + timedelta(hours=9)
BASE = table(id="base", name=name("base"), sources=(source("ev", "ev"),))
TOP = table(id="top", name=name("top"), sources=(source("base", "base-delta"),))


def minute(number: int) -> datetime:
    return NOON + timedelta(minutes=number)


def finished_run(of: MaterializedTable, begun: int, version: int, **sources: int) -> RefreshRun:
    """Return a refresh that read at a minute after noon and left a version behind."""
    read = {key.replace("_", "-"): seen for key, seen in sources.items()}
    good: dict[str, Any] = {"state": RunState.SUCCEEDED, "action": Strategy.FULL, "sources": read}
    at = minute(begun)
    return run(table_id=of.id, to_version=version, data_timestamp=at, queued_at=at, **good)


def known_state(
    versions: Mapping[str, int],
    *runs: RefreshRun,
    changed: datetime | None = None,
    silent: tuple[str, ...] = (),
) -> Known:
    return Known(
        now=LATER,
        versions=versions,
        tables={one.name.folded(): one for one in (BASE, TOP)},
        runs=lambda table_id: [one for one in reversed(runs) if one.table_id == table_id],
        changed=lambda source, seen: changed,
        silent=lambda of: silent,
    )


def test_content_over_unchanged_sources_is_of_now() -> None:
    assert as_of(BASE, known_state({"ev": 3}, finished_run(BASE, 0, 1, ev=3))) == LATER


def test_content_behind_its_source_is_of_when_it_was_read() -> None:
    assert as_of(BASE, known_state({"ev": 4}, finished_run(BASE, 5, 1, ev=3))) == minute(5)


def test_content_of_a_version_from_which_the_source_went_back_is_not_fresh() -> None:
    assert as_of(BASE, known_state({"ev": 2}, finished_run(BASE, 5, 1, ev=3))) == minute(5)


def test_or_of_when_the_source_changed_first_where_that_is_known() -> None:
    history = finished_run(BASE, 5, 1, ev=3)
    assert as_of(BASE, known_state({"ev": 4}, history, changed=minute(60))) == minute(60)
    assert as_of(BASE, known_state({"ev": 4}, history, changed=minute(1))) == minute(5)


def test_a_source_without_versions_was_read_when_it_was() -> None:
    plain = Source(name=name("csv"), kind=SourceKind.PLAIN, table_id="csv")
    mixed = table(id="base", sources=(source("ev", "ev"), plain))
    assert as_of(mixed, known_state({"ev": 3}, finished_run(mixed, 5, 1, ev=3))) == minute(5)


def test_a_source_that_is_gone_is_as_it_was_read() -> None:
    assert as_of(BASE, known_state({}, finished_run(BASE, 5, 1, ev=3))) == minute(5)


def test_a_source_that_does_not_trigger_does_not_count() -> None:
    assert (
        as_of(BASE, known_state({"ev": 4}, finished_run(BASE, 5, 1, ev=3), silent=("ev",))) == LATER
    )


def test_without_a_refresh_of_the_whole_table_nothing_is_known() -> None:
    assert as_of(BASE, known_state({"ev": 3})) is None
    assert (
        as_of(TOP, known_state({"ev": 3, "base-delta": 1}, finished_run(TOP, 5, 1, base_delta=1)))
        is None
    )


def test_a_stale_table_makes_stale_what_reads_it() -> None:
    runs = (finished_run(BASE, 5, 1, ev=3), finished_run(TOP, 50, 1, base_delta=1))
    assert as_of(TOP, known_state({"ev": 3, "base-delta": 1}, *runs)) == LATER
    assert as_of(TOP, known_state({"ev": 4, "base-delta": 1}, *runs)) == minute(5)


def test_an_earlier_version_of_a_source_is_as_old_as_that_one() -> None:
    runs = (
        finished_run(BASE, 5, 1, ev=3),
        finished_run(BASE, 10, 2, ev=4),
        finished_run(TOP, 12, 1, base_delta=2),
        finished_run(BASE, 60, 3, ev=5),
    )
    assert as_of(TOP, known_state({"ev": 5, "base-delta": 3}, *runs)) == minute(10)
    forgotten = (*runs[2:],)
    assert as_of(TOP, known_state({"ev": 5, "base-delta": 3}, *forgotten)) is None


@pytest.mark.parametrize(
    ("changes", "whole"),
    [
        ({"action": Strategy.NO_DATA}, True),
        ({"action": Strategy.PARTITION}, False),
        ({"state": RunState.FAILED}, False),
    ],
)
def test_only_refreshes_of_the_whole_table_tell(changes: dict[str, Any], whole: bool) -> None:
    good = {"state": RunState.SUCCEEDED, "action": Strategy.FULL}
    assert is_whole(run(**{**good, **changes})) is whole


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("10 min", Bound(limit=Freshness(10, TimeUnit.MINUTE))),
        ("10min serve", Bound(limit=Freshness(10, TimeUnit.MINUTE), on_stale=OnStale.SERVE)),
        (" 1 h  REFRESH ", Bound(limit=Freshness(1, TimeUnit.HOUR), on_stale=OnStale.REFRESH)),
        ("30 s FAIL", Bound(limit=Freshness(30, TimeUnit.SECOND), on_stale=OnStale.FAIL)),
        ("", None),
        ("FAIL", None),
        ("0 s FAIL", None),
        ("10 min PANIC", None),
    ],
)
def test_a_bound_is_a_duration_and_an_action(text: str, bound: Bound | None) -> None:
    assert parse_bound(text) == bound
