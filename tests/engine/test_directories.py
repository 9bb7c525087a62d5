"""Where the file system says that paths are, and whose directories they overlap."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.fixtures.spark import Lake
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.engine.gate.gate import places
from tidegate_server.engine.metastore.directories import Directories
from tidegate_server.engine.storage.jvm import java

pytestmark = pytest.mark.spark


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory without links in its own path."""
    return tmp_path.resolve()


def place(spark: SparkSession, path: object) -> str:
    [found] = Directories(spark).places([str(path)]).places
    return found


def reached(
    directories: Directories, path: object, act: Act = Act.READ, owner: str = ""
) -> set[tuple[Act, str]]:
    kind = ObjectKind.DIRECTORY if owner else ObjectKind.PATH
    access = Access(act=act, kind=kind, name=f"file:{path}", owner=owner)
    return {
        (each.act, f"{each.schema}.{each.name}".removeprefix("."))
        for each in directories.reached([access])
    }


def lists(directories: Directories) -> Iterable[Directories]:
    """Yield it as it reads the metastore's database, and as it reads through Hive's client."""
    yield directories
    directories._stored._database = None
    yield directories


def test_a_path_is_where_its_links_lead(spark_root: SparkSession, root: Path) -> None:
    real = root / "real"
    real.mkdir()
    (root / "link").symlink_to(real)
    (root / "later").symlink_to(root / "real" / "not yet")
    (root / "again").symlink_to("later")
    expected = {
        root / "real": real,
        f"file://{root}/link": real,
        f"{root}/link/a/../b": real / "b",
        root / "link" / "new" / "file": real / "new" / "file",
        root / "later": real / "not yet",
        root / "again" / "x": real / "not yet" / "x",
        f"{root}/a b%41": root / "a b%41",
    }
    assert {path: place(spark_root, path) for path in expected} == {
        path: f"file:{found}" for path, found in expected.items()
    }


@pytest.mark.parametrize("path", ["foo://a/b", "loop"])
def test_what_no_file_system_knows_is_refused(
    spark_root: SparkSession, root: Path, path: str
) -> None:
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(ServerError) as refused:
        place(spark_root, root / "loop" if path == "loop" else path)
    assert refused.value.code == "PLACE_UNKNOWN"


def test_links_out_of_a_directory_are_found(spark_root: SparkSession, root: Path) -> None:
    inside, outside = root / "in", root / "out"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    (inside / "deep" / "out").symlink_to(outside)
    (inside / "deep" / "file").symlink_to(outside / "file")
    (inside / "deep" / "back").symlink_to(inside)
    found = set(places(spark_root).linked(f"file:{inside}"))
    assert found == {f"file:{outside}", f"file:{outside}/file"}


def test_a_pattern_is_what_it_matches(spark_root: SparkSession, root: Path) -> None:
    for name in ("a1", "a2", "b"):
        (root / name).mkdir()
    (root / "a3").symlink_to(root / "b")
    jvm = java(spark_root)
    hadoop = spark_root.sparkContext._jsc.hadoopConfiguration()
    pattern = jvm.org.apache.hadoop.fs.Path(f"{root}/a*")
    found = set(places(spark_root).expand(hadoop, pattern))
    assert found == {f"file:{root / name}" for name in ("a1", "a2", "b")}
    assert list(places(spark_root).expand(hadoop, jvm.org.apache.hadoop.fs.Path(str(root)))) == []


def test_a_path_reaches_the_tables_whose_directories_it_overlaps(lake: Lake, root: Path) -> None:
    link = root / "link"
    (root / "link").symlink_to(root)
    lake.sql(
        "CREATE TABLE kept (x INT) USING delta",
        f"CREATE TABLE outer (x INT) USING csv LOCATION '{root}/outer'",
        f"CREATE TABLE inner (x INT) USING delta LOCATION '{link}/outer/inner'",
        f"CREATE TABLE beside (x INT) USING parquet LOCATION '{root}/outer2'",
    )
    schema = lake.name("kept").schema
    kept = lake.path("kept").resolve()
    for directories in lists(Directories(lake.session)):
        read = (Act.SELECT, f"{schema}.outer"), (Act.SELECT, f"{schema}.inner")
        assert reached(directories, root / "outer") == set(read)
        assert reached(directories, root / "outer" / "x") == {read[0]}
        assert reached(directories, root / "outer" / "inner" / "x") == {read[1]}
        assert reached(directories, root / "elsewhere") == set()
        assert reached(directories, kept / "_delta_log") == {(Act.SELECT, f"{schema}.kept")}
        assert reached(directories, kept.parent / "new", Act.CREATE) == {(Act.OWN, schema)}
        written = reached(directories, root / "outer2" / "x", Act.WRITE)
        assert written == {(Act.OWN, f"{schema}.beside")}


def test_a_directory_of_the_same_owner_reaches_nothing(lake: Lake, root: Path) -> None:
    lake.sql(f"CREATE TABLE mine (x INT) USING csv LOCATION '{root}/mine'")
    directories = Directories(lake.session)
    [access] = directories.reached(
        [Access(act=Act.READ, kind=ObjectKind.PATH, name=f"file:{root}/mine")]
    )
    assert access.owner
    assert reached(directories, root / "mine", owner=access.owner) == set()
    assert len(reached(directories, root / "mine", owner="another")) == 1
