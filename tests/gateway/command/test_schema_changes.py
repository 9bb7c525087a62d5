"""ALTER ... ADD, MODIFY, DROP: places, kinds, and everything that is refused."""

from __future__ import annotations

import pytest

from tests.gateway.command.fakes import NOW, T1, World, name
from tests.gateway.command.tables import ALTER, BASE, META, NOPK, WM, column, produces, refusal
from tidegate_server.core.errors import Code, ServerError
from tidegate_server.core.messages.requests import EvolveTable
from tidegate_server.core.model.clauses import Distribution, Watermark
from tidegate_server.core.model.runs import RefreshRun, Trigger
from tidegate_server.core.model.states import RunState


@pytest.fixture
def tables(world: World) -> World:
    produces(world, "SELECT a, b, c, d, d AS m_p FROM t3", *T1, column("m_p"))
    for statement in (BASE, NOPK, WM, META):
        world.execute(statement)
    world.execute("CREATE MATERIALIZED TABLE cont AS SELECT * FROM t1")
    return world


def visible(world: World, table: str) -> str:
    return ",".join(column.name for column in world.definition(table).visible)


def test_a_computed_column_goes_behind_another_and_carries_a_watermark(tables: World) -> None:
    tables.engine.storage.types["current_timestamp"] = "timestamp"
    tables.execute(
        f"{ALTER} base ADD (q AS current_timestamp AFTER b, "
        "WATERMARK FOR q AS q - INTERVAL '1' SECOND)"
    )
    table = tables.table("base")
    assert visible(tables, "base") == "a,b,q,c,d"
    assert table.definition.watermark == Watermark(column="q", expression="q - INTERVAL '1' SECOND")
    assert table.definition.derived[0].type == "timestamp"
    assert table.definition.schema == T1
    view = tables.engine.storage.views[name("base")]
    assert [c.name for c in view.columns] == ["a", "b", "q", "c", "d"]
    assert view.storage == table.storage == name("__tidegate_base")
    assert name("base") not in tables.engine.storage.tables


def test_columns_added_first_stand_in_reverse(tables: World) -> None:
    tables.execute(f"{ALTER} base ADD (q AS upper(b) FIRST, q2 AS lower(b) FIRST)")
    assert visible(tables, "base") == "q2,q,a,b,c,d"


def test_a_column_of_stored_files_is_added(tables: World) -> None:
    tables.execute(f"{ALTER} base ADD size BIGINT METADATA FROM '_metadata.file_size' VIRTUAL")
    [added] = tables.engine.storage.views[name("base")].columns[4:]
    assert (added.expression, added.metadata) == ("CAST(_metadata.`file_size` AS bigint)", True)


def test_dropping_the_last_derived_column_leaves_a_table(tables: World) -> None:
    tables.execute(f"{ALTER} base ADD q AS upper(b)")
    tables.execute(f"{ALTER} base DROP q")
    assert tables.table("base").storage_table is None
    assert name("base") not in tables.engine.storage.views
    assert name("base") in tables.engine.storage.tables


def test_modify_moves_and_comments_a_stored_column(tables: World) -> None:
    tables.execute(f"{ALTER} base MODIFY c INT COMMENT 'count' FIRST")
    table = tables.table("base")
    assert visible(tables, "base") == "c,a,b,d"
    assert table.definition.schema.columns[0].comment == "count"
    assert (
        table.definition.expanded_query
        == "SELECT `c`, `a`, `b`, `d` FROM (\nSELECT * FROM spark_catalog.d.t1\n)"
    )
    assert tables.engine.storage.tables[name("base")].schema == table.definition.schema


def test_modify_widens_a_stored_column(tables: World) -> None:
    tables.execute(f"{ALTER} base MODIFY c BIGINT")
    table = tables.table("base")
    assert table.definition.schema.columns[2].type == "bigint"
    assert "CAST(`c` AS bigint) AS `c`" in table.definition.expanded_query
    [request] = tables.engine.requests_of(EvolveTable)
    assert isinstance(request, EvolveTable)
    assert request.widened == ("c",)


