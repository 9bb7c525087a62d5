"""Statements that are too large or too deep for the engine that all users share."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import tidegate
from tests.support.fixtures.server import Server
from tidegate_server.core.config_sections import EngineSection

pytestmark = pytest.mark.spark

LIMIT = EngineSection().max_statement_bytes
TOKENS = EngineSection().max_statement_tokens
NUMBERS = "1," * (TOKENS // 2) + "1"


@pytest.fixture
def cursor(server: Server) -> Iterator[tidegate.Cursor]:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        yield cursor


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM range(10) WHERE id IN ({})",
        "EXPLAIN SELECT {}",
        "CREATE TEMPORARY VIEW v AS SELECT {}",
        "INSERT INTO nowhere SELECT {}",
        "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT {}",
    ],
)
def test_a_statement_of_many_values_does_not_reach_the_engine(
    server: Server, cursor: tidegate.Cursor, statement: str
) -> None:
    engine = server.engine_pid
    with pytest.raises(tidegate.Error) as caught:
        cursor.execute(statement.format(NUMBERS))
    assert (caught.value.code, caught.value.sqlstate) == ("STATEMENT_TOO_LARGE", "54001")
    assert f"at most {TOKENS}" in str(caught.value)
    assert "engine.max_statement_tokens" in str(caught.value.hint)
    assert cursor.execute("SELECT 1").fetchone() == (1,)
    assert server.engine_pid == engine


def test_a_statement_of_many_bytes_does_not_reach_the_engine(cursor: tidegate.Cursor) -> None:
    text = f"SELECT length('{'x' * LIMIT}')"
    with pytest.raises(tidegate.Error) as caught:
        cursor.execute(text)
    assert caught.value.code == "STATEMENT_TOO_LARGE"
    assert f"{len(text)} bytes" in str(caught.value)
    assert "engine.max_statement_bytes" in str(caught.value.hint)


def test_variables_do_not_get_around_the_limit(cursor: tidegate.Cursor) -> None:
    cursor.execute(f"SET many = {'1, ' * 10_000}1")
    with pytest.raises(tidegate.Error) as caught:
        cursor.execute(f"SELECT array({', '.join(['${many}'] * 1000)})")
    assert caught.value.code == "STATEMENT_TOO_LARGE"


@pytest.mark.parametrize("within", ["{}", "BEGIN {}; END"])
def test_a_computed_text_has_the_same_limits(cursor: tidegate.Cursor, within: str) -> None:
    immediate = "EXECUTE IMMEDIATE concat('SELECT 7', repeat('{}', {}))"
    assert cursor.execute(within.format(immediate.format("", 1))).fetchall() == [(7,)]
    for part, count in ((", 1", TOKENS), (" " * 100, LIMIT // 100 + 1)):
        with pytest.raises(tidegate.Error) as caught:
            cursor.execute(within.format(immediate.format(part, count)))
        assert caught.value.code == "STATEMENT_TOO_LARGE"


def test_the_limit_holds_over_http(server: Server) -> None:
    at = f"http://127.0.0.1:{server.ready_info()['http_port']}/v3/sessions"
    session = _post(at, {})["sessionHandle"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        _post(f"{at}/{session}/statements", {"statement": f"SELECT {NUMBERS}"})
    with closing(caught.value) as answer:
        assert "STATEMENT_TOO_LARGE" in answer.read().decode()


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT {'(' * 1000}1{')' * 1000}",
        f"SELECT {'abs(' * 5000}1{')' * 5000}",
        f"{'SELECT * FROM (' * 5000}SELECT 1{')' * 5000}",
        " UNION ALL ".join(["SELECT 1"] * 5000),
        f"SELECT {'+'.join(['id'] * 10_000)} FROM range(3)",
    ],
)
def test_a_statement_that_is_too_deep_is_an_ordinary_error(
    server: Server, cursor: tidegate.Cursor, statement: str
) -> None:
    engine = server.engine_pid
    with pytest.raises(tidegate.Error) as caught:
        cursor.execute(statement)
    assert caught.value.code in {"STATEMENT_TOO_COMPLEX", "FAILED_TO_PARSE_TOO_COMPLEX"}
    assert caught.value.sqlstate == "54001"
    assert cursor.execute("SELECT 1").fetchone() == (1,)
    assert server.engine_pid == engine


def test_batches_of_the_driver_stay_below_the_limit(cursor: tidegate.Cursor) -> None:
    assert 0 < cursor.connection.max_batch_bytes() <= LIMIT


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
