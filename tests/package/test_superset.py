"""Superset in a separate environment, as SQL Lab and its charts use a database of a user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import install, succeed
from tests.support.fixtures.server import Server
from tests.support.full_run import FULL

pytestmark = [
    pytest.mark.package,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not FULL, reason="part of bin/test --full: Superset is 800 MB to install"),
]

# Superset 6.1 fails with what pip would choose of the second, and leaves the third out.
SUPERSET = ("apache-superset==6.1.*", "flask-caching==2.3.1", "cachetools")
SCHEMA = "superset_tests"
PROGRAM = Path(__file__).with_name("superset_program.py")


@pytest.fixture(scope="module")
def answers(
    wheel: Path, guarded_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What every step of the program gave."""
    folder = tmp_path_factory.mktemp("superset")
    binaries = install(folder / "environment", wheel, *SUPERSET)
    with guarded_server.connect(user="ann") as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {SCHEMA}")
    uri = f"tidegate://ann@{guarded_server.host}:{guarded_server.port}/{SCHEMA}"
    printed = succeed(binaries / "python", PROGRAM, folder, uri, timeout=1200)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def test_the_engine_spec_is_found_by_its_entry_point(answers: dict[str, Any]) -> None:
    assert answers["spec"] == "TidegateEngineSpec"


def test_statements_go_out_as_they_were_written(answers: dict[str, Any]) -> None:
    assert answers["created"]["data"] == [{"name": "mt"}]
    assert answers["texts"]["data"] == [{"a": "it's", "b": "C:\\", "c": ":x"}]
    written = "SELECT 'it''s' AS a, r'C:\\' AS b, ':x' AS c -- done"
    assert answers["texts"]["sql"] == f"SELECT * FROM ({written}\n) LIMIT 6"


def test_statements_are_judged_by_what_they_read_and_change(answers: dict[str, Any]) -> None:
    judged = answers["judged"]
    assert [text for text, (_, _, written) in judged.items() if written != text] == []
    reading = [text.split()[0] for text, (changes, _, _) in judged.items() if not changes]
    assert reading == ["SELECT", "FROM", "SHOW", "DESCRIBE", "EXPLAIN", "VERIFY", "SET"]
    with_query = [text for text in judged if "FROM a" in text]
    assert [judged[text][1] for text in with_query] == [["a"]] * 6


def test_row_level_security_keeps_literals_and_limit(answers: dict[str, Any]) -> None:
    secured = (
        "SELECT * FROM ( SELECT 'it\\'s' AS s FROM ( SELECT * FROM a WHERE b = 'x\\'y' ) AS `a` )"
    )
    assert answers["secured"] == f"{secured} LIMIT 7"


def test_a_limit_bounds_the_rows_in_their_order(answers: dict[str, Any]) -> None:
    assert answers["limited"]["data"] == [{"id": 99}, {"id": 98}, {"id": 97}]


def test_nested_columns_have_their_types(answers: dict[str, Any]) -> None:
    assert answers["nested"]["columns"] == [["a", "ARRAY"], ["s", "STRUCT"]]


def test_an_error_is_the_servers_sentence(answers: dict[str, Any]) -> None:
    assert "[TABLE_OR_VIEW_NOT_FOUND]" in answers["failed"]["message"]
    assert "line 1" in answers["failed"]["message"]


def test_a_query_whose_tables_cannot_be_known_is_refused(answers: dict[str, Any]) -> None:
    assert answers["unparsed"]["error"] == "SupersetParseError"


def test_a_materialized_table_is_listed_with_its_latest_partition(answers: dict[str, Any]) -> None:
    assert answers["tables"] == ["mt"]
    assert answers["columns"] == ["id", "ds", "s"]
    assert answers["latest"] == [["ds"], ["2"]]
    assert answers["metadata"]["partitions"]["latest"] == {"ds": "2"}
    assert "ds = '2'" in answers["star"]


def test_every_time_grain_is_a_function_of_spark(answers: dict[str, Any]) -> None:
    of_moment = {grain: moment for grain, (moment, _, _) in answers["grains"].items()}
    assert of_moment == {
        "PT1S": "2024-05-16 13:47:38",
        "PT5S": "2024-05-16 13:47:35",
        "PT30S": "2024-05-16 13:47:30",
        "PT1M": "2024-05-16 13:47:00",
        "PT5M": "2024-05-16 13:45:00",
        "PT10M": "2024-05-16 13:40:00",
        "PT15M": "2024-05-16 13:45:00",
        "PT0.5H": "2024-05-16 13:30:00",
        "PT1H": "2024-05-16 13:00:00",
        "P1D": "2024-05-16 00:00:00",
        "P1W": "2024-05-13 00:00:00",
        "P1M": "2024-05-01 00:00:00",
        "P3M": "2024-04-01 00:00:00",
        "P1Y": "2024-01-01 00:00:00",
        "1969-12-29T00:00:00Z/P1W": "2024-05-13 00:00:00",
        "1969-12-28T00:00:00Z/P1W": "2024-05-12 00:00:00",
        "P1W/1970-01-03T00:00:00Z": "2024-05-18 00:00:00",
        "P1W/1970-01-04T00:00:00Z": "2024-05-19 00:00:00",
    }


def test_time_grains_take_dates_and_texts(answers: dict[str, Any]) -> None:
    for grain, (moment, day, text) in answers["grains"].items():
        assert text == moment, grain
        assert day[:10] in (moment[:10], "2024-05-16"), grain


def test_a_stop_cancels_the_statement(answers: dict[str, Any]) -> None:
    stopped = answers["canceled"]
    assert stopped["canceled"] is True
    assert stopped["ended"] is True
    assert stopped["timed_out"] is False
