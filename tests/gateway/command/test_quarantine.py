"""ON VIOLATION QUARANTINE: the two views over one storage, through every statement."""

from __future__ import annotations

import pytest

from tests.gateway.command.fake_storage import Stored
from tests.gateway.command.fakes import T1, World, name
from tests.gateway.command.tables import ALTER, column, produces, refusal
from tidegate_server.core.config import Config
from tidegate_server.core.errors import Code
from tidegate_server.core.model.types import Schema
from tidegate_server.gateway.options import CONVERSION_KEY

DAY = "FRESHNESS = INTERVAL '1' DAY"
ITEM = "CONSTRAINT `p's` EXPECT (c > 0 -- not\n) ON VIOLATION QUARANTINE"
CREATE = f"CREATE MATERIALIZED TABLE m ({ITEM}) {DAY} AS SELECT * FROM t1"


def test_two_views_tell_the_rows_apart(world: World) -> None:
    world.execute(CREATE)
    storage = world.engine.storage
    assert set(storage.tables) == {name("__tidegate_m")}
    own, held = storage.views[name("m")], storage.views[name("m__quarantine")]
    assert [c.name for c in own.columns] == ["a", "b", "c", "d"]
    assert [c.name for c in held.columns] == ["a", "b", "c", "d", "__violated"]
    assert own.storage == held.storage == name("__tidegate_m")
    assert own.quarantining == held.quarantining == world.definition("m").expectations
    assert (own.quarantine_of, held.quarantine_of) == (None, name("m"))
    assert held.columns[-1].expression == (
        "array_compact(array(CASE WHEN (NOT coalesce(CAST((c > 0\n) AS BOOLEAN), true)) "
        "THEN 'p\\'s' END))"
    )
    assert storage.checked[0].stable


def test_the_statement_is_shown_as_it_was(world: World) -> None:
    world.execute(CREATE)
    [[shown]] = world.rows("SHOW CREATE MATERIALIZED TABLE m")
    assert "EXPECT (c > 0) ON VIOLATION QUARANTINE" in str(shown)
    facts = {row[0]: row[1] for row in world.rows("DESCRIBE EXTENDED m")}
    assert facts["quarantine"] == "spark_catalog.d.m__quarantine"


def test_or_alter_tells_the_change(world: World) -> None:
    world.execute(f"CREATE MATERIALIZED TABLE m {DAY} AS SELECT * FROM t1")
    rows = world.rows(f"EXPLAIN {CREATE.replace('CREATE', 'CREATE OR ALTER')}")
    assert [row for row in rows if "EXPECTATIONS" in row and "NEXT_REFRESH" in row], rows
    world.execute(CREATE.replace("CREATE", "CREATE OR ALTER"))
    assert world.definition("m").version == 2
    assert set(world.engine.storage.views) == {name("m"), name("m__quarantine")}


def test_the_last_expectation_takes_the_views_along(world: World) -> None:
    world.execute(CREATE.replace(ITEM, f"{ITEM}, x AS upper(b)"))
    world.execute(f"{ALTER} m DROP CONSTRAINT `p's`")
    assert set(world.engine.storage.views) == {name("m")}
    world.execute(f"{ALTER} m DROP x")
    assert not world.engine.storage.views
    assert set(world.engine.storage.tables) == {name("m")}


def test_taken_names_are_refused(world: World) -> None:
    world.engine.storage.tables[name("m__quarantine")] = Stored(schema=T1)
    problem = refusal(world, CREATE)
    assert problem.code == Code.MT_ALREADY_EXISTS.name
    assert "spark_catalog.d.m__quarantine" in problem.message
    world.execute(CREATE.replace("TABLE m", "TABLE n"))
    problem = refusal(world, f"{ALTER} n RENAME TO m")
    assert problem.code == Code.MT_ALREADY_EXISTS.name
    assert "spark_catalog.d.m__quarantine" in problem.message


def test_a_column_of_the_views_own_name_is_refused(world: World) -> None:
    query = produces(world, "SELECT *, 1 AS __violated FROM t3", *T1, column("__Violated"))
    problem = refusal(world, CREATE.replace("SELECT * FROM t1", query))
    assert problem.code == Code.MT_DUPLICATE_COLUMN.name


def test_plain_tables_have_all_rows(world: World) -> None:
    world.execute(CREATE)
    problem = refusal(world, f"{ALTER} m CONVERT TO TABLE")
    assert problem.code == Code.NOT_SUPPORTED.name
    assert "holds rows out" in problem.message


def test_a_plain_table_is_not_taken_over_with_rows_to_hold_out() -> None:
    world = World(config=Config(options={CONVERSION_KEY: "true"}))
    world.engine.storage.tables[name("m")] = Stored(schema=Schema(T1.columns))
    problem = refusal(world, CREATE.replace("CREATE", "CREATE OR ALTER"))
    assert problem.code == Code.NOT_SUPPORTED.name
    assert "QUARANTINE" in problem.message


@pytest.mark.parametrize("read", ["m", "M__quarantine", "__tidegate_m"])
def test_who_reads_any_of_the_names_reads_the_table(world: World, read: str) -> None:
    world.execute(CREATE)
    assert world.table("m").is_at(name(read), None)
    assert not world.table("m").is_at(name(f"other_{read}"), None)
