"""Every table has its own directory, and nothing deletes the files of another one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures.spark import Lake
from tests.support.materialized import Stored
from tidegate_server.core.messages.requests import TablePlace
from tidegate_server.core.model.names import TableName
from tidegate_server.engine.results.projection import result_schema
from tidegate_server.engine.statement.drop import protect_other_files
from tidegate_server.engine.statement.guard import guard
from tidegate_server.engine.storage.jvm import java
from tidegate_server.engine.storage.table_locations import TableLocations

pytestmark = pytest.mark.engine


@pytest.fixture
def places(lake: Lake) -> TableLocations:
    return TableLocations(lake.root)


def run(lake: Lake, *texts: str) -> None:
    """Run statements of a session as the engine does."""
    for text in texts:
        with protect_other_files(lake.session, guard(lake.session, text).targets):
            lake.session.sql(text)


def folder(location: str) -> Path:
    return Path(location.removeprefix("file:"))


def warehouse(lake: Lake) -> Path:
    """Return the directory of the schema."""
    return folder(TableLocations(lake.root).default_location(lake.name("x"))).parent


def directory_entries(lake: Lake) -> list[str]:
    """Return what the directory of the schema has in it."""
    return sorted(path.name for path in warehouse(lake).iterdir())


def point_of(lake: Lake, mt: Stored, name: TableName | None = None) -> TablePlace:
    return TablePlace(name=name or mt.name, location=str(place_of(lake, mt)), table_id=mt.id)


def place_of(lake: Lake, mt: Stored) -> str:
    return TableLocations(lake.root).location(mt.name)


def legacy(lake: Lake, table: str = "mt", beside: str | None = None) -> Stored:
    """Return a materialized table as earlier versions created it: MANAGED, in the directory of its
    name, or ``beside`` it, which Hive did not know."""
    name, table_id = lake.name(table), str(uuid.uuid4())
    properties = f"TBLPROPERTIES ('tidegate.id' = '{table_id}')"
    where = f"LOCATION '{warehouse(lake) / beside}'" if beside else ""
    lake.root.sql(f"CREATE TABLE {name.quoted()} (k STRING) USING delta {where} {properties}")
    if beside:
        catalog: Any = lake.root._jsparkSession.sharedState().externalCatalog()
        entry = catalog.getTable(lake.schema, table)
        fields = [entry.productElement(n) for n in range(entry.productArity())]
        fields[1] = java(lake.root).org.apache.spark.sql.catalyst.catalog.CatalogTableType.MANAGED()
        catalog.dropTable(lake.schema, table, False, False)
        catalog.createTable(entry.copy(*fields), False)
    made = object.__new__(Stored)
    made.lake, made.id, made.name, made.query, made.keys = (
        lake,
        table_id,
        name,
        "SELECT 'k' AS k",
        (),
    )
    made.expectations, made.assertions, made.key, made.immutable = (), (), None, None
    made.columns, made.epoch = ("k",), 0
    return made


def test_a_table_gets_a_directory_of_its_own_that_the_metastore_names(
    lake: Lake, places: TableLocations
) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    assert places.location(mt.name) == f"{places.default_location(mt.name)}-{mt.id}"
    assert directory_entries(lake) == [f"mt-{mt.id}"]
    mt.fill()
    lake.format.drop(mt.name, mt.id)
    assert directory_entries(lake) == []


def test_whatever_is_in_the_directory_of_a_name_stays(lake: Lake) -> None:
    there = warehouse(lake) / "mt"
    lake.sql(f"CREATE TABLE ext (x INT) USING parquet LOCATION '{there}'")
    lake.sql("INSERT INTO ext VALUES (1), (2), (3)")
    mt = Stored(lake, "SELECT 'k' AS k")
    mt.fill()
    lake.format.drop(mt.name, mt.id)
    assert lake.rows("SELECT * FROM ext") == [(1,), (2,), (3,)]
    assert directory_entries(lake) == ["mt"]


def test_a_name_that_is_free_again_takes_a_plain_table(lake: Lake) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    lake.format.rename(mt.name, lake.name("other"), mt.id)
    lake.sql("CREATE TABLE mt (x INT) USING delta", "INSERT INTO mt VALUES (1)")
    lake.format.drop(lake.name("other"), mt.id)
    assert lake.rows("SELECT * FROM mt") == [(1,)]


def test_a_rename_moves_no_files(lake: Lake, places: TableLocations) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    mt.fill()
    before = places.location(mt.name)
    lake.format.rename(mt.name, lake.name("other"), mt.id)
    assert places.location(lake.name("other")) == before
    assert lake.rows("SELECT * FROM other") == [("k",)]


def test_files_of_others_in_the_directory_of_a_table_stay(lake: Lake) -> None:
    mt = Stored(lake, "SELECT 'k' AS k, 'p' AS p", "p")
    mt.fill()
    mine = folder(place_of(lake, mt))
    (mine / "notes.txt").write_text("mine")
    (mine / "p=p" / "more.csv").write_text("mine")
    lake.sql(f"CREATE TABLE ext (x INT) USING parquet LOCATION '{mine}/inside'")
    lake.sql("INSERT INTO ext VALUES (1)")
    lake.format.drop(mt.name, mt.id)
    left = {str(p.relative_to(mine)) for p in mine.rglob("*") if p.is_file()}
    assert {"notes.txt", "p=p/more.csv"} <= left
    assert not any(p.startswith(("_delta_log", "p=p/part-", "part-")) for p in left)
    assert lake.rows("SELECT * FROM ext") == [(1,)]
    lake.sql("DROP TABLE ext")
    shutil.rmtree(mine)


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("plain",), ("x y",)], ids=["files", "mapped names"])
def test_everything_that_is_a_tables_own_goes(lake: Lake, names: tuple[str, ...]) -> None:
    columns = ", ".join(f"id AS `{name}`" for name in names)
    mt = Stored(lake, f"SELECT {columns}, CAST(id % 3 AS STRING) AS p FROM range(30)", "p")
    mt.fill()
    lake.session.sql(f"DELETE FROM {mt.name.quoted()} WHERE p = '1'")
    if names == ("plain",):
        lake.sql(f"GENERATE symlink_format_manifest FOR TABLE {mt.name.quoted()}")
    mt.fill()
    lake.format.drop(mt.name, mt.id)
    assert directory_entries(lake) == []


def test_a_drop_that_was_interrupted_is_completed(lake: Lake, places: TableLocations) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    mt.fill()
    location = places.location(mt.name)
    places.forget(mt.name)
    lake.format.drop(mt.name, mt.id, location)
    assert directory_entries(lake) == []
    # Within the log, whose first files are gone.
    mt = Stored(lake, "SELECT 'k' AS k")
    mt.fill()
    (folder(places.location(mt.name)) / "_delta_log" / f"{0:020}.json").unlink()
    places.forget(mt.name)
    lake.format.drop(mt.name, mt.id)
    assert directory_entries(lake) == []


def test_a_drop_leaves_another_table_of_the_name_alone(lake: Lake) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    lake.format.drop(mt.name, str(uuid.uuid4()))
    assert lake.rows("SELECT count(*) FROM mt") == [(0,)]
    lake.format.drop(mt.name, mt.id)
    lake.sql("CREATE TABLE mt (x INT) USING delta")
    lake.format.drop(mt.name, mt.id)
    assert lake.rows("SELECT * FROM mt") == []


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["log", "directory", "entry"])
def test_a_lost_table_is_dropped_and_created_again(
    lake: Lake, places: TableLocations, lost: str
) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    mt.fill()
    location = places.location(mt.name)
    if lost == "entry":
        places.forget(mt.name)
    else:
        shutil.rmtree(folder(location) / ("_delta_log" if lost == "log" else ""))
    schema = result_schema(lake.session.sql(mt.query))
    again, _ = lake.format.create(mt.name, schema, (), None, {"tidegate.id": mt.id}, location)
    # Parquet files whose log is gone may be all that is left of something: they stay.
    assert (again == location) is (lost != "log")
    assert lake.rows("SELECT * FROM mt") == ([("k",)] if lost == "entry" else [])
    mt.fill()
    assert lake.rows("SELECT * FROM mt") == [("k",)]
    lake.format.drop(mt.name, mt.id, location)
    assert directory_entries(lake) == []


def test_a_table_is_dropped_although_its_schema_is_gone(
    lake: Lake, make_schema: Callable[[], Lake]
) -> None:
    other = make_schema()
    mt = Stored(other, "SELECT 'k' AS k")
    location = place_of(other, mt)
    TableLocations(lake.root).forget(mt.name)
    run(lake, f"DROP SCHEMA {other.schema}")
    assert folder(location).exists()
    lake.format.drop(mt.name, mt.id, location)
    assert not folder(location).exists()


def test_a_lost_tables_entry_goes_with_its_drop(lake: Lake, places: TableLocations) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    shutil.rmtree(folder(places.location(mt.name)))
    lake.format.drop(mt.name, mt.id)
    assert not lake.session.catalog.tableExists("mt")


def test_tables_exchange_their_places(lake: Lake) -> None:
    one, two = Stored(lake, "SELECT '1' AS k"), Stored(lake, "SELECT '2' AS k", table="two")
    one.fill()
    two.fill()
    lake.format.place((point_of(lake, one, two.name), point_of(lake, two, one.name)))
    assert lake.rows("SELECT * FROM mt") == [("2",)]
    lake.format.drop(lake.name("mt"), two.id)
    assert lake.rows("SELECT * FROM two") == [("1",)]
    assert directory_entries(lake) == [f"mt-{one.id}"]
    lake.format.drop(lake.name("two"), one.id)
    assert directory_entries(lake) == []


# ---- tables of earlier versions --------------------------------------------------------------


@pytest.mark.thorough
def test_a_table_of_an_earlier_version_is_dropped_from_where_it_lies(lake: Lake) -> None:
    old = legacy(lake, beside="mt_5e5b12c0")
    there = warehouse(lake) / "mt"
    there.mkdir(exist_ok=True)
    (there / "mine.txt").write_text("mine")
    old.fill()
    lake.format.drop(old.name, old.id)
    assert directory_entries(lake) == ["mt"]
    assert (there / "mine.txt").read_text() == "mine"


@pytest.mark.thorough
@pytest.mark.parametrize("beside", [None, "mt_5e5b12c0"])
def test_a_table_of_an_earlier_version_is_renamed_where_it_lies(
    lake: Lake, places: TableLocations, beside: str | None
) -> None:
    old = legacy(lake, beside=beside)
    old.fill()
    before = places.location(old.name)
    lake.format.rename(old.name, lake.name("other"), old.id)
    assert places.location(lake.name("other")) == before
    assert lake.rows("SELECT * FROM other") == [("k",)]
    lake.format.drop(lake.name("other"), old.id)
    assert not any(path.is_file() for path in warehouse(lake).rglob("*"))


@pytest.mark.thorough
def test_tables_of_earlier_versions_exchange_their_places(lake: Lake) -> None:
    old, new = legacy(lake), Stored(lake, "SELECT 'n' AS k", table="new")
    old.fill()
    new.fill()
    lake.format.place((point_of(lake, old, new.name), point_of(lake, new, old.name)))
    assert (lake.rows("SELECT * FROM mt"), lake.rows("SELECT * FROM new")) == ([("n",)], [("k",)])
    lake.format.drop(lake.name("mt"), new.id)
    assert lake.rows("SELECT * FROM new") == [("k",)]
    lake.format.drop(lake.name("new"), old.id)
    assert directory_entries(lake) == []


def test_a_table_at_a_persons_own_place_becomes_a_plain_one_there(lake: Lake) -> None:
    mine = warehouse(lake) / "elsewhere"
    lake.sql(f"CREATE TABLE mt (k STRING) USING delta LOCATION '{mine}'")
    lake.sql("INSERT INTO mt VALUES ('k')")
    table_id = str(uuid.uuid4())
    lake.format.set_properties(lake.name("mt"), {"tidegate.id": table_id})
    lake.format.drop(lake.name("mt"), table_id)
    assert not lake.session.catalog.tableExists("mt")
    assert lake.rows(f"SELECT * FROM delta.`{mine}`") == [("k",)]
    lake.sql(f"CREATE TABLE mt USING delta LOCATION '{mine}'")
    guard(lake.session, "DROP TABLE mt")


# ---- statements of Spark's -------------------------------------------------------------------


def convert(lake: Lake, mt: Stored) -> None:
    """Make a materialized table a plain one."""
    lake.sql(f"ALTER TABLE {mt.name.table} UNSET TBLPROPERTIES ('tidegate.id')")


def test_dropping_a_converted_table_deletes_its_files(lake: Lake) -> None:
    mt = Stored(lake, "SELECT 'k' AS k")
    convert(lake, mt)
    run(lake, "ALTER TABLE mt RENAME TO other")
    assert lake.rows("SELECT count(*) FROM other") == [(0,)]
    run(lake, "DROP TABLE other")
    assert directory_entries(lake) == []


@pytest.mark.thorough
def test_dropping_a_converted_table_of_an_earlier_version_deletes_its_own_files(lake: Lake) -> None:
    old = legacy(lake, beside="mt_5e5b12c0")
    (warehouse(lake) / "mt").mkdir(exist_ok=True)
    (warehouse(lake) / "mt" / "mine.txt").write_text("mine")
    convert(lake, old)
    run(lake, "DROP TABLE mt")
    assert directory_entries(lake) == ["mt"]


@pytest.mark.thorough
def test_renaming_a_converted_table_of_an_earlier_version_keeps_its_rows(lake: Lake) -> None:
    old = legacy(lake, beside="mt_5e5b12c0")
    old.fill()
    convert(lake, old)
    run(lake, "ALTER TABLE mt RENAME TO other")
    assert lake.rows("SELECT * FROM other") == [("k",)]


@pytest.mark.thorough
def test_dropping_external_tables_keeps_their_files(lake: Lake) -> None:
    place = warehouse(lake) / "mine"
    run(lake, f"CREATE TABLE mine (x INT) USING delta LOCATION '{place}'", "DROP TABLE mine")
    assert directory_entries(lake) == ["mine"]
    assert (place / "_delta_log").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["", "CASCADE"])
def test_dropping_a_schema_keeps_files_of_others(
    lake: Lake, make_schema: Callable[[], Lake], how: str
) -> None:
    other = make_schema()
    home = warehouse(other)
    (home / "mine.txt").write_text("mine")
    lake.sql(f"CREATE TABLE ext (x INT) USING parquet LOCATION '{home}/ext'")
    lake.sql("INSERT INTO ext VALUES (1)")
    if how:
        run(other, "CREATE TABLE t (x INT) USING delta", "CREATE VIEW v AS SELECT * FROM t")
        run(other, f"CREATE TABLE out (x INT) USING delta LOCATION '{warehouse(lake)}/out'")
        run(other, f"CREATE FUNCTION {other.schema}.f(x INT) RETURNS INT RETURN x + 1")
        convert(other, Stored(other, "SELECT 'k' AS k"))
    run(other, f"DROP SCHEMA {other.schema} {how}")
    assert lake.rows("SELECT * FROM ext") == [(1,)]
    assert sorted(p.name for p in home.iterdir()) == ["ext", "mine.txt"]
    assert directory_entries(lake) == (["out"] if how else [])
    assert not lake.session.catalog.databaseExists(other.schema)
    shutil.rmtree(home)


@pytest.mark.thorough
def test_an_empty_schema_goes_with_its_directory(make_schema: Callable[[], Lake]) -> None:
    other = make_schema()
    run(other, "CREATE TABLE t (x INT) USING delta", f"DROP SCHEMA {other.schema} CASCADE")
    assert not warehouse_of(other).exists()


@pytest.mark.thorough
def test_a_schema_that_is_not_dropped_stays_where_it_is(make_schema: Callable[[], Lake]) -> None:
    other = make_schema()
    run(other, "CREATE TABLE t (x INT) USING delta")
    before = TableLocations(other.root).default_location(other.name("x"))
    with pytest.raises(Exception, match="SCHEMA_NOT_EMPTY"):
        run(other, f"DROP SCHEMA {other.schema}")
    assert TableLocations(other.root).default_location(other.name("x")) == before
    assert directory_entries(other) == ["t"]
    run(other, "INSERT INTO t VALUES (1)")
    other.close()


@pytest.mark.thorough
def test_a_schema_with_nothing_but_a_function_is_not_empty(
    make_schema: Callable[[], Lake],
) -> None:
    other = make_schema()
    run(other, f"CREATE FUNCTION {other.schema}.f(x INT) RETURNS INT RETURN x + 1")
    with pytest.raises(Exception, match="SCHEMA_NOT_EMPTY"):
        run(other, f"DROP SCHEMA {other.schema}")
    run(other, f"DROP SCHEMA {other.schema} CASCADE")
    assert not other.root.catalog.databaseExists(other.schema)


@pytest.mark.thorough
def test_a_schema_whose_directory_is_gone_is_dropped(make_schema: Callable[[], Lake]) -> None:
    other = make_schema()
    warehouse(other).rmdir()
    run(other, f"DROP SCHEMA {other.schema}")
    assert not other.root.catalog.databaseExists(other.schema)


@pytest.fixture
def make_schema(lake: Lake) -> Callable[[], Lake]:
    """Makes further schemas, which the test drops."""
    return lambda: Lake(lake.root)


def warehouse_of(other: Lake) -> Path:
    """Return the directory that a schema had which is gone."""
    default = TableLocations(other.root).default_location(
        TableName("spark_catalog", "default", "x")
    )
    return folder(default).parent / f"{other.schema}.db"
