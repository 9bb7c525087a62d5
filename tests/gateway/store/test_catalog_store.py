"""Where catalogs are kept: files as Flink has them, or memory."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.examples import NOON
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import CatalogStoreSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.external import ExternalObject
from tidegate_server.core.model.privileges import UNOWNED, SecuredKind
from tidegate_server.gateway.store.catalog_store import (
    CatalogFiles,
    SplitExternalObjects,
    as_yaml,
    catalogs_in_memory,
    read_yaml,
    store_folder,
    store_kind,
)
from tidegate_server.gateway.store.external import ExternalObjects, MemoryExternalObjects

KIND = SecuredKind.CATALOG
OPTIONS = {"catalog-type": "hadoop", "warehouse": "/lake"}
ICE = ExternalObject(
    kind=KIND,
    id="c-1",
    name="ice",
    type="iceberg",
    options=OPTIONS,
    owner="root",
    comment="a lake",
    created_at=NOON,
)
# As Flink's FileCatalogStore writes it, with Jackson's YAMLMapper.
FLINKS = 'type: "iceberg"\ncatalog-type: "hadoop"\nwarehouse: "/lake"\n'


def files_in(folder: Path, database: ExternalObjects) -> CatalogFiles:
    ids = (f"new-{n}" for n in itertools.count())
    return CatalogFiles(folder, database, lambda: next(ids))


@pytest.fixture
def database() -> MemoryExternalObjects:
    return MemoryExternalObjects()


@pytest.fixture
def files(tmp_path: Path, database: MemoryExternalObjects) -> CatalogFiles:
    return files_in(tmp_path, database)


def test_a_file_is_as_flink_writes_it(files: CatalogFiles, tmp_path: Path) -> None:
    assert files.create(ICE)
    assert (tmp_path / "ice.yaml").read_text() == FLINKS
    assert files.all(KIND) == (replace(ICE, options={"type": "iceberg", **OPTIONS}),)


def test_values_survive_as_they_are() -> None:
    options = {
        "type": "jdbc",
        "x": "a: 'b' \"c\" \\ ${secret:d}",
        "y": "yes",
        "z": "é\n#",
        "n": "7",
    }
    assert read_yaml(as_yaml(options)) == options


@pytest.mark.parametrize(
    "text",
    [
        "type: jdbc\nfetchsize: 7\ncache: true\n",
        '---\n"type": \'jdbc\'\nfetchsize: "7"\ncache: true\n',
    ],
)
def test_values_without_quotes_are_texts(text: str) -> None:
    assert read_yaml(text) == {"type": "jdbc", "fetchsize": "7", "cache": "true"}


@pytest.mark.parametrize("text", ["- a\n", "a: {b: c}\n", "a: [b\n", "7\n", ""])
def test_other_files_are_no_catalogs(text: str) -> None:
    with pytest.raises(ValueError):
        read_yaml(text)


def test_files_of_flink_are_catalogs_of_nobody(
    files: CatalogFiles, tmp_path: Path, database: MemoryExternalObjects
) -> None:
    (tmp_path / "Lake.yaml").write_text(FLINKS)
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "notes.txt").write_text("x")
    [found] = files.all(KIND)
    assert (found.name, found.type, found.owner, found.comment) == (
        "lake",
        "iceberg",
        UNOWNED,
        None,
    )
    assert files.all(KIND) == (found,)
    assert database.all(KIND)[0].options == {}
    assert files.replace(replace(found, owner="ann", options={**OPTIONS, "clients": "2"}))
    assert (tmp_path / "Lake.yaml").read_text() == FLINKS + 'clients: "2"\n'
    files.drop(found.id)
    assert not (tmp_path / "Lake.yaml").exists()
    assert files.all(KIND) == database.all(KIND) == ()


def test_changes_by_others_are_noticed(files: CatalogFiles, tmp_path: Path) -> None:
    other = files_in(tmp_path, MemoryExternalObjects())
    assert files.create(ICE)
    assert not files.create(replace(ICE, id="c-2"))
    assert [each.name for each in other.all(KIND)] == ["ice"]
    (tmp_path / "ice.yaml").write_text(FLINKS.replace("/lake", "/elsewhere"))
    assert files.all(KIND)[0].options["warehouse"] == "/elsewhere"
    assert files.all(KIND)[0].id == "c-1"
    (tmp_path / "ice.yaml").unlink()
    assert files.all(KIND) == ()
    assert not files.replace(ICE)
    assert files.create(replace(ICE, id="c-3"))
    assert files.all(KIND)[0].id == "c-3"


def test_a_directory_that_cannot_be_used_is_said(
    tmp_path: Path, database: MemoryExternalObjects
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ServerError, match=r"The catalog store .*file/x cannot be used"):
        files_in(tmp_path / "file" / "x", database).all(KIND)


def test_only_catalogs_are_elsewhere(database: MemoryExternalObjects) -> None:
    crm = replace(ICE, kind=SecuredKind.CONNECTION, id="x", name="crm")
    for store in (catalogs_in_memory(database), SplitExternalObjects(database, database)):
        assert store.create(ICE)
        assert store.create(crm)
        assert store.all(KIND) == (ICE,)
        assert store.all(SecuredKind.CONNECTION) == (crm,)
        assert store.replace(replace(crm, owner="ann"))
        store.drop(ICE.id)
        store.drop(crm.id)
        assert store.all(KIND) == store.all(SecuredKind.CONNECTION) == ()


def test_flinks_keys_have_the_same_meaning(tmp_path: Path) -> None:
    assert store_kind(Config()) == "database"
    options = {"table.catalog-store.kind": "file", "table.catalog-store.file.path": str(tmp_path)}
    config = Config(options=options)
    assert (store_kind(config), store_folder(config)) == ("file", tmp_path)
    own = Config(catalog_store=CatalogStoreSection(kind="file", path=str(tmp_path)))
    assert (store_kind(own), store_folder(own)) == ("file", tmp_path)
    memory = Config(options={"table.catalog-store.kind": "generic_in_memory"})
    assert store_kind(memory) == "generic_in_memory"
    with pytest.raises(ValueError, match="contradicts"):
        Config(options=options, catalog_store=CatalogStoreSection(kind="database"))
    with pytest.raises(ValueError, match="has no effect"):
        CatalogStoreSection(path="/x")
