"""Delta's log in local directories, which several processes can write."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.support.fixtures.spark import Lake

pytestmark = pytest.mark.spark

_WRITERS = 4
_VERSIONS = 100


class Log:
    """A directory of versions, written by log stores as if each belonged to a process."""

    def __init__(self, lake: Lake, directory: Path) -> None:
        self.jvm: Any = lake.session._jvm
        self.configuration = lake.session._jsparkSession.sessionState().newHadoopConf()
        self.directory = directory

    def linked(self) -> Any:
        """Return a new store."""
        return self.jvm.tidegate.LinkedLogStore(self.configuration)

    def hadoop(self) -> Any:
        """Return a new store of the kind that Delta uses by default."""
        return self.jvm.io.delta.storage.HDFSLogStore(self.configuration)

    def file(self, version: int) -> Path:
        """Return the file of a version."""
        return self.directory / f"{version:020}.json"

    def write(self, store: Any, version: int, *lines: str, overwrite: bool = False) -> bool:
        """Write a version; return whether there was none."""
        java_lines = self.jvm.java.util.ArrayList()
        for line in lines:
            java_lines.add(line)
        path = self.jvm.org.apache.hadoop.fs.Path(str(self.file(version)))
        try:
            store.write(path, java_lines.iterator(), overwrite, self.configuration)
        except Py4JJavaError as failed:
            assert "java.nio.file.FileAlreadyExistsException" in str(failed.java_exception)
            return False
        return True

    def read(self, version: int) -> list[str]:
        """Return the lines of a version, as Delta reads them."""
        path = self.jvm.org.apache.hadoop.fs.Path(str(self.file(version)))
        lines = self.linked().read(path, self.configuration)
        found = []
        while lines.hasNext():
            found.append(str(lines.next()))
        lines.close()
        return found


@pytest.fixture
def log(lake: Lake, tmp_path: Path) -> Log:
    return Log(lake, tmp_path)


def test_of_several_writers_of_a_version_one_succeeds(log: Log) -> None:
    def write(writer: int) -> list[int]:
        store = log.linked()
        return [v for v in range(_VERSIONS) if log.write(store, v, f"{writer}", "ünïcode")]

    with ThreadPoolExecutor(_WRITERS) as pool:
        written = list(pool.map(write, range(_WRITERS)))
    assert sorted(v for versions in written for v in versions) == list(range(_VERSIONS))
    for writer, versions in enumerate(written):
        for version in versions:
            assert log.read(version) == [f"{writer}", "ünïcode"]
    assert set(log.directory.iterdir()) == {log.file(v) for v in range(_VERSIONS)}


def test_a_file_of_hadoop_is_replaced_with_its_checksum(log: Log) -> None:
    assert log.write(log.hadoop(), 1, "first")
    assert not log.write(log.linked(), 1, "second")
    assert log.read(1) == ["first"]
    assert log.write(log.linked(), 1, "third", overwrite=True)
    assert log.read(1) == ["third"]


def test_files_have_the_rights_that_hadoop_gives(log: Log) -> None:
    log.configuration.set("fs.permissions.umask-mode", "027")
    log.write(log.hadoop(), 1, "a")
    log.write(log.linked(), 2, "a")
    modes = [stat.S_IMODE(log.file(version).stat().st_mode) for version in (1, 2)]
    assert modes == [0o640, 0o640]


def test_tables_are_written_by_it(lake: Lake) -> None:
    lake.sql("CREATE TABLE t USING delta AS SELECT 1 AS a", "INSERT INTO t VALUES (2)")
    written = {path.name for path in lake.path("t").joinpath("_delta_log").glob("*.json*")}
    assert len(written) == 2
    assert not [name for name in written if name.endswith(".json.crc")]
    assert lake.rows("SELECT a FROM t") == [(1,), (2,)]
