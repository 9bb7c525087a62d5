"""Tables of MySQL with their changes: their views, and what materialized tables read."""

from __future__ import annotations

import re

import pytest

from tidegate_server.core.connectors.changes import change_key
from tidegate_server.core.connectors.mysql import MySqlSource, source_of
from tidegate_server.core.connectors.tables import is_endless, refused_insert, stream_query
from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.external.changes import events_of
from tidegate_server.core.sql.parse import parse
from tidegate_server.core.sql.statements import SparkStatement
from tidegate_server.core.sql.streams import find_stream

PLACE = "'connection' = 'Shop', 'database-name' = 'shop', 'table-name' = 'item s'"
COLUMNS = "id BIGINT, `a b` VARCHAR(9), twice AS id * 2, PRIMARY KEY (ID) NOT ENFORCED"
OF_VIEW = {"connector": "mysql-cdc"}


def statement(columns: str = COLUMNS, options: str = "", place: str = PLACE) -> SparkStatement:
    text = f"CREATE TABLE t ({columns}) WITH ('connector' = 'mysql-cdc', {place}{options})"
    found = parse(text)
    assert isinstance(found, SparkStatement)
    return found


def query(columns: str = COLUMNS, options: str = "") -> str:
    return f"SELECT {statement(columns, options).text.partition(' AS SELECT ')[2]}"


def test_a_query_reads_the_rows_by_the_connection() -> None:
    assert query().partition(" */ ")[2] == (
        "`id`, `a b`, id * 2 AS `twice` /* changes by `id` */ FROM (SELECT CAST(`id` AS BIGINT) "
        "AS `id`, CAST(`a b` AS VARCHAR(9)) AS `a b` FROM `shop`.`shop`.`item s`)"
    )
    assert statement().remarks == ()
    assert not is_endless(query(), OF_VIEW)
    assert refused_insert(query(), OF_VIEW) == "its rows are those of the server: change them there"


def test_a_materialized_table_reads_the_changes() -> None:
    text = stream_query(query(options=", 'server-id' = '5400-5408'"), OF_VIEW)
    assert text is not None
    stream = find_stream(text)
    assert stream is not None
    assert stream.function == "read_mysql"
    assert source_of(stream.parameters) == MySqlSource(
        connection="shop",
        database="shop",
        table="item s",
        columns=(("id", "BIGINT"), ("a b", "VARCHAR(9)")),
        key=("id",),
        initial=True,
        servers=(5400, 5408),
    )
    assert str(stream.name) == "spark_catalog.STREAM.read_mysql(shop, shop, item s)"
    assert change_key(text) == ("id",)
    assert text.partition("*/ ")[2].partition("STREAM")[0] == (
        "`id`, `a b`, id * 2 AS `twice` /* changes by `id` */ FROM (SELECT `id`, `a b`, __deleted, "
        "__sequence FROM "
    )


def test_the_events_of_a_query_have_their_order() -> None:
    inner = stream_query(query(options=", 'scan.startup.mode' = 'latest-offset'"), OF_VIEW)
    assert inner is not None
    latest = find_stream(inner)
    assert latest is not None
    assert not source_of(latest.parameters).initial
    text = events_of(f"SELECT * FROM ({inner}) AS i WHERE id > 3")
    assert text is not None
    stream = find_stream(text)
    assert stream is not None
    found = " ".join(stream.with_view(text).split())
    assert found.startswith(
        "SELECT * EXCEPT (__deleted, __sequence) , __deleted OR NOT coalesce(( id > 3 ), false) "
        "AS __deleted, __sequence FROM (SELECT /* connector=mysql-cdc"
    )
    assert found.endswith(
        "AS `twice` , __deleted, __sequence FROM (SELECT `id`, `a b`, __deleted, __sequence "
        "FROM __stream )) AS i"
    )


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id INT", "", "PRIMARY KEY (column, ...) NOT ENFORCED"),
        (COLUMNS, ", 'hostname' = 'h'", "hostname cannot be set: create a connection"),
        (COLUMNS, ", 'password' = 'h'", "password cannot be set: create a connection"),
        (COLUMNS, ", 'server-id' = '9-3'", "the smaller one first"),
        (COLUMNS, ", 'server-id' = 'x'", "a number, or two as in"),
        (COLUMNS, ", 'scan.startup.mode' = 'timestamp'", "initial or latest-offset"),
        (COLUMNS, ", 'server-time-zone' = 'UTC'", "a DATETIME a time without a zone"),
        (COLUMNS, ", 'debezium.x' = 'y'", "without Debezium"),
        (COLUMNS, ", 'server_id' = '1'", "did you mean server-id?"),
        (f"{COLUMNS}, k STRING METADATA", "", "the column k has METADATA"),
        ("id INT, k AS 1, PRIMARY KEY (k) NOT ENFORCED", "", "the column k, which is computed"),
    ],
)
def test_what_has_no_meaning_is_refused(columns: str, options: str, words: str) -> None:
    with pytest.raises(ServerError, match=re.escape(words)) as caught:
        statement(columns, options)
    assert caught.value.code == "INVALID_CONNECTOR"


@pytest.mark.parametrize(
    ("columns", "key"), [("x", "[]"), ("{}", "[]"), ("[1]", "[]"), ('[["a"]]', "[]"), ("[]", "1")]
)
def test_a_call_that_the_server_has_not_written_is_invalid(columns: str, key: str) -> None:
    given = dict.fromkeys(("connection", "database", "table"), "x")
    with pytest.raises(ValueError, match=r"\w"):
        source_of({**given, "columns": columns, "key": key})


@pytest.mark.parametrize("name", ["connection", "database-name", "table-name"])
def test_the_table_is_named(name: str) -> None:
    with pytest.raises(ServerError, match=f"{name} is missing"):
        statement(place=", ".join(p for p in PLACE.split(", ") if name not in p))
