"""Log lines and the ids they carry."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidegate
from tests.gateway.protocol.gateway import Gateway, running_gateway
from tidegate_server.core.config_sections import LoggingSection
from tidegate_server.core.log_context import current_log_context, log_context
from tidegate_server.core.logs import LOG_FILE, JsonLines, TextLines, logging_to

log = logging.getLogger("tests.logs")


def record(message: str = "hello %s", *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("some.logger", logging.INFO, __file__, 1, message, arguments, None)


def test_a_json_line_names_whom_the_work_is_for() -> None:
    with log_context(user="ann", session_id="s", operation_id="o"):
        line = json.loads(JsonLines().format(record("hello %s", "world")))
    assert (line["message"], line["user"], line["session_id"]) == ("hello world", "ann", "s")
    assert line["operation_id"] == line["query_id"] == "o"


def test_without_work_at_hand_there_are_no_ids() -> None:
    assert "session_id" not in json.loads(JsonLines().format(record("idle")))


def test_a_text_line_stays_one_line() -> None:
    with log_context(user="ann"):
        line = TextLines().format(record("one\ntwo\rthree"))
    assert "\n" not in line
    assert line.endswith("INFO some.logger [user=ann] one\\ntwo\\rthree")


def test_a_trace_follows_its_line() -> None:
    try:
        raise ValueError("oops")
    except ValueError:
        failed = record("failed")
        failed.exc_info = __import__("sys").exc_info()
    assert "ValueError: oops" in TextLines().format(failed)
    assert "ValueError: oops" in json.loads(JsonLines().format(failed))["trace"]


def test_ids_add_up_and_end_with_their_block() -> None:
    with log_context(user="ann"), log_context(session_id="s"):
        assert dict(current_log_context().fields()) == {"user": "ann", "session_id": "s"}
    assert dict(current_log_context().fields()) == {}


def test_other_threads_do_not_see_them() -> None:
    with log_context(user="ann"), ThreadPoolExecutor(1) as pool:
        assert pool.submit(current_log_context).result().user is None


def test_lines_go_to_the_file_and_if_wanted_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = LoggingSection(level="WARNING", format="text", console=True)
    with logging_to(tmp_path, settings):
        log.info("not this")
        log.warning("but this")
    written = (tmp_path / LOG_FILE).read_text("utf-8")
    assert written.count("\n") == 1
    assert written.rstrip().endswith("WARNING tests.logs but this")
    assert written in capsys.readouterr().err


@pytest.fixture
def gateway() -> object:
    with running_gateway() as running:
        yield running


def test_every_line_of_an_operation_carries_the_id_that_clients_get(
    tmp_path: Path, gateway: Gateway
) -> None:
    def talkative(context: object) -> object:
        log.info("deep inside")
        raise ValueError("broken")

    gateway.answers["BREAK"] = talkative  # type: ignore[assignment]
    with logging_to(tmp_path, LoggingSection(level="DEBUG")):
        connection = tidegate.connect(host=gateway.host, port=gateway.port, user="ann")
        with connection, connection.cursor() as cursor:
            with pytest.raises(tidegate.Error):
                cursor.execute("BREAK")
            query_id = cursor.query_id
    assert query_id is not None
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text("utf-8").splitlines()]
    told = {line["message"]: line for line in lines}
    for message in ("deep inside", f"Operation {query_id} failed inside the server"):
        assert (told[message]["query_id"], told[message]["user"]) == (query_id, "ann")
    about = [line for line in lines if query_id in line["message"]]
    assert about
    assert {line.get("query_id") for line in about} == {query_id}
