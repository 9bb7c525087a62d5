"""Column lists of CREATE: derived columns, watermark, distribution, expectations, duplicates."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import World, name
from tests.gateway.command.tables import column, produces, refusal
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.model.clauses import Distribution, Watermark

CREATE = "CREATE MATERIALIZED TABLE m"


def visible(world: World) -> list[str]:
    return [column.name for column in world.definition("m").visible]


def test_a_table_with_a_computed_column_is_a_view_over_its_storage(world: World) -> None:
    world.engine.storage.types["UPPER(b)"] = "string"
    world.execute(f"{CREATE} (x AS UPPER(b) COMMENT 'loud') AS SELECT * FROM t1")
    table = world.table("m")
    assert visible(world) == ["x", "a", "b", "c", "d"]
    assert table.storage == name("__tidegate_m")
    assert world.engine.storage.tables[table.storage].schema == table.definition.schema
    view = world.engine.storage.views[name("m")]
    assert [(c.name, c.expression, c.comment) for c in view.columns][:2] == [
        ("x", "UPPER(b)", "loud"),
        ("a", None, None),
    ]
    assert view.table_id == table.id


def test_derived_columns_stand_behind_the_one_declared_before(world: World) -> None:
    world.execute(
        f"{CREATE} (a BIGINT NOT NULL, x AS a + 1, c INT, y AS a + 2, z AS a + 3) "
        "AS SELECT * FROM t1"
    )
    assert visible(world) == ["a", "x", "b", "c", "y", "z", "d"]


def test_virtual_metadata_is_over_the_stored_files(world: World) -> None:
    world.execute(f"{CREATE} (f STRING METADATA FROM 'file_name' VIRTUAL) AS SELECT * FROM t1")
    [found] = world.definition("m").derived
    assert (found.metadata_key, found.type) == ("file_name", "string")


def test_computed_columns_may_use_virtual_metadata(world: World) -> None:
    world.execute(
        f"{CREATE} (file_size BIGINT METADATA VIRTUAL, x AS file_size + a) AS SELECT * FROM t1"
    )
    [request] = world.engine.storage.checked
    assert request.columns.names() == ("a", "b", "c", "d", "file_size")


def test_unknown_metadata_is_refused_with_what_there_is(world: World) -> None:
    problem = refusal(world, f"{CREATE} (m2 STRING METADATA VIRTUAL) AS SELECT * FROM t1")
    assert problem.code == Code.MT_METADATA_KEY.name
    assert "file_modification_time" in problem.message


def test_virtual_metadata_of_another_type_is_refused(world: World) -> None:
    list_ = "(f INT METADATA FROM 'file_size' VIRTUAL)"
    problem = refusal(world, f"{CREATE} {list_} AS SELECT * FROM t1")
    assert problem.code == Code.MT_INCOMPATIBLE_TYPE.name


def test_persisted_metadata_comes_from_the_query_and_keeps_its_key(world: World) -> None:
    world.execute(f"{CREATE} (b STRING METADATA FROM 'k') AS SELECT * FROM t1")
    assert world.definition("m").persisted_metadata == {"b": "k"}
    assert world.definition("m").derived == ()


def test_a_derived_column_cannot_have_the_name_of_another(world: World) -> None:
    problem = refusal(world, f"{CREATE} (b AS upper(d)) AS SELECT * FROM t1")
    assert problem.code == Code.MT_DUPLICATE_COLUMN.name


def test_a_watermark_is_stored_and_checked(world: World) -> None:
    late = "w - INTERVAL '2' SECOND"
    world.execute(f"{CREATE} (w AS now(), WATERMARK FOR w AS {late}) AS SELECT * FROM t1")
    assert world.definition("m").watermark == Watermark(column="w", expression=late)
    assert late in [request.watermark for request in world.engine.storage.checked]
    problem = refusal(
        world, "CREATE MATERIALIZED TABLE n (WATERMARK FOR ts AS ts) AS SELECT * FROM t1"
    )
    assert problem.code == Code.MT_WATERMARK_COLUMN.name
    assert "a, b, c, d" in problem.message


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("BY HASH(a) INTO 4 BUCKETS", Distribution(kind="HASH", columns=("a",), buckets=4)),
        ("BY (a)", Distribution(columns=("a",))),
        ("INTO 4 BUCKETS", Distribution(buckets=4)),
        ("BY RANGE(a)", Distribution(kind="RANGE", columns=("a",))),
    ],
)
def test_a_distribution_is_stored(world: World, clause: str, expected: Distribution) -> None:
    world.execute(f"{CREATE} DISTRIBUTED {clause} AS SELECT * FROM t1")
    assert world.definition("m").distribution == expected


def test_an_expression_that_spark_refuses_is_named(world: World) -> None:
    world.engine.storage.unusable["nope(b)"] = ServerError(
        code="UNRESOLVED_ROUTINE", sqlstate="42883", message="Cannot resolve nope.", hint="Look."
    )
    problem = refusal(world, f"{CREATE} (x AS nope(b)) AS SELECT * FROM t1")
    assert problem.code == Code.MT_COLUMN_EXPRESSION.name
    assert problem.message == "The expression of x is invalid: Cannot resolve nope."


def test_expectations_are_stored_and_checked(world: World) -> None:
    world.execute(f"{CREATE} (CONSTRAINT positive EXPECT (c > 0)) AS SELECT * FROM t1")
    assert [e.name for e in world.definition("m").expectations] == ["positive"]
    assert world.engine.storage.checked[0].conditions == ("c > 0",)


def test_repeated_names_are_an_error_in_strict_mode(world: World) -> None:
    query = produces(world, "SELECT a, A FROM t1", column("a"), column("A"), source="t1")
    world.execute("SET materialized-table.duplicate-columns.strict=true")
    problem = refusal(world, f"{CREATE} AS {query}")
    assert problem.code == Code.MT_DUPLICATE_COLUMN.name


def test_drop_removes_view_and_storage(world: World) -> None:
    world.execute(f"{CREATE} (x AS UPPER(b)) AS SELECT * FROM t1")
    world.execute("DROP MATERIALIZED TABLE m")
    assert (world.engine.storage.tables, world.engine.storage.views) == ({}, {})


def test_a_plain_table_of_the_name_stays_when_a_view_is_wanted(world: World) -> None:
    world.execute(f"{CREATE} AS SELECT * FROM t1")
    taken = dict(world.engine.storage.tables)
    world.catalog.drop(world.table("m").id)
    problem = refusal(world, f"{CREATE} (x AS UPPER(b)) AS SELECT * FROM t1")
    assert problem.code == Code.MT_ALREADY_EXISTS.name
    assert world.engine.storage.tables == taken
