"""What ends the following of a table, where its server is, and what its reader is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate_server.core.errors import ServerError
from tidegate_server.core.sql.streams import Stream
from tidegate_server.engine.binlog.endpoints import endpoint_of
from tidegate_server.engine.binlog.request import Endpoint, Position, ReadAnswer, ReadRequest
from tidegate_server.engine.binlog.statements import unfollowed
from tidegate_server.engine.binlog.values import Wanted
from tidegate_server.engine.refresh import database_changes

REQUEST = ReadRequest(
    endpoint=Endpoint(host="h", port=1, user="u", password="p"),
    database="d",
    table="t",
    columns=(Wanted(name="a", binary=True), Wanted(name="b")),
    key=("a",),
    start=Position("f.1", 4),
    initial=True,
    servers=(1, 2),
    directory="/x",
)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("TRUNCATE TABLE items", "TRUNCATE has removed or replaced rows of shop.items"),
        ("/* c */ truncate `shop`.`items`", "TRUNCATE has removed"),
        ("DROP TABLE IF EXISTS other, shop . items", "DROP TABLE has removed"),
        ("RENAME TABLE items TO old", "RENAME TABLE has removed"),
        ("CREATE OR REPLACE TABLE items (a INT)", "CREATE OR REPLACE has removed"),
        ("ALTER TABLE items DROP PARTITION p1", "ALTER TABLE has removed"),
        ("ALTER TABLE items RENAME TO old", "ALTER TABLE has removed"),
        ("DROP DATABASE shop", "the database shop was dropped"),
        ("INSERT INTO items VALUES (1)", "set binlog_format = ROW"),
        ("BEGIN", None),
        ("ALTER TABLE items ADD COLUMN more INT", None),
        ("TRUNCATE TABLE items_old", None),
        ("TRUNCATE TABLE other.items", None),
        ("DROP TABLE other /* items */", None),
        ("DROP DATABASE shop2", None),
        ("CREATE INDEX i ON items (a)", None),
    ],
)
def test_statements_that_change_rows_without_naming_them(statement: str, words: str | None) -> None:
    found = unfollowed(statement, "shop", "shop", "items")
    assert (found is None) if words is None else (found is not None and words in found)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"url": "jdbc:mysql://h/db"}, Endpoint(host="h", port=3306, user="", password="")),
        (
            {"URL": "jdbc:mariadb://[::1]:33/?sslMode=trust", "user": "u", "password": "p"},
            Endpoint(host="::1", port=33, user="u", password="p", tls="encrypt"),
        ),
        (
            {"url": "jdbc:mysql://h:1/db?user=u", "sslMode": "VERIFY_CA"},
            Endpoint(host="h", port=1, user="u", password="", tls="verify"),
        ),
    ],
)
def test_a_connection_leads_to_a_server(options: dict[str, str], expected: Endpoint) -> None:
    assert endpoint_of(options) == expected


@pytest.mark.parametrize("url", ["jdbc:postgresql://h/d", "jdbc:mysql://a,b/d", "jdbc:mysql:x"])
def test_other_urls_lead_to_none(url: str) -> None:
    with pytest.raises(ValueError, match="one server of MySQL or MariaDB"):
        endpoint_of({"url": url})


def test_the_packages_are_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(database_changes, "_NEEDED", ("no_such_package",))
    names = {"connection": "c", "database": "shop", "table": "items"}
    stream = Stream(function="read_mysql", parameters=names, start=0, end=0)
    with pytest.raises(ServerError, match="The changes of shop.items cannot be read") as caught:
        database_changes._ask(replace(REQUEST, directory=str(tmp_path)), stream, lambda: None)
    assert "pip install 'tidegate[server,mysql]'" in caught.value.hint


def test_positions_are_ordered_by_files() -> None:
    first, second = Position("binlog.000009", 900), Position("binlog.000010", 4)
    assert first.order < second.order
    assert Position.read(first.text()) == first


def test_requests_and_answers_cross_as_lines() -> None:
    assert ReadRequest.decode(REQUEST.encode()) == REQUEST
    for answer in (ReadAnswer(end=Position("f.1", 9), rows=3), ReadAnswer(problem="x", lost=True)):
        assert ReadAnswer.decode(answer.encode()) == answer
