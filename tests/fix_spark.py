"""One SparkSession inside the test process, set up as the engine sets its own up."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.small import IN_MEMORY, SHORT_LIVED
from tidegate_server.core.messages.requests import EngineOptions
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.versions import Source, SourceKind
from tidegate_server.engine.jvm.references import freeze_references
from tidegate_server.engine.jvm.session import Directories, start_spark
from tidegate_server.engine.storage.delta.format import DeltaFormat


class Lake:
    """A fresh schema and what tests do in it."""

    def __init__(self, root: SparkSession) -> None:
        self.root = root
        self.session = root.newSession()
        self.format = DeltaFormat(root)
        self.schema = f"s{uuid.uuid4().hex[:8]}"
        self.session.sql(f"CREATE SCHEMA {self.schema}")
        self.session.sql(f"USE {self.schema}")

    def sql(self, *texts: str) -> None:
        """Run statements for their effect."""
        for text in texts:
            self.session.sql(text)

    def rows(self, text: str) -> list[tuple[object, ...]]:
        """Return a query's rows in a fixed order."""
        return sorted((tuple(row) for row in self.session.sql(text).collect()), key=repr)

    def name(self, table: str) -> TableName:
        """Return a table's full name."""
        return TableName("spark_catalog", self.schema, table)

    def version(self, table: str) -> int:
        """Return a table's newest version."""
        state = self.format.find(self.name(table))
        assert state is not None
        return state.newest

    def source(self, table: str) -> Source:
        """Return a table as a definition knows it."""
        state = self.format.find(self.name(table))
        assert state is not None
        return Source(name=self.name(table), kind=SourceKind.VERSIONED, table_id=state.table_id)

    def path(self, table: str) -> Path:
        """Return where a table's files are."""
        place = self.session.sql(f"DESCRIBE DETAIL {table}").first()
        assert place is not None
        return Path(place["location"].removeprefix("file:"))

    def close(self) -> None:
        """Drop the schema."""
        self.session.sql(f"DROP SCHEMA {self.schema} CASCADE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let PySpark leave the sockets of its results to the garbage collector."""
    quiet = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
    for item in items:
        if "spark_root" in getattr(item, "fixturenames", ()):
            item.add_marker(quiet)


def start_root(
    home: Path, master: str = "local[2]", memory: str = "1g", **settings: str
) -> SparkSession:
    """Start Spark in this process as an engine does, its data in ``home``."""
    options = EngineOptions(
        socket="",
        data=str(home),
        master=master,
        driver_memory=memory,
        java_home="",
        direct_bytes=32 << 20,
        spool_quota=1 << 30,
        settings=settings,
    )
    directories = Directories(home)
    directories.prepare()
    spark = start_spark(options, directories)
    freeze_references()
    return spark


@pytest.fixture(scope="session")
def spark_root() -> Iterator[SparkSession]:
    """The process's one root session."""
    home = Path(tempfile.mkdtemp(prefix="tg"))
    spark = start_root(home, memory="2g", **IN_MEMORY, **SHORT_LIVED)
    yield spark
    spark.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def lake(spark_root: SparkSession) -> Iterator[Lake]:
    """A fresh schema."""
    opened = Lake(spark_root)
    yield opened
    opened.close()
