"""Statements change rows in memory as they change those of a table of files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.engine.oracle.memory import MemoryLake
from tests.engine.oracle.tables import Layout
from tests.support.fixtures.spark import Lake
from tidegate_server.core.model.runs import ChangeMethod

pytestmark = pytest.mark.spark

_PLAIN = Layout(feed=True, partitioned=False, vectors=False, clustered=False)
_STATEMENTS = (
    "INSERT INTO {small} (`n`, `k`, `d`) SELECT * FROM VALUES (1, 'a', 1.5D), (2, NULL, 0D)",
    "INSERT INTO {small} SELECT * FROM VALUES (2, 'b', 1D)",
    "UPDATE {small} SET `k` = 'it''s', `d` = `d` WHERE `k` IS NULL",
    "INSERT INTO {small} SELECT * FROM {small} WHERE `n` <=> 2",
    "INSERT INTO {small} REPLACE WHERE `n` = 1 SELECT * FROM VALUES (1, 'c', NULL)",
    "UPDATE {small} SET `n` = NULL WHERE `k` <=> 'b'",
    "DELETE FROM {small} WHERE `n` = 1",
    "INSERT OVERWRITE {small} (`n`, `k`, `d`) SELECT * FROM {small}",
    "TRUNCATE TABLE {small}",
)


@pytest.fixture
def memory(spark_root: SparkSession) -> Iterator[MemoryLake]:
    opened = MemoryLake(spark_root)
    yield opened
    opened.close()


def test_statements_have_the_effect_of_those_on_files(memory: MemoryLake, lake: Lake) -> None:
    for each in (memory, lake):
        each.sql(_named(each, _PLAIN.create("small")))
    for statement in _STATEMENTS:
        rows = []
        for each in (memory, lake):
            each.sql(_named(each, statement))
            rows.append(sorted(map(repr, each.frame(each.name("small")).collect())))
        assert rows[0] == rows[1], statement


def test_only_added_rows_are_an_append(memory: MemoryLake) -> None:
    memory.sql(_named(memory, _PLAIN.create("small")))
    name, methods = memory.name("small"), []
    for statement in _STATEMENTS[1:4]:
        state = memory.format.find(name)
        assert state is not None
        memory.sql(_named(memory, statement))
        found = memory.format.find(name)
        assert found is not None
        change = memory.format.change(
            memory.session, name, state.table_id, state.version, found.version
        )
        methods.append(change.method)
    assert methods == [ChangeMethod.APPENDED, ChangeMethod.DIFFERENCE, ChangeMethod.APPENDED]


def test_other_statements_are_refused(memory: MemoryLake) -> None:
    memory.sql(_named(memory, _PLAIN.create("small")))
    with pytest.raises(PySparkException, match="NOT_IN_MEMORY"):
        memory.sql(_named(memory, "OPTIMIZE {small}"))


def _named(lake: Lake, statement: str) -> str:
    return statement.replace("{small}", lake.name("small").quoted())
