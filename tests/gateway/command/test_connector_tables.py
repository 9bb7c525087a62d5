"""Tables of connectors: CREATE TABLE ... LIKE, and the check of watermarks."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import Column, Schema, World
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import TableDefinitionFound
from tidegate_server.core.messages.requests import Execute, FindTableDefinition

GENERATED = "(`a` INT, `at` TIMESTAMP) WITH ('connector' = 'datagen', 'number-of-rows' = '3')"


def sent(world: World) -> list[str]:
    return [each.sql for each in world.engine.requests if isinstance(each, Execute)]


def refused(world: World, text: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        world.execute(text)
    return caught.value


def test_a_table_takes_the_definition_of_another_one(world: World) -> None:
    found = TableDefinitionFound(connector="datagen", definition=GENERATED)
    world.engine.definitions["s", "o"] = found
    world.execute(
        "CREATE TABLE IF NOT EXISTS t (b AS a + 1) COMMENT 'c' "
        "WITH ('number-of-rows' = '5') LIKE s.o"
    )
    [text] = sent(world)
    assert text.startswith("CREATE VIEW IF NOT EXISTS `t` (`a`, `at`, `b`) COMMENT 'c' ")
    assert "'connector.number-of-rows' = '5'" in text and "`at` TIMESTAMP, `b` AS a + 1)" in text
    world.execute("CREATE TEMPORARY TABLE u LIKE s.o (EXCLUDING WATERMARKS)")
    assert sent(world)[1].startswith("CREATE TEMPORARY VIEW `u` (`a`, `at`) AS SELECT /* rows-per")


def test_two_names_alone_are_sparks_unless_the_other_table_is_of_a_connector(world: World) -> None:
    world.engine.definitions[("o",)] = TableDefinitionFound()
    world.execute("CREATE TABLE t LIKE o -- why")
    assert sent(world) == ["CREATE TABLE t LIKE o -- why"]
    world.engine.definitions[("o",)] = TableDefinitionFound(connector="x", definition=GENERATED)
    world.execute("CREATE TABLE t LIKE o")
    assert sent(world)[1].startswith("CREATE VIEW `t` (`a`, `at`) ")
    missing = ServerError(code="TABLE_OR_VIEW_NOT_FOUND", sqlstate="42P01", message="no")
    world.engine.failures[FindTableDefinition] = missing
    world.execute("CREATE TABLE t LIKE nothing")
    assert sent(world)[2] == "CREATE TABLE t LIKE nothing"
    problem = refused(world, "CREATE TABLE t WITH ('a' = 'b') LIKE nothing")
    assert (problem.code, problem.column) == (missing.code, 38)


def test_the_columns_of_a_plain_table_become_those_of_a_connectors(world: World) -> None:
    columns = Schema((Column(name="k", type="bigint", nullable=False),))
    world.engine.definitions[("o",)] = TableDefinitionFound(columns=columns, primary_key=("k",))
    world.execute("CREATE TABLE t WITH ('connector' = 'datagen') LIKE o (EXCLUDING CONSTRAINTS)")
    [text] = sent(world)
    assert "'(`k` BIGINT NOT NULL) WITH (\\'connector\\' = \\'datagen\\')'" in text
    world.execute("CREATE TABLE u (l INT) WITH () LIKE o")
    assert sent(world)[1] == (
        "CREATE TABLE `u` (`k` BIGINT NOT NULL, `l` INT) USING delta TBLPROPERTIES "
        "('primary-key' = 'k')"
    )


@pytest.mark.parametrize(
    ("definition", "statement", "code", "said"),
    [
        ("", "LIKE o", "INVALID_LIKE", "not recorded"),
        ("(a INT) USING x", "LIKE o", "INVALID_LIKE", "cannot be read: Syntax error at USING"),
        (GENERATED, "(A INT) LIKE o", "INVALID_LIKE", "it already has the column A"),
        (GENERATED, "WITH ('x' = 'y') LIKE o", "INVALID_CONNECTOR", "x is not one of"),
    ],
)
def test_errors_are_at_the_name_of_the_other_table(
    world: World, definition: str, statement: str, code: str, said: str
) -> None:
    world.engine.definitions[("o",)] = TableDefinitionFound(connector="x", definition=definition)
    problem = refused(world, f"CREATE TABLE t\n{statement}")
    assert (problem.code, problem.line, problem.column) == (code, 2, len(statement))
    assert said in str(problem)
    assert sent(world) == []


def test_a_watermark_is_checked_with_the_columns_of_the_table(world: World) -> None:
    columns = "a INT, at AS to_timestamp(a), WATERMARK FOR at AS at - INTERVAL '5' SECOND"
    statement = f"CREATE TABLE t ({columns}) WITH ('connector' = 'datagen')"
    problem = refused(world, statement)
    assert (problem.code, problem.column) == ("MT_WATERMARK_TYPE", 16)
    assert "at is STRING" in str(problem)
    world.engine.storage.types["to_timestamp(a)"] = "timestamp"
    world.engine.storage.types["at - INTERVAL '5' SECOND"] = "string"
    problem = refused(world, statement)
    assert problem.code == "MT_COLUMN_EXPRESSION"
    assert "it is STRING instead of a TIMESTAMP" in str(problem)
    world.engine.storage.types["at - INTERVAL '5' SECOND"] = "timestamp_ntz"
    world.execute(statement)
    [text] = sent(world)
    assert "WATERMARK FOR `at` AS at - INTERVAL" in text
    assert any("WATERMARK FOR at has no effect" in line for line in world.logged)
    [*_, checked] = world.engine.storage.checked
    assert checked.columns.names() == ("a",)
    assert checked.listed == "`a`, to_timestamp(a) AS `at`"
    assert checked.watermark == "at - INTERVAL '5' SECOND"