def test_modify_replaces_expressions_key_watermark_and_distribution(tables: World) -> None:
    tables.execute(f"{ALTER} wm MODIFY (t AS now() FIRST, WATERMARK FOR t AS t)")
    table = tables.table("wm")
    assert (table.definition.derived[0].expression, table.definition.derived[0].position) == (
        "now()",
        0,
    )
    assert table.definition.watermark == Watermark(column="t", expression="t")
    tables.execute(f"{ALTER} meta MODIFY DISTRIBUTION INTO 3 BUCKETS")
    assert tables.definition("meta").distribution == Distribution(buckets=3)
    tables.execute(f"{ALTER} base MODIFY CONSTRAINT other PRIMARY KEY (a) NOT ENFORCED")
    key = tables.definition("base").primary_key
    assert key is not None
    assert key.name == "other"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("BY HASH(a) INTO 6 BUCKETS", Distribution(kind="HASH", columns=("a",), buckets=6)),
        ("BY RANGE(a) INTO 6 BUCKETS", Distribution(kind="RANGE", columns=("a",), buckets=6)),
        ("BY (a, d)", Distribution(columns=("a", "d"))),
    ],
)
def test_a_distribution_is_added(tables: World, change: str, expected: Distribution) -> None:
    tables.execute(f"{ALTER} base ADD DISTRIBUTION {change}")
    assert tables.definition("base").distribution == expected


def test_a_key_is_added_and_dropped_by_word_and_by_name(tables: World) -> None:
    for dropping in ("PRIMARY KEY", "CONSTRAINT ct1"):
        tables.execute(f"{ALTER} nopk ADD CONSTRAINT ct1 PRIMARY KEY (a) NOT ENFORCED")
        assert tables.definition("nopk").primary_key is not None
        tables.execute(f"{ALTER} nopk DROP {dropping}")
        assert tables.definition("nopk").primary_key is None


def test_watermark_distribution_and_virtual_column_are_dropped(tables: World) -> None:
    tables.execute(f"{ALTER} wm DROP WATERMARK")
    tables.execute(f"{ALTER} meta DROP DISTRIBUTION")
    tables.execute(f"{ALTER} meta DROP m")
    assert tables.definition("wm").watermark is None
    assert tables.definition("meta").distribution is None
    assert [c.name for c in tables.definition("meta").derived] == ["t"]


