"""Which tables a wave has, in which order, on which versions and partitions."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.examples import name, source, table, vary
from tidegate_server.core.model.table import ColumnOrigin, MaterializedTable
from tidegate_server.core.model.versions import SourceKind
from tidegate_server.core.refresh.waves import (
    ancestors,
    descendants,
    forward,
    needs,
    outside,
    spread,
    step_vector,
    travelling,
)
from tidegate_server.gateway.catalog.memory import MemoryCatalog


def table_over(label: str, *read: str, keys: tuple[str, ...] = ("ds",)) -> MaterializedTable:
    """Return a table over others that passes their ``ds`` through."""
    return table(
        id=f"id-{label}",
        name=name(label),
        partition_keys=keys,
        sources=tuple(source(r, f"delta-{r}") for r in read),
        lineage=tuple(
            ColumnOrigin(column="ds", source=name(r), source_column="ds", unchanged=True)
            for r in read
        ),
    )


BASE, LEFT, RIGHT = (
    table_over("base", "ev"),
    table_over("left", "base"),
    table_over("right", "base"),
)
TOP = table_over("top", "left", "right", "other")
WAVE = [BASE, LEFT, RIGHT, TOP]
DAY = ({"ds": "1"},)


def catalog(*tables: MaterializedTable) -> MemoryCatalog:
    found = MemoryCatalog()
    for entry in tables:
        found.create(entry)
    return found


def test_a_diamond_is_walked_sources_first_both_ways() -> None:
    tables = catalog(*WAVE, table_over("elsewhere", "ev"))
    down = [t.name.table for t in descendants(BASE, tables.consumers)]
    assert sorted(down[:2]) == ["left", "right"]
    assert down[2:] == ["top"]
    up = [t.name.table for t in ancestors(TOP, tables.find)]
    assert up[0] == "base"
    assert sorted(up[1:]) == ["left", "right"]


def test_a_step_waits_for_what_it_reads() -> None:
    assert needs(BASE, WAVE) == ()
    assert set(needs(TOP, WAVE)) == {"id-left", "id-right"}


def test_a_table_whose_rows_lie_elsewhere_is_found_by_its_storage() -> None:
    stored = replace(BASE, storage_table=name("base__rows"))
    below = vary(LEFT, sources=(source("base__rows", "delta-base"),))
    assert descendants(stored, catalog(stored, below).consumers) == [below]
    assert needs(below, [stored, below]) == ("id-base",)


def test_partitions_travel_where_the_column_is_passed_through() -> None:
    assert spread(WAVE, {BASE.id: DAY}) == dict.fromkeys(
        ["id-base", "id-left", "id-right", "id-top"], DAY
    )


def test_a_column_whose_origin_is_not_proven_stops_them() -> None:
    changed = tuple(replace(origin, unchanged=False) for origin in LEFT.definition.lineage)
    for doubtful in (vary(LEFT, lineage=()), vary(LEFT, lineage=changed)):
        found = spread([BASE, doubtful, RIGHT, TOP], {BASE.id: DAY})
        assert (found["id-left"], found["id-right"], found["id-top"]) == ((), DAY, ())


def test_a_table_without_that_partition_column_is_refreshed_whole() -> None:
    assert travelling(DAY, BASE, vary(LEFT, partition_keys=("hh",)).definition) == ()


def test_the_part_of_a_partition_that_travels_is_enough() -> None:
    fine = ({"ds": "1", "hh": "1"}, {"ds": "1", "hh": "2"})
    assert travelling(fine, BASE, LEFT.definition) == DAY


def test_only_sources_outside_the_wave_are_chosen() -> None:
    plain = vary(TOP, sources=(*TOP.definition.sources, source("csv", "p", SourceKind.PLAIN)))
    assert [s.table_id for s in outside([BASE, LEFT, RIGHT, plain])] == ["delta-ev", "delta-other"]


def test_a_step_reads_the_version_its_source_just_committed() -> None:
    vector = step_vector(
        TOP.definition, {"delta-ev": 5, "delta-other": 2}, {name("left"): 8, name("x"): 1}
    )
    assert vector == {"delta-ev": 5, "delta-other": 2, "delta-left": 8}


def test_no_table_goes_back_to_older_versions() -> None:
    last = {"a": 7, "b": 1}
    assert forward({"a": 5, "b": 2, "c": 1}, last) == {"a": 7, "b": 2, "c": 1}
    assert forward({"a": 5}, {}) == {"a": 5}
