"""Storage that changes its schema, name and view, on real Delta tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.contract.examples import table
from tests.engine.conftest import Session
from tests.engine.test_refresh import Materialized
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import (
    Analysis,
    ExpressionsChecked,
    Inspected,
    Rewritten,
    TableList,
)
from tidegate_server.core.messages.requests import (
    Analyze,
    CheckExpressions,
    DropTable,
    DropView,
    EvolveTable,
    InspectTable,
    ListTables,
    PutView,
    RenameTable,
    RewriteNames,
    ViewColumn,
)
from tidegate_server.core.model.clauses import Expectation, Violation
from tidegate_server.core.model.names import TableName, storage_name
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.definition.derived import views

pytestmark = pytest.mark.spark

QUERY = "SELECT k, sum(n) AS total FROM t GROUP BY k"


Make = Callable[..., Materialized]


@pytest.fixture
def make(session: Session, schema: str) -> Iterator[Make]:
    """Makes materialized tables that are gone before their schema is."""
    session.execute("CREATE TABLE t (k STRING NOT NULL, n INT) USING delta")
    session.execute("INSERT INTO t VALUES ('a', 1), ('a', 2), ('b', 3)")
    made: list[Materialized] = []

    def make(*keys: str, query: str = QUERY, within: str = schema) -> Materialized:
        made.append(Materialized(session, within, query, keys))
        return made[-1]

    yield make
    for mt in reversed(made):
        session.client.call(DropView(name=mt.name, table_id=mt.id))
        for name in (mt.name, storage_name(mt.name), replace(mt.name, table="other")):
            session.client.call(DropTable(name=name, table_id=mt.id))


def evolution(mt: Materialized, *columns: Column, **changed: object) -> EvolveTable:
    request = EvolveTable(
        name=mt.name,
        table_id=mt.id,
        schema=Schema(columns),
        comment="changed",
        properties={"tidegate.definition": "2"},
    )
    return replace(request, **changed)  # type: ignore[arg-type]


def history(session: Session, table: str) -> list[str]:
    return [str(row[4]) for row in session.rows(f"DESCRIBE HISTORY {table}")]


def test_columns_are_added_and_taken_back_each_in_one_commit(make: Make, session: Session) -> None:
    mt = make("k")
    mt.refresh()
    k, total = mt.analysis.schema
    added = Column(name="e", type="int", nullable=False, comment="new")
    session.client.call(evolution(mt, k, total, added))
    assert mt.rows() == [("a", 3, None), ("b", 3, None)]
    assert history(session, "mt")[0] == "SET TBLPROPERTIES"
    described = {row[0]: row for row in session.rows("DESCRIBE mt")}
    assert described["e"] == ("e", "int", "new")
    session.client.call(
        evolution(mt, *mt.analysis.schema, properties={"tidegate.definition": None})
    )
    assert mt.rows() == [("a", 3), ("b", 3)]
    properties = dict(session.rows("SHOW TBLPROPERTIES mt"))
    assert "tidegate.definition" not in properties
    assert properties["tidegate.id"] == mt.id


def test_a_refresh_ordered_before_new_columns_leaves_them_null(
    make: Make, session: Session
) -> None:
    mt = make()
    order = mt.order()
    session.client.call(evolution(mt, *mt.analysis.schema, Column(name="e", type="int")))
    mt.run(order)
    assert mt.rows() == [("a", 3, None), ("b", 3, None)]


def test_another_definition_version_computes_everything_anew(make: Make, session: Session) -> None:
    mt = make()
    mt.refresh()
    session.client.call(evolution(mt, *mt.analysis.schema, Column(name="e", type="int")))
    analysis = session.client.call(
        Analyze(session_id=session.id, sql="SELECT k, sum(n) AS total, 7 AS e FROM t GROUP BY k")
    )
    assert isinstance(analysis, Analysis)
    outcome = mt.refresh(
        definition_version=2,
        expanded_query=analysis.expanded_query,
        columns=analysis.schema.names(),
    )
    assert outcome.plan.reason_code == "DEFINITION_CHANGED"
    assert mt.rows() == [("a", 3, 7), ("b", 3, 7)]


def test_columns_are_reordered_and_widened(make: Make, session: Session) -> None:
    mt = make()
    session.execute("CREATE TABLE w (c INT, d STRING) USING delta")
    session.execute("INSERT INTO w VALUES (1, 'x')")
    request = evolution(
        mt,
        Column(name="d", type="string"),
        Column(name="c", type="bigint"),
        name=replace(mt.name, table="w"),
        adopts="",
        widened=("c",),
    )
    session.client.call(request)
    session.execute("INSERT INTO w VALUES ('y', 10000000000)")
    assert sorted(session.rows("SELECT * FROM w")) == [("x", 1), ("y", 10000000000)]


def test_a_table_of_another_owner_is_not_touched(make: Make, session: Session) -> None:
    mt = make()
    before = history(session, "mt")
    with pytest.raises(ServerError) as caught:
        session.client.call(evolution(mt, *mt.analysis.schema, table_id="other"))
    assert caught.value.code == "MT_DATA_LOST"
    assert history(session, "mt") == before


def test_names_that_need_column_mapping_evolve(make: Make, session: Session) -> None:
    mt = make(query="SELECT k AS `a b`, n AS `c d` FROM t")
    added = Column(name="e f", type="int")
    session.client.call(evolution(mt, *mt.analysis.schema, added))
    mt.refresh()
    assert mt.rows() == [("a", 1, None), ("a", 2, None), ("b", 3, None)]


def test_a_view_over_its_storage_is_read_refreshed_and_pinned(make: Make, session: Session) -> None:
    mt = make()
    behind = storage_name(mt.name)
    session.client.call(RenameTable(name=mt.name, new_name=behind, table_id=mt.id))
    view = PutView(
        name=mt.name,
        table_id=mt.id,
        storage=behind,
        columns=(
            ViewColumn(name="loud", expression="upper(k) -- loud", comment="it's loud"),
            ViewColumn(name="k"),
            ViewColumn(name="total"),
            ViewColumn(
                name="size", expression="CAST(_metadata.`file_size` AS bigint)", metadata=True
            ),
        ),
        comment="a view",
    )
    session.client.call(view)
    session.client.call(view)
    mt.refresh(name=behind)
    assert sorted(session.rows("SELECT loud, k, total, size > 0 FROM mt")) == [
        ("A", "a", 3, True),
        ("B", "b", 3, True),
    ]
    query = "SELECT loud, total FROM mt"
    analysis = session.client.call(Analyze(session_id=session.id, sql=query))
    assert isinstance(analysis, Analysis)
    assert [(s.name, s.materialized_table) for s in analysis.sources] == [(mt.name, True)]
    session.execute(f"CREATE SCHEMA {mt.name.schema}_other")
    reader = make(query=query, within=f"{mt.name.schema}_other")
    reader.refresh()
    assert sorted(session.rows(f"SELECT * FROM {reader.name.quoted()}")) == [("A", 3), ("B", 3)]
    # The same id as before it was renamed: what its readers recorded stays true.
    assert reader.analysis.sources[0].table_id == mt.created.table_id
    session.client.call(DropView(name=mt.name, table_id="other"))
    assert session.rows("SELECT count(*) FROM mt") == [(2,)]
    session.client.call(DropView(name=mt.name, table_id=mt.id))
    session.client.call(DropTable(name=behind, table_id=mt.id))
    session.client.call(DropTable(name=reader.name, table_id=reader.id))
    session.execute(f"DROP SCHEMA {reader.name.schema}")
    assert session.client.call(InspectTable(name=mt.name)) == Inspected(format=None)


def test_renaming_twice_is_harmless_and_inspecting_tells_the_place(
    make: Make, session: Session
) -> None:
    mt = make("k")
    mt.refresh()
    new = replace(mt.name, table="other")
    session.client.call(RenameTable(name=mt.name, new_name=new, table_id=mt.id))
    session.client.call(RenameTable(name=mt.name, new_name=new, table_id=mt.id))
    found = session.client.call(InspectTable(name=new))
    assert isinstance(found, Inspected)
    assert (found.format, found.partition_keys, found.materialized_id) == ("delta", ("k",), mt.id)
    assert found.schema == mt.analysis.schema
    assert found.location == mt.created.location
    assert sorted(session.rows("SELECT * FROM other")) == [("a", 3), ("b", 3)]


def check_expressions(session: Session, **asked: object) -> Schema:
    columns = Schema((Column(name="a", type="int"), Column(name="b", type="string")))
    request = CheckExpressions(session_id=session.id, columns=columns)
    answer = session.client.call(replace(request, **asked))  # type: ignore[arg-type]
    assert isinstance(answer, ExpressionsChecked)
    return answer.computed


def test_expressions_have_types(session: Session) -> None:
    made = check_expressions(
        session,
        computed=(("x", "upper(b) -- loud"), ("y", "a + 1")),
        watermark="y",
        conditions=("a > 0",),
    )
    assert [(c.name, c.type) for c in made] == [("x", "string"), ("y", "int")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("sum(a)", "more than its own row"),
        ("row_number() OVER (ORDER BY a)", "more than its own row"),
        ("sum(a) OVER (PARTITION BY b)", "more than its own row"),
        ("explode(array(a))", "several rows for one"),
        ("(SELECT max(k) FROM range(3) AS r(k) JOIN missing)", "reads a table"),
    ],
)
def test_expressions_look_at_their_own_row_alone(
    session: Session, expression: str, reason: str
) -> None:
    for asked in (
        {"computed": (("x", expression),)},
        {"watermark": expression},
        {"conditions": (f"{expression} > 0",)},
    ):
        if "explode" in expression and "computed" not in asked:
            continue
        with pytest.raises(ServerError) as caught:
            check_expressions(session, **asked)
        assert (caught.value.code, reason in caught.value.message) == ("MT_COLUMN_EXPRESSION", True)


def test_names_are_replaced_where_a_query_reads_the_table(session: Session) -> None:
    name = TableName("spark_catalog", "s", "m")
    queries = (
        "SELECT m.a, 's.m' AS t FROM `spark_catalog`.`s`.`m` WHERE a > 1",
        "SELECT x.a FROM spark_catalog.s.m AS x",
        "SELECT a FROM spark_catalog.s.v",
    )
    answer = session.client.call(
        RewriteNames(queries=queries, name=name, new_name=replace(name, table="n"))
    )
    assert answer == Rewritten(
        queries=(
            "SELECT m.a, 's.m' AS t FROM `spark_catalog`.`s`.`n` AS `m` WHERE a > 1",
            "SELECT x.a FROM `spark_catalog`.`s`.`n` AS x",
            None,
        )
    )


def test_rows_held_out_stand_in_a_view_of_their_own(make: Make, session: Session) -> None:
    mt = make()
    behind = storage_name(mt.name)
    session.client.call(RenameTable(name=mt.name, new_name=behind, table_id=mt.id))
    long = f"concat(total, '{'x' * 2600}')"
    conditions = {"p's `é`": "k <> 'it''s \\' \"é\"'\n AND total > 99", "long": f"{long} IS NULL"}
    held = [
        Expectation(name=name, condition=text, violation=Violation.QUARANTINE)
        for name, text in conditions.items()
    ]
    columns = (Column(name="k", type="string"), Column(name="total", type="bigint"))
    defined = table(
        id=mt.id,
        name=mt.name,
        schema=Schema(columns),
        storage_table=behind,
        expectations=(*held, Expectation(name="w", condition="total > 1000")),
    )
    requests = views(defined)
    for view in (*requests, *requests):
        session.client.call(view)
    mt.refresh(name=behind)
    assert session.rows("SELECT * FROM mt") == []
    found = session.rows("SELECT * FROM mt__quarantine ORDER BY k")
    assert [row[:2] for row in found] == [("a", 3), ("b", 3)]
    assert json.loads(str(found[0][2])) == list(conditions)
    session.execute("INSERT INTO t VALUES ('c', NULL)")
    mt.refresh(name=behind)
    assert session.rows("SELECT k, total FROM mt") == [("c", None)]
    listed = session.client.call(ListTables(schema=mt.name.schema))
    assert isinstance(listed, TableList)
    comments = {info.name: info.comment for info in listed.tables}
    assert {view.name: comments[view.name] for view in requests} == {
        view.name: view.comment for view in requests
    }
    query = "SELECT k, __violated FROM mt__quarantine"
    analysis = session.client.call(Analyze(session_id=session.id, sql=query))
    assert isinstance(analysis, Analysis)
    assert [(s.name, s.materialized_table) for s in analysis.sources] == [(mt.name, True)]
    with pytest.raises(ServerError):
        session.rows("SELECT * FROM mt VERSION AS OF 1")
    assert len(session.rows("SELECT * FROM __tidegate_mt VERSION AS OF 1")) == 2
    for view in requests:
        session.client.call(DropView(name=view.name, table_id=mt.id))
