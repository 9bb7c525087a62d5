"""Which versions of several tables agree."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.examples import NOON, name, run, source, table, vary
from tidegate_server.core.model.runs import RefreshRun, RunMetrics, Strategy
from tidegate_server.core.model.states import RunState
from tidegate_server.core.model.table import MaterializedTable
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.gateway.freshness.agreement import (
    Agreement,
    DisagreementError,
    Member,
    newest_agreement,
)

VECTOR_ALONE = {
    "action": Strategy.INCREMENTAL,
    "metrics": RunMetrics(files_written=0, rows_deleted=0),
}


def table_over(label: str, *read: str) -> MaterializedTable:
    return table(
        id=f"id-{label}",
        name=name(label),
        sources=tuple(source(each, f"delta-{each}") for each in read),
    )


def wrote(owner: MaterializedTable, version: int, changes: object = (), **read: int) -> RefreshRun:
    done = run(
        refresh_id=f"{owner.name.table}-{version}",
        table_id=owner.id,
        state=RunState.SUCCEEDED,
        action=Strategy.FULL,
        started_at=NOON + timedelta(seconds=version),
        to_version=version,
        sources={f"delta-{label}": seen for label, seen in read.items()},
        definition_version=owner.definition.version,
    )
    return replace(done, **dict(changes))  # type: ignore[call-overload]


DWD, DWS, TOP = table_over("dwd", "ods"), table_over("dws", "dwd"), table_over("top", "dwd", "ods")


def member(owner: MaterializedTable, *runs: RefreshRun, read: bool = True) -> Member:
    return Member(table=owner, runs=runs, read=read)


def versions(*members: Member, others: tuple[str, ...] = ()) -> dict[str, int]:
    found = newest_agreement(members, others)
    return {key.removeprefix("id-"): version for key, version in found.tables.items()}


def reason(*members: Member, others: tuple[str, ...] = ()) -> str:
    with pytest.raises(DisagreementError) as caught:
        newest_agreement(members, others)
    return str(caught.value)


def test_a_table_that_is_ahead_goes_back_to_what_its_consumer_read() -> None:
    dwd = member(DWD, wrote(DWD, 1, ods=1), wrote(DWD, 2, ods=2))
    behind = member(DWS, wrote(DWS, 1, dwd=1))
    assert newest_agreement([dwd, behind]) == Agreement(
        tables={"id-dwd": 1, "id-dws": 1}, sources={"delta-ods": 1}
    )
    level = member(DWS, wrote(DWS, 1, dwd=1), wrote(DWS, 2, dwd=2))
    assert versions(dwd, level) == {"dwd": 2, "dws": 2}


def test_tables_made_of_one_source_agree_on_it_through_whatever_is_between() -> None:
    other = table_over("other", "ods")
    dwd = member(DWD, wrote(DWD, 1, ods=1), wrote(DWD, 2, ods=3), read=False)
    dws = member(DWS, wrote(DWS, 5, dwd=1), wrote(DWS, 6, dwd=2))
    found = member(other, wrote(other, 7, ods=1), wrote(other, 8, ods=2))
    assert versions(dwd, dws, found) == {"dwd": 1, "dws": 5, "other": 7}


def test_runs_count_by_their_versions_not_by_when_they_were_asked_for() -> None:
    dwd = member(DWD, wrote(DWD, 2, ods=2), wrote(DWD, 3, ods=3), wrote(DWD, 1, ods=1))
    assert versions(dwd, member(DWS, wrote(DWS, 1, dwd=3))) == {"dwd": 3, "dws": 1}


def test_a_commit_of_a_vector_alone_has_the_rows_of_the_version_before() -> None:
    # ods changed without a consequence for dwd, so that top read version 1 of it with ods at 2.
    dwd = member(DWD, wrote(DWD, 1, ods=1), wrote(DWD, 2, VECTOR_ALONE, ods=2))
    assert versions(dwd, member(TOP, wrote(TOP, 1, dwd=1, ods=2))) == {"dwd": 2, "top": 1}
    assert versions(dwd, member(TOP, wrote(TOP, 1, dwd=1, ods=1))) == {"dwd": 1, "top": 1}


def test_a_table_that_disagrees_with_itself_is_not_read() -> None:
    dwd = member(DWD, wrote(DWD, 1, ods=1), read=False)
    torn = member(TOP, wrote(TOP, 3, dwd=1, ods=2))
    assert "different versions of spark_catalog.d." in reason(dwd, torn)


def test_what_was_never_refreshed_has_no_version() -> None:
    text = reason(member(DWD), member(DWS, wrote(DWS, 1, dwd=1)))
    assert text == "of spark_catalog.d.dwd no version is known that a refresh of all its rows made"


def test_partitions_of_several_times_agree_with_their_readers_alone() -> None:
    some = {"action": Strategy.PARTITION}
    other = table_over("other", "ods")
    dwd = member(DWD, wrote(DWD, 1, ods=1), wrote(DWD, 2, some, ods=2))
    dws = member(DWS, wrote(DWS, 1, dwd=1), wrote(DWS, 2, dwd=2))
    beside = member(other, wrote(other, 1, ods=1), wrote(other, 2, ods=2))
    assert versions(dwd, dws) == {"dwd": 2, "dws": 2}
    assert versions(dwd, dws, beside) == {"dwd": 1, "dws": 1, "other": 1}
    assert versions(dwd, dws, others=("delta-ods",)) == {"dwd": 1, "dws": 1}


def test_sources_without_versions_agree_through_one_reader_alone() -> None:
    files = source("files", "delta-files", SourceKind.PLAIN)
    one, two = (vary(table_over(label), sources=(files,)) for label in ("one", "two"))
    below = table_over("below", "one")
    first = member(one, wrote(one, 1), wrote(one, 2))
    assert versions(first, member(below, wrote(below, 1, one=1))) == {"one": 1, "below": 1}
    assert "different versions of spark_catalog.d.files" in reason(
        first, member(two, wrote(two, 1), wrote(two, 2))
    )
    # Of files, the same fingerprint was there before both read; what they read may differ.
    same = [member(table, wrote(table, 1, files=7)) for table in (one, two)]
    assert "different versions of spark_catalog.d.files" in reason(*same)
    mixed = vary(one, sources=(files, source("ods", "delta-ods")))
    assert "no version is known" in reason(member(mixed, wrote(mixed, 1, files=7)))


def test_an_earlier_definition_counts_while_its_rows_are_the_newest() -> None:
    now = vary(DWD, version=2)
    old, newer = wrote(DWD, 1, ods=1), wrote(now, 2, ods=1)
    dws = member(DWS, wrote(DWS, 1, dwd=1))
    assert versions(member(now, old), dws) == {"dwd": 1, "dws": 1}
    assert "no earlier version" in reason(member(now, old, newer), dws)
    assert versions(member(now, old, newer, read=False), dws) == {"dwd": 1, "dws": 1}


def test_runs_that_read_another_table_under_a_sources_name_do_not_count() -> None:
    swapped = vary(DWS, sources=(source("dwd", "delta-twin"),))
    dwd = member(DWD, wrote(DWD, 1, ods=1))
    assert "no version is known" in reason(dwd, member(swapped, wrote(swapped, 1, dwd=1)))
    assert versions(dwd, member(swapped, wrote(swapped, 2, twin=1))) == {"dwd": 1, "dws": 2}


def test_a_backfill_alone_says_nothing_of_the_sources() -> None:
    copied = wrote(DWD, 1, {"action": Strategy.PARTITION}, elsewhere=7)
    assert "no version is known" in reason(member(DWD, copied), others=("delta-ods",))


def test_a_source_made_anew_is_another_one() -> None:
    other = table_over("other", "ods")
    dwd = member(DWD, wrote(DWD, 1, ods=9), wrote(DWD, 2, made_anew=1))
    assert versions(dwd, member(other, wrote(other, 4, made_anew=1))) == {"dwd": 2, "other": 4}


# ---- against every choice there is -------------------------------------------------------------

NAMES = ("m", "n", "o", "p")


@dataclass
class Lake:
    """Tables as they are refreshed one by one; the content is what they are made of."""

    tables: dict[str, MaterializedTable]
    now: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    runs: dict[str, list[RefreshRun]] = field(default_factory=dict)
    made_of: dict[tuple[str, int], dict[str, set[int]]] = field(default_factory=dict)

    def change(self, label: str) -> None:
        if label not in self.tables:
            self.now[label] += 1
            return
        owner = self.tables[label]
        read = {s.table_id.removeprefix("delta-"): s for s in owner.definition.sources}
        if not all(each in self.now for each in read):
            return
        version = self.now.get(label, -1) + 1
        found: dict[str, set[int]] = {label: {version}}
        for each in read:
            above = self.made_of.get((each, self.now[each]), {each: {self.now[each]}})
            for key, seen in above.items():
                found[key] = found.get(key, set()) | seen
        vector = {each: self.now[each] for each in read}
        self.runs.setdefault(label, []).append(wrote(owner, version, **vector))
        self.now[label] = version
        self.made_of[label, version] = found

    def together(self, choice: dict[str, int]) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for label, version in choice.items():
            for key, seen in self.made_of[label, version].items():
                found[key] = found.get(key, set()) | seen
        return found


@st.composite
def lakes(draw: st.DrawFn) -> Lake:
    tables: dict[str, MaterializedTable] = {}
    for label in NAMES:
        choices = ["a", "b", *tables]
        read = draw(st.lists(st.sampled_from(choices), min_size=1, max_size=3, unique=True))
        tables[label] = table_over(label, *read)
    lake = Lake(tables)
    for label in draw(st.lists(st.sampled_from(["a", "b", *NAMES, *NAMES]), max_size=40)):
        lake.change(label)
    return lake


@given(lakes(), st.sets(st.sampled_from(NAMES), min_size=2))
def test_the_newest_of_all_choices_is_found(lake: Lake, read: set[str]) -> None:
    needed = set(read)
    for label in reversed(NAMES):
        if label in needed:
            above = (
                s.table_id.removeprefix("delta-") for s in lake.tables[label].definition.sources
            )
            needed |= {each for each in above if each in NAMES}
    members = [
        Member(table=lake.tables[label], runs=lake.runs.get(label, []), read=label in read)
        for label in sorted(needed)
    ]
    labels = sorted(read)
    every = product(*(range(len(lake.runs.get(label, []))) for label in labels))
    good = [
        choice
        for choice in (dict(zip(labels, versions, strict=True)) for versions in every)
        if all(len(seen) == 1 for seen in lake.together(choice).values())
    ]
    try:
        found = newest_agreement(members)
    except DisagreementError:
        assert good == []
        return
    chosen = {label: found.tables[f"id-{label}"] for label in labels}
    assert chosen in good
    assert all(choice[label] <= chosen[label] for choice in good for label in labels)
