"""What a view records of the connector's table that it is, and what another table takes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.connectors.test_sources import KAFKA
from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable
from tidegate_server.core.connectors.definition import DEFINITION_PROPERTY, definition_of
from tidegate_server.core.connectors.merging import DEFAULT, Feature, MergeError, Merging, merge
from tidegate_server.core.connectors.tables import connector_of, is_endless, stream_query
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.clauses import Watermark
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.core.sql.external.like import (
    merged_sql,
    plain_definition,
    read_definition,
)
from tidegate_server.core.sql.external.statements import CreateTableLike
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.core.sql.streams import find_stream

COLUMNS = (
    "id BIGINT NOT NULL COMMENT 'it''s', `a b` ROW<x INT>, at TIMESTAMP(3), day AS date_format(at, "
    "'yyyy') COMMENT 'c', part INT METADATA FROM 'partition' VIRTUAL, "
    "WATERMARK FOR at AS at - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED"
)
OPTIONS = f"{KAFKA}, 'format' = 'json', 'properties.client.id' = '$(*/ \\ x'"


def created(text: str) -> SparkStatement:
    statement = parse(text)
    assert isinstance(statement, SparkStatement)
    return statement


def like(text: str) -> CreateTableLike:
    statement = parse(text)
    assert isinstance(statement, CreateTableLike)
    return statement


def recorded(text: str) -> str:
    """Return the definition in the property that a statement sets."""
    start = text.index(f"'{DEFINITION_PROPERTY}' = '") + len(DEFINITION_PROPERTY) + 6
    quoted = text[start : text.index(") AS SELECT ", start)]
    end = quoted.find("', 'connector.")
    quoted = quoted[: end if end >= 0 else -1]
    return quoted.replace("\\'", "'").replace("\\\\", "\\")


def test_a_definition_is_read_as_it_was_written() -> None:
    text = created(f"CREATE TABLE t ({COLUMNS}) WITH ({OPTIONS})").text
    found = read_definition(recorded(text))
    assert [each.name for each in found.columns] == ["id", "a b", "at", "day", "part"]
    assert found.columns[0].comment == "it's" and not found.columns[0].nullable
    assert found.columns[3].expression == "date_format(at, 'yyyy')"
    assert (found.columns[4].metadata, found.columns[4].virtual) == ("partition", True)
    assert found.watermark == Watermark(column="at", expression="at - INTERVAL '5' SECOND")
    assert found.primary_key == ("id",)
    again = created(f"CREATE TABLE t {recorded(text)}").text
    assert again == text


def test_a_temporary_table_records_its_definition_in_its_text() -> None:
    text = created(f"CREATE TEMPORARY TABLE t ({COLUMNS}) WITH ({OPTIONS})").text
    query = f"SELECT {text.partition(' AS SELECT ')[2]}"
    definition = definition_of(query, {})
    permanent = created(f"CREATE TABLE t ({COLUMNS}) WITH ({OPTIONS})").text
    assert definition == recorded(permanent)
    assert connector_of(query, {}) == "kafka" and is_endless(query, {})
    assert find_stream(stream_query(query, {}) or "") is not None
    generated = created("CREATE TEMPORARY TABLE t (a INT) WITH ('connector' = 'datagen')").text
    query = f"SELECT {generated.partition(' AS SELECT ')[2]}"
    assert definition_of(query, {}) == "(`a` INT) WITH ('connector' = 'datagen')"
    assert connector_of(query, {}) == "datagen" and is_endless(query, {})
    assert stream_query(query, {}) is not None
    assert definition_of("SELECT 1", {}) is None
    assert definition_of(query, {"connector": "datagen"}) is None


def test_a_watermark_produces_a_warning_and_is_checked_before_the_table_is_created() -> None:
    found = created(f"CREATE TABLE t ({COLUMNS}) WITH ({OPTIONS})")
    warnings = [remark.partition(" has ")[0] for remark in found.remarks]
    assert warnings == ["The primary key (id)", "The WATERMARK FOR at"]
    checked = found.row_time
    assert checked is not None and checked.columns.names() == ("id", "a b", "at", "part")
    assert checked.listed == "`id`, `a b`, `at`, date_format(at, 'yyyy') AS `day`, `part`"
    assert (checked.line, checked.character) == (1, 16)


# ---- LIKE --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("", DEFAULT),
        ("(INCLUDING ALL)", dict.fromkeys(Feature, Merging.INCLUDING)),
        (
            "(EXCLUDING ALL INCLUDING GENERATED)",
            {
                **dict.fromkeys(Feature, Merging.EXCLUDING),
                Feature.GENERATED: Merging.INCLUDING,
            },
        ),
        (
            "(OVERWRITING WATERMARKS EXCLUDING DISTRIBUTION)",
            {
                **DEFAULT,
                Feature.WATERMARKS: Merging.OVERWRITING,
                Feature.DISTRIBUTION: Merging.EXCLUDING,
            },
        ),
    ],
)
def test_features_are_merged_as_they_are_written(
    features: str, expected: dict[Feature, Merging]
) -> None:
    statement = like(f"CREATE TABLE t WITH ('a' = 'b') LIKE c.s.o {features};")
    assert statement.how == expected
    assert (statement.other, statement.bare) == (("c", "s", "o"), False)
    assert (statement.line, statement.column) == (1, 38)


@pytest.mark.parametrize(
    ("features", "column", "expected"),
    [
        ("()", 42, "INCLUDING, EXCLUDING or OVERWRITING"),
        ("(INCLUDING)", 51, "CONSTRAINTS"),
        ("(INCLUDING OPTION)", 52, "Did you mean OPTIONS?"),
        ("(OVERWRITING ALL)", 54, "GENERATED, METADATA, OPTIONS, WATERMARKS"),
        ("(OVERWRITING PARTITIONS)", 54, "after OVERWRITING one of"),
        ("(INCLUDING ALL EXCLUDING ALL)", 66, "each once"),
        ("(INCLUDING ALL) x", 57, "the end of the statement"),
    ],
)
def test_features_that_there_are_not_are_rejected(
    features: str, column: int, expected: str
) -> None:
    with pytest.raises(ServerError, match="PARSE_SYNTAX") as caught:
        parse(f"CREATE TABLE t WITH ('a' = 'b') LIKE oo {features}")
    assert expected in str(caught.value)
    assert caught.value.column == column


def test_a_statement_without_a_clause_of_flink_may_be_sparks() -> None:
    bare = like("CREATE TABLE IF NOT EXISTS t LIKE o")
    assert bare.bare and bare.if_not_exists
    assert not like("CREATE TABLE t LIKE o (INCLUDING ALL)").bare
    assert like("CREATE TEMPORARY TABLE t (WATERMARK FOR a AS a) LIKE o").own.watermark is not None
    for text in (
        "CREATE TABLE t LIKE o USING delta",
        "CREATE TABLE t LIKE o TBLPROPERTIES ('a' = 'b')",
        "CREATE TABLE t AS SELECT * FROM o WHERE a LIKE b",
        "CREATE TABLE t USING delta SELECT * FROM o WHERE a LIKE b",
        "CREATE TABLE t (a INT) USING delta",
    ):
        assert created(text).text == text
    assert created("CREATE TABLE t (a INT) WITH ('x' = 'y') AS SELECT 'a' LIKE b").facts


OTHER = ConnectorTable(
    columns=(
        ConnectorColumn(name="a", type="INT"),
        ConnectorColumn(name="b", expression="a + 1"),
        ConnectorColumn(name="m", type="INT", metadata="offset"),
    ),
    options={"connector": "kafka", "topic": "t"},
    primary_key=("a",),
    partition_keys=("p",),
    watermark=Watermark(column="a", expression="a"),
)
NEW = ConnectorTable(
    columns=(
        ConnectorColumn(name="B", expression="a + 2"),
        ConnectorColumn(name="M", type="BIGINT", metadata="partition"),
        ConnectorColumn(name="c", type="STRING"),
    ),
    options={"topic": "u", "format": "json"},
    watermark=Watermark(column="b", expression="b"),
)
OVER = {
    **DEFAULT,
    **dict.fromkeys((Feature.GENERATED, Feature.METADATA, Feature.WATERMARKS), Merging.OVERWRITING),
}


def test_what_is_overwritten_stays_in_its_place() -> None:
    found = merge(OTHER, NEW, OVER)
    assert found == ConnectorTable(
        columns=(OTHER.columns[0], *NEW.columns),
        options={"connector": "kafka", "topic": "u", "format": "json"},
        primary_key=("a",),
        partition_keys=("p",),
        watermark=NEW.watermark,
    )


def test_what_is_excluded_is_not_taken() -> None:
    found = merge(OTHER, NEW, dict.fromkeys(Feature, Merging.EXCLUDING))
    assert found == replace(NEW, columns=(OTHER.columns[0], *NEW.columns))


@pytest.mark.parametrize(
    ("own", "how", "reason"),
    [
        ({"columns": NEW.columns[:1]}, DEFAULT, "column B, OVERWRITING GENERATED"),
        ({"columns": NEW.columns[1:2]}, DEFAULT, "column M, OVERWRITING METADATA"),
        (
            {"columns": (ConnectorColumn(name="A", type="INT"),)},
            OVER,
            "column A, give it another name",
        ),
        ({"columns": (ConnectorColumn(name="m", expression="1"),)}, OVER, "column m, another name"),
        ({"watermark": NEW.watermark}, DEFAULT, "a WATERMARK, EXCLUDING WATERMARKS or OVER"),
        ({"primary_key": ("a",)}, OVER, "a primary key, EXCLUDING CONSTRAINTS in brackets"),
        ({"partition_keys": ("a",)}, OVER, "partitions, EXCLUDING PARTITIONS in brackets"),
        (
            {"options": NEW.options},
            {**DEFAULT, Feature.OPTIONS: Merging.INCLUDING},
            "the option 'topic', OVERWRITING OPTIONS",
        ),
    ],
)
def test_what_both_tables_define_is_an_error(
    own: dict[str, object], how: dict[Feature, Merging], reason: str
) -> None:
    empty = ConnectorTable(columns=(), options={})
    with pytest.raises(MergeError) as caught:
        merge(OTHER, replace(empty, **own), how)  # type: ignore[arg-type]
    what, hint = reason.split(", ", 1)
    assert what in str(caught.value)
    assert hint in caught.value.hint


def test_the_columns_of_a_table_of_spark_are_taken() -> None:
    columns = Schema(
        (
            Column(name="k", type="bigint", nullable=False, comment="key"),
            Column(name="s", type="struct<aName:int>"),
            Column(name="at", type="timestamp_ntz"),
        )
    )
    other = plain_definition(columns, ("k",), ())
    statement = like(
        "CREATE TEMPORARY TABLE t (up AS k + 1) COMMENT 'c' WITH ('connector' = 'datagen') LIKE o"
    )
    sql = merged_sql(statement, other)
    assert sql == (
        "CREATE TEMPORARY TABLE `t` (`k` BIGINT NOT NULL COMMENT 'key', `s` STRUCT<aName: INT>, "
        "`at` TIMESTAMP_NTZ, `up` AS k + 1, PRIMARY KEY (`k`) NOT ENFORCED) COMMENT 'c' "
        "WITH ('connector' = 'datagen')"
    )
    with pytest.raises(
        ServerError, match="cannot be created like o: it already has the column"
    ) as e:
        merged_sql(like("CREATE TABLE t\n(k INT) WITH () LIKE o"), other)
    assert (e.value.code, e.value.line, e.value.column) == ("INVALID_LIKE", 2, 22)
