"""Generators as SQL: expressions of Faker, values of datagen, and the statement for the view."""

from __future__ import annotations

import re

import pytest

from tidegate_server.core.connectors import datagen, faker
from tidegate_server.core.connectors.generators import RATE_PROPERTY
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.tables import stream_query
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.types import parse_type
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        ("#{number.numberBetween '0','1000'}", "CAST(0 + floor(rand() * 1000) AS BIGINT)"),
        ("#{Number.number_between '-5', '5'}", "CAST(-5 + floor(rand() * 10) AS BIGINT)"),
        ("#{bool.bool}", "(rand() < 0.5)"),
        ("no call", "'no call'"),
        ("", "''"),
        ("#{internet.uuid}-#{number.randomDigit}", None),
        ("it''s #{Options.option 'a','it''s'}", None),
    ],
)
def test_expressions(expression: str, sql: str | None) -> None:
    found = faker.expression_sql(expression)
    if sql is not None:
        assert found == sql
    else:
        assert found.startswith("concat(")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (
            "#{internet.domainNam}",
            "no provider internet.domainNam; did you mean internet.domainName?",
        ),
        ("#{qqqq}", "there is no provider qqqq"),
        ("#{number.numberBetween '1'}", "takes 2 arguments, not 1"),
        ("#{number.numberBetween '5','1'}", "1 is less than 5"),
        ("#{number.numberBetween 'a','1'}", "'a' is not a whole number"),
        ("#{number.numberBetween 1,2}", "must be in quotes"),
        ("#{date.past '5','FORTNIGHTS'}", "is not one of SECONDS"),
        ("a #{b", "cannot be read"),
    ],
)
def test_expressions_that_are_wrong(expression: str, reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        faker.expression_sql(expression)
    assert reason in str(caught.value)


def test_every_provider_has_values_that_stay_the_same() -> None:
    for name in faker._SAMPLED:
        found = faker.expression_sql(f"#{{{name}}}")
        assert found == faker.expression_sql(f"#{{{name}}}")
        assert re.match(r"element_at\(array\('", found)


@pytest.mark.parametrize(
    ("kind", "given", "reason"),
    [
        ("string", {"min": 1}, "fields.c.min has no meaning for a random string"),
        ("int", {"length": 1}, "fields.c.length has no meaning"),
        ("int", {"min": 5, "max": 1}, "fields.c.max is less than fields.c.min"),
        ("tinyint", {"max": 200}, "must be a value of tinyint, not '200'"),
        ("int", {"kind": "sequence", "start": 1}, "fields.c.end is missing"),
        ("int", {"kind": "random", "start": 1, "end": 2}, "are of the kind 'sequence'"),
        ("int", {"start": 3, "end": 2}, "fields.c.end is less"),
        ("int", {"start": 1, "end": 2, "min": 1}, "no meaning for a sequence int"),
        ("boolean", {"start": 1, "end": 2}, "no meaning for a boolean"),
        ("array<int>", {}, "which it does not generate"),
    ],
)
def test_options_that_do_not_fit(kind: str, given: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError) as caught:
        datagen.value_sql("c", parse_type(kind), given, "id")
    assert reason in str(caught.value)


def view(text: str) -> str:
    statement = parse(text)
    assert isinstance(statement, SparkStatement)
    return statement.text


def test_the_view_of_a_table() -> None:
    text = """CREATE TABLE IF NOT EXISTS s.`t x` (a INT COMMENT 'it''s', b AS a + 1)
COMMENT 'c' WITH ('connector' = 'datagen', 'fields.a.start' = '1', 'fields.a.end' = '3')"""
    found = view(text)
    assert found.startswith(
        "CREATE VIEW IF NOT EXISTS `s`.`t x` (`a` COMMENT 'it\\'s', `b`) COMMENT 'c' "
        "TBLPROPERTIES ('connector' = 'datagen', 'connector.definition' = '(`a` INT COMMENT "
    )
    properties = "'connector.rows-per-second' = '10000', 'connector.number-of-rows' = '3') AS "
    assert properties in found
    assert found.endswith(
        "AS SELECT `a`, a + 1 AS `b` FROM (SELECT CAST(1 + id AS INT) AS `a` FROM range(3))"
    )


def test_the_stream_of_a_view_is_its_query_over_another_relation() -> None:
    text = "SELECT id + 1 AS a FROM range(3)"
    given = {"connector.rows-per-second": "5", "connector.number-of-rows": "3"}
    assert stream_query(text, given) == (
        "SELECT id + 1 AS a FROM "
        "(SELECT value AS id FROM STREAM rate(rowsPerSecond => 5) WHERE value < 3)"
    )
    for other in ({}, {**given, "connector.number-of-rows": "4"}, {**given, RATE_PROPERTY: "x"}):
        assert stream_query(text, other) is None


def test_a_temporary_table_is_a_temporary_view_without_properties() -> None:
    found = view("CREATE TEMPORARY TABLE t (a BIGINT) WITH ('connector' = 'datagen')")
    assert found.startswith("CREATE TEMPORARY VIEW `t` (`a`) AS SELECT ")
    assert "raise_error('The table has no end" in found
    assert view("DROP TEMPORARY TABLE IF EXISTS t") == "DROP VIEW IF EXISTS t"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t AS SELECT 'connector' = x FROM y",
        "CREATE TABLE t USING delta TBLPROPERTIES ('connector' = 'x')",
        "CREATE TABLE t AS WITH (SELECT 1) SELECT 'connector' = 'x'",
        "SELECT 'connector' = 'faker'",
    ],
)
def test_other_statements_stay_as_they_are(text: str) -> None:
    assert view(text) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a INT) WITH ('connector' = 'fakr')", "'fakr' of the table t is not supported. (line 1"),
        ("(a INT) WITH ('connector' = 'jdbc')", "CREATE CONNECTION"),
        ("(a INT) WITH ('connector' = 'hudi')", "There are the connectors datagen, faker, files"),
        ("(a INT) WITH ('connector' = 'faker')", "fields.a.expression is missing. (line 1, col"),
        ("(a INT NOT NULL) WITH ('connector' = 'datagen', 'fields.a.null-rate' = '1')", "NOT NULL"),
        ("WITH ('connector' = 'faker')", "without a list of columns"),
        ("(a) WITH ('connector' = 'faker')", "Write its type"),
        ("(a INT METADATA) WITH ('connector' = 'faker')", "generators have none"),
        ("(a INT, WATERMARK FOR a AS a) WITH ('connector' = 'datagen')", "a is INT; it must be"),
        ("(a INT, WATERMARK FOR b AS a) WITH ('connector' = 'datagen')", "Watermark column b"),
        ("(a INT, PRIMARY KEY (b) NOT ENFORCED) WITH ('connector' = 'datagen')", "no such column"),
        ("(a INT) PARTITIONED BY (a) WITH ('connector' = 'datagen')", "for the connector filesys"),
    ],
)
def test_what_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ServerError) as caught:
        parse(f"CREATE TABLE t {text}")
    assert message in str(caught.value)
