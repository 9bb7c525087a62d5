"""A value of an option reaches its reader from every place where it may be written."""

from __future__ import annotations

import pytest

from tests.gateway.command.effects import ALTER, TESTS, create, refusal, warned
from tests.gateway.command.fakes import World
from tests.gateway.command.option_rows import MISPLACED, PLACED, ROWS, write
from tests.gateway.command.tables import column, produces
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.gateway import options as known
from tidegate_server.gateway.options import OPTIONS, Place


def parameter_id(parameters: tuple[str, Place]) -> str:
    return f"{parameters[0]}-{parameters[1].name}"


def test_every_option_has_a_row_and_every_row_a_test() -> None:
    assert ROWS.keys() == OPTIONS.keys()
    for row in ROWS.values():
        file, _, test = row.test.partition("::")
        assert f"def {test}(" in (TESTS / file).read_text(encoding="utf-8"), row.test


@pytest.mark.parametrize(("key", "place"), PLACED, ids=map(parameter_id, PLACED))
def test_a_value_reaches_what_reads_it(world: World, key: str, place: Place) -> None:
    row = ROWS[key]
    write(world, key, row.value, place, row)
    assert row.read(world, key) == row.value
    assert not any("changes nothing" in line and key in line for line in world.logged)


@pytest.mark.parametrize("key", [key for key, place in PLACED if place is Place.CREATE])
def test_without_it_another_value_is_read(world: World, key: str) -> None:
    row = ROWS[key]
    before = "PARTITIONED BY (d)" if row.options else ""
    world.execute(create(before, options=row.options, items=row.items, after=row.clauses))
    assert row.read(world, key) != row.value


@pytest.mark.parametrize(("key", "place"), PLACED, ids=map(parameter_id, PLACED))
def test_a_value_that_cannot_be_is_refused(world: World, key: str, place: Place) -> None:
    row = ROWS[key]
    if row.wrong:
        with pytest.raises(ServerError) as caught:
            write(world, key, row.wrong, place, row)
        assert caught.value.code in ("MT_OPTION_VALUE", "MT_EXECUTION_MODE")


@pytest.mark.parametrize(("key", "place"), PLACED, ids=map(parameter_id, PLACED))
def test_a_misspelt_name_is_answered_with_the_nearest(world: World, key: str, place: Place) -> None:
    with pytest.raises(ServerError) as caught:
        write(world, f"{key}x", ROWS[key].value, place, ROWS[key])
    assert caught.value.code == Code.MT_OPTION_UNKNOWN.name
    assert caught.value.hint == f"Did you mean {key}?"


@pytest.mark.parametrize(("key", "place"), MISPLACED, ids=map(parameter_id, MISPLACED))
def test_elsewhere_it_is_refused_or_warned_of(world: World, key: str, place: Place) -> None:
    row = ROWS[key]
    if place is Place.SESSION and key.startswith(("workflow-scheduler.", "table.")):
        write(world, key, row.value, place, row)
        assert warned(world, f"{key} changes nothing here: it can only be set in the server")
        return
    with pytest.raises(ServerError) as caught:
        write(world, key, row.value, place, row)
    assert caught.value.code == Code.MT_OPTION_VALUE.name
    right = OPTIONS[key].places
    words = {each.value for each in right}
    assert all(word in caught.value.message for word in words)


def test_repeated_names_are_refused_where_that_is_asked(world: World) -> None:
    query = produces(world, "SELECT a, a FROM t3", column("a"), column("a"))
    strict = f"'{known.DUPLICATES_KEY}' = 'true'"
    assert refusal(world, create(options=strict, query=query)).code == "MT_DUPLICATE_COLUMN"
    world.execute(create(query=query))
    world.execute(f"{ALTER} SET ({strict})")
    other = produces(world, "SELECT b, b FROM t3", column("b"), column("b"))
    assert refusal(world, f"{ALTER} AS {other}").code == "MT_DUPLICATE_COLUMN"
