"""What every store of external locations and connections keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.examples import NOON
from tests.contract.stores import open_database
from tidegate_server.core.model.external import PLACE, URL, ExternalObject
from tidegate_server.core.model.privileges import SecuredKind
from tidegate_server.gateway.store.external import (
    ExternalObjects,
    MemoryExternalObjects,
    SqlExternalObjects,
)

LOCATION = ExternalObject(
    kind=SecuredKind.EXTERNAL_LOCATION,
    id="l-1",
    name="landing",
    options={URL: "/in", PLACE: "file:/in"},
    owner="ann",
    comment="new files",
    created_at=NOON,
)
CONNECTION = ExternalObject(
    kind=SecuredKind.CONNECTION,
    id="c-1",
    name="landing",
    type="postgresql",
    options={"url": "jdbc:postgresql://h/d"},
    secrets={"password": "crm"},
    owner="ROLE clerks",
    created_at=NOON,
)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def external(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExternalObjects]:
    if request.param == "memory":
        yield MemoryExternalObjects()
        return
    with open_database(request.param, tmp_path) as database:
        yield SqlExternalObjects(database)


def test_an_object_comes_back_as_it_was_created(external: ExternalObjects) -> None:
    assert external.create(CONNECTION)
    assert external.create(LOCATION)
    assert external.all(SecuredKind.EXTERNAL_LOCATION) == (LOCATION,)
    assert external.all(SecuredKind.CONNECTION) == (CONNECTION,)


def test_a_name_is_taken_once_for_each_kind(external: ExternalObjects) -> None:
    assert external.create(LOCATION)
    assert not external.create(replace(LOCATION, id="l-2"))
    assert external.create(replace(LOCATION, id="l-3", name="other"))
    assert not external.replace(replace(LOCATION, name="other"))
    assert [each.name for each in external.all(LOCATION.kind)] == ["landing", "other"]


def test_an_object_is_replaced_by_its_id_and_dropped(external: ExternalObjects) -> None:
    moved = replace(LOCATION, name="arrivals", options={URL: "/new", PLACE: "file:/new"})
    assert not external.replace(moved)
    external.create(LOCATION)
    assert external.replace(moved)
    assert external.all(LOCATION.kind) == (moved,)
    external.drop("l-0")
    external.drop(moved.id)
    assert external.all(LOCATION.kind) == ()
