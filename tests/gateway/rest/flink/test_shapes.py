"""What Flink's clients get of the result of each kind of statement."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate_server.core.model.types import Column, Schema, text_schema
from tidegate_server.gateway.rest.flink.shapes import SUCCESS, WITH_CONTENT, Shape, shape_of


def shape(*names: str, kind: str, has_rows: bool = True, messages: tuple[str, ...] = ()) -> Shape:
    return shape_of(text_schema(*names), kind, has_rows=has_rows, messages=messages)


@pytest.mark.parametrize("kind", ["SELECT", "WITH", "VALUES", "TABLE", "FROM", ""])
def test_queries_are_sent_as_they_are(kind: str) -> None:
    found = shape("namespace", kind=kind)
    assert (found.is_query, found.kind, found.column) == (True, WITH_CONTENT, None)
    assert found.schema.names() == ("namespace",)


@pytest.mark.parametrize(
    ("columns", "position", "name"),
    [
        (("namespace", "tableName", "isTemporary"), 1, "table name"),
        (("namespace", "viewName", "isTemporary"), 1, "view name"),
        (("namespace",), 0, "database name"),
        (("catalog",), 0, "catalog name"),
        (("catalog", "namespace"), 1, "current database name"),
        (("function",), 0, "function name"),
        (("createtab_stmt",), 0, "result"),
        (("plan",), 0, "result"),
        (("Results",), 0, "jars"),
    ],
)
def test_lists_have_flinks_only_column(columns: tuple[str, ...], position: int, name: str) -> None:
    found = shape(*columns, kind="SHOW")
    assert (found.is_query, found.kind) == (False, WITH_CONTENT)
    assert found.schema == Schema((Column(name=name, type="string", nullable=False),))
    batch = pa.RecordBatch.from_pydict({column: [column] for column in columns})
    assert found.take(batch).to_pydict() == {name: [columns[position]]}


def test_other_results_keep_their_columns() -> None:
    found = shape("name", "type", kind="DESCRIBE")
    assert (found.is_query, found.schema.names()) == (False, ("name", "type"))


def test_a_statement_without_rows_succeeds_silently() -> None:
    for found in (shape(kind="CREATE", has_rows=False), shape("key", "value", kind="SET OPTION")):
        assert (found.is_query, found.kind) == (False, SUCCESS)
        assert found.rows is not None
        assert found.rows.to_pydict() == {"result": ["OK"]}


def test_its_messages_are_rows_that_fit_on_a_screen() -> None:
    found = shape(kind="CREATE", has_rows=False, messages=("Warning: " + "ice " * 40, "Note: n"))
    assert found.kind == WITH_CONTENT
    assert found.rows is not None
    first, *lines = found.rows.to_pydict()["result"]
    assert (first, lines[-1]) == ("OK", "Note: n")
    assert " ".join(lines[:-1]).split() == ["Warning:", *["ice"] * 40]
    assert max(map(len, lines)) <= 100


def test_the_id_of_a_job_has_flinks_form() -> None:
    id = "3b817a5e-6509-4dd7-bd53-75af329da6db"
    found = shape_of(
        text_schema("job id"), "INSERT", has_rows=True, messages=("Note: n",), job_ids=[id]
    )
    assert (found.is_query, found.kind, found.job_id) == (False, WITH_CONTENT, id.replace("-", ""))
    assert found.rows is not None
    assert found.rows.to_pydict() == {"job id": [id.replace("-", "")]}
