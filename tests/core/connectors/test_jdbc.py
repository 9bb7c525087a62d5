"""Tables of other databases: their queries, and what their options are."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tidegate_server.core.connectors.tables import refused_insert, stream_query
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement

OPTIONS = "'connector' = 'jdbc', 'connection' = 'CRM', 'table-name' = 'shop.orders'"


def statement(columns: str, options: str = "", temporary: str = "") -> SparkStatement:
    found = parse(f"CREATE {temporary} TABLE t ({columns}) WITH ({OPTIONS}{options})")
    assert isinstance(found, SparkStatement)
    return found


def split(columns: str, options: str = "") -> tuple[dict[str, Any], str]:
    """Return what the comment says of how rows are written, and the query without it."""
    query = f"SELECT {statement(columns, options).text.partition(' AS SELECT ')[2]}"
    found = re.fullmatch(r"SELECT /\* connector=jdbc (\{.*?\}) \*/ (.*)", query)
    assert found is not None
    return json.loads(found[1]), found[2]


def test_a_table_is_a_view_over_that_of_the_connection() -> None:
    sink, query = split("id BIGINT NOT NULL, at TIMESTAMP(3), twice AS id * 2")
    assert query == (
        "`id`, `at`, id * 2 AS `twice` FROM (SELECT CAST(`id` AS BIGINT) AS `id`, "
        "CAST(`at` AS TIMESTAMP) AS `at` FROM `crm`.`shop`.`orders`)"
    )
    assert sink == {
        "connector": "jdbc",
        "columns": "`id` BIGINT NOT NULL, `at` TIMESTAMP",
        "expressions": ["`id`", "`at`"],
        "connection": "crm",
        "table": ["shop", "orders"],
    }


def test_options_are_those_of_sparks_reader_and_of_the_writer() -> None:
    sink, query = split(
        "id INT, v STRING, PRIMARY KEY (ID) NOT ENFORCED",
        ", 'scan.fetch-size' = '50', 'scan.partition.column' = 'id', 'scan.partition.num' = '4', "
        "'scan.partition.lower-bound' = '-5', 'scan.partition.upper-bound' = '100', "
        "'sink.buffer-flush.max-rows' = '20'",
    )
    assert query.partition(" FROM ")[2] == (
        "`crm`.`shop`.`orders` WITH ('partitionColumn' = 'id', 'numPartitions' = '4', "
        "'lowerBound' = '-5', 'upperBound' = '100', 'fetchsize' = '50')"
    )
    assert sink["key"] == ["id"]
    assert sink["batch"] == 20


def test_a_primary_key_has_an_effect() -> None:
    assert statement("id INT, PRIMARY KEY (id) NOT ENFORCED").remarks == ()
    [warning] = statement("id INT, a ARRAY<INT>, PRIMARY KEY (id) NOT ENFORCED").remarks
    assert "has no effect" in warning


def test_a_table_of_a_database_is_no_stream() -> None:
    text = statement("id INT, a MAP<STRING, INT>").text
    found = f"SELECT {text.partition(' AS SELECT ')[2]}"
    assert stream_query(found, {"connector": "jdbc"}) is None
    assert refused_insert(found, {"connector": "jdbc"}) == (
        "values of the type of its column a are only read"
    )


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id INT", ", 'url' = 'jdbc:x:y'", "url cannot be set: create a connection"),
        ("id INT", ", 'password' = 'h'", "password cannot be set: create a connection"),
        ("id INT", ", 'properties.ssl' = 'true'", "properties are options of the connection"),
        ("id INT", ", 'scan.partition.num' = '2'", "scan.partition.column is missing"),
        ("id INT", ", 'scan.fetchsize' = '2'", "did you mean scan.fetch-size?"),
        ("id INT", ", 'scan.fetch-size' = 'x'", "scan.fetch-size must be a whole number"),
        ("id INT", ", 'lookup.cache' = 'PARTIAL'", "lookup.cache cannot be set: a join reads"),
        ("id INT, k STRING METADATA", "", "the column k has METADATA"),
        ("k AS 1", "", "it has no columns"),
        ("id INT, k AS 1, PRIMARY KEY (k) NOT ENFORCED", "", "the column k, which is computed"),
    ],
)
def test_what_has_no_meaning_is_refused(columns: str, options: str, words: str) -> None:
    with pytest.raises(ServerError, match=re.escape(words)) as caught:
        statement(columns, options)
    assert caught.value.code == "INVALID_CONNECTOR"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("'table-name' = 't'", "connection is missing: create a connection"),
        ("'connection' = 'crm'", "table-name is missing"),
        ("'connection' = 'crm', 'table-name' = 'a.b.c'", "the name of a table, or schema.table"),
        ("'connection' = 'crm', 'table-name' = 'a.'", "the name of a table, or schema.table"),
        ("'connection' = 'spark_catalog', 'table-name' = 'a'", "another database"),
    ],
)
def test_the_table_is_named(given: str, words: str) -> None:
    with pytest.raises(ServerError, match=re.escape(words)):
        parse(f"CREATE TABLE t (a INT) WITH ('connector' = 'jdbc', {given})")