REFUSED = [
    ("base ADD b AS upper(d)", Code.MT_ALTER_SCHEMA_EXISTS),
    ("base ADD PRIMARY KEY (b) NOT ENFORCED", Code.MT_ALTER_SCHEMA_EXISTS),
    ("nopk ADD PRIMARY KEY (b) NOT ENFORCED", Code.MT_PK_NULLABLE),
    ("wm ADD WATERMARK FOR t AS t", Code.MT_ALTER_SCHEMA_EXISTS),
    ("meta ADD DISTRIBUTION INTO 3 BUCKETS", Code.MT_ALTER_SCHEMA_EXISTS),
    ("base ADD q AS upper(b) AFTER nope", Code.MT_ALTER_SCHEMA_POSITION),
    ("base ADD q AS broken(b)", Code.MT_ALTER_SCHEMA_EXPRESSION),
    ("base ADD q INT", Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY),
    ("base ADD q INT METADATA", Code.MT_PERSISTED_COLUMN_NOT_IN_QUERY),
    ("base ADD q INT METADATA FROM 'nope' VIRTUAL", Code.MT_METADATA_KEY),
    ("base ADD WATERMARK FOR nope AS nope", Code.MT_WATERMARK_COLUMN),
    ("base ADD WATERMARK FOR b AS b", Code.MT_WATERMARK_TYPE),
    ("base ADD DISTRIBUTION BY RANDOM(a)", Code.PARSE_SYNTAX),
    ("base ADD DISTRIBUTION BY (h)", Code.MT_COLUMN_NOT_FOUND),
    ("base MODIFY c STRING", Code.MT_ALTER_SCHEMA_CAST),
    ("base MODIFY b STRING NOT NULL", Code.MT_ALTER_SCHEMA_CAST),
    ("base MODIFY c AS upper(b)", Code.MT_ALTER_SCHEMA_KIND),
    ("meta MODIFY m AS upper(b)", Code.MT_ALTER_SCHEMA_KIND),
    ("wm MODIFY t TIMESTAMP", Code.MT_ALTER_SCHEMA_KIND),
    ("base MODIFY nope INT", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("base MODIFY WATERMARK FOR a AS a", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("base MODIFY DISTRIBUTION INTO 3 BUCKETS", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("nopk MODIFY PRIMARY KEY (a) NOT ENFORCED", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("base DROP nope", Code.MT_DROP_COLUMN_NOT_FOUND),
    ("wm DROP (t, T)", Code.MT_DROP_COLUMN_REPEATED),
    ("meta DROP d", Code.MT_DROP_COLUMN_PARTITION_KEY),
    ("meta DROP a", Code.MT_DROP_COLUMN_PRIMARY_KEY),
    ("meta DROP b", Code.MT_DROP_COLUMN_DISTRIBUTION),
    ("wm DROP t", Code.MT_DROP_COLUMN_WATERMARK),
    ("meta DROP m_p", Code.MT_DROP_COLUMN_QUERY),
    ("base DROP c", Code.MT_DROP_COLUMN_QUERY),
    ("nopk DROP PRIMARY KEY", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("base DROP CONSTRAINT nope", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("base DROP WATERMARK", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("base DROP DISTRIBUTION", Code.MT_ALTER_SCHEMA_NOT_FOUND),
    ("base ADD (WATERMARK FOR a AS a, WATERMARK FOR b AS b)", Code.MT_WATERMARK_MULTIPLE),
    ("wm MODIFY (WATERMARK FOR a AS a, WATERMARK FOR b AS b)", Code.MT_WATERMARK_MULTIPLE),
]


@pytest.mark.parametrize(("change", "code"), REFUSED, ids=[change for change, _ in REFUSED])
def test_what_does_not_fit_is_refused(tables: World, change: str, code: Code) -> None:
    tables.engine.storage.unusable["broken(b)"] = ServerError(
        code="UNRESOLVED_ROUTINE", sqlstate="42883", message="no such function"
    )
    assert refusal(tables, f"{ALTER} {change}").code == code.name


def test_a_computed_column_over_a_dropped_one_is_noticed(tables: World) -> None:
    tables.engine.storage.unusable["m + 1"] = ServerError(
        code="UNRESOLVED_COLUMN", sqlstate="42703", message="m cannot be resolved"
    )
    text = "current_timestamp"
    tables.execute(f"{ALTER} meta MODIFY t AS {text}")
    tables.engine.storage.unusable[text] = tables.engine.storage.unusable["m + 1"]
    problem = refusal(tables, f"{ALTER} meta DROP m")
    assert problem.code == Code.MT_ALTER_SCHEMA_EXPRESSION.name


def test_a_continuous_table_keeps_its_checkpoint_for_columns_evaluated_on_read(
    tables: World,
) -> None:
    found = tables.table("cont")
    tables.ledger.history.append(
        RefreshRun(
            refresh_id="r",
            table_id=found.id,
            table=found.name,
            definition_version=1,
            trigger=Trigger.INITIAL,
            state=RunState.SUCCEEDED,
            queued_at=NOW,
            requested_by="ann",
            server_id="server-1",
            epoch=4,
        )
    )
    tables.execute(f"{ALTER} cont ADD x AS upper(b)")
    assert tables.table("cont").state.checkpoint_floor == 0
    tables.execute(f"{ALTER} cont ADD PRIMARY KEY (a) NOT ENFORCED")
    assert tables.table("cont").state.checkpoint_floor == 4


def test_the_place_does_not_change_under_a_refresh(tables: World) -> None:
    tables.ledger.leases[tables.table("base").id] = "server-1/r"
    problem = refusal(tables, f"{ALTER} base ADD x AS upper(b)")
    assert problem.code == Code.MT_STATE.name
    assert "being refreshed" in problem.message
