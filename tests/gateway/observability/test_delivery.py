"""Alerts on their way to a real web server and a real program."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue

import pytest

from tests.contract.examples import NOON
from tests.gateway.observability.receiver import Receiver, receiving
from tidegate_server.gateway.observability.alerts import Alert, Event, as_json
from tidegate_server.gateway.observability.delivery import (
    Command,
    Courier,
    DeliveryError,
    Send,
    Webhook,
)

ALERT = Alert(
    id="a-1",
    event=Event.REFRESH_FAILED,
    time=NOON,
    server="gate",
    table="spark_catalog.d.Daily",
    table_id="t-1",
    text="A refresh failed; $(date) 'süß'",
)
PRINT = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read())"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


class Outcomes:
    """What became of the alerts of a courier, one after the other."""

    def __init__(self) -> None:
        self.queue: Queue[tuple[str, str]] = Queue()

    def __call__(self, channel: str, outcome: str) -> None:
        self.queue.put((channel, outcome))

    def next(self) -> tuple[str, str]:
        return self.queue.get(timeout=30)


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


def deliver(send: Send, outcomes: Outcomes, attempts: int = 3) -> str:
    courier = Courier("test", send, attempts=attempts, count=outcomes, pause=0.001)
    courier.start()
    courier.enqueue(ALERT)
    _, outcome = outcomes.next()
    courier.close()
    return outcome


def test_a_webhook_is_posted_the_alert_as_json(receiver: Receiver, outcomes: Outcomes) -> None:
    hook = Webhook(receiver.url, {"Authorization": "Bearer s3cret"}, 10)
    assert deliver(hook, outcomes) == "delivered"
    path, headers, body = receiver.calls.get(timeout=30)
    assert path == "/hook/secret-path"
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Bearer s3cret"
    assert body == json.loads(as_json(ALERT))
    assert (body["event"], body["table"], body["lag_seconds"]) == (
        "REFRESH_FAILED",
        "spark_catalog.d.Daily",
        None,
    )


@pytest.mark.parametrize(
    ("answers", "calls", "outcome"),
    [
        ([500, 429], 3, "delivered"),
        ([500, 500, 503, 204], 3, "failed"),
        ([404], 1, "failed"),
        ([302], 1, "failed"),
    ],
)
def test_only_what_may_pass_is_tried_again(
    receiver: Receiver, outcomes: Outcomes, answers: list[int], calls: int, outcome: str
) -> None:
    receiver.answers = answers
    assert deliver(Webhook(receiver.url, {}, 10), outcomes) == outcome
    assert receiver.calls.qsize() == calls


def test_an_address_nobody_listens_at_is_tried_again(outcomes: Outcomes) -> None:
    with receiving() as gone:
        url = gone.url
    assert deliver(Webhook(url, {}, 10), outcomes) == "failed"


def test_no_line_of_the_log_repeats_a_secret(
    receiver: Receiver, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers = [404]
    deliver(Webhook(receiver.url, {"Authorization": "Bearer s3cret"}, 10), outcomes)
    with receiving() as gone:
        url = gone.url
    deliver(Webhook(url, {}, 10), outcomes)
    assert "answer was 404" in caplog.text
    assert "s3cret" not in caplog.text
    assert "secret-path" not in caplog.text


def test_who_reports_waits_for_nobody_and_what_has_no_room_is_dropped(
    receiver: Receiver, outcomes: Outcomes
) -> None:
    receiver.open.clear()
    courier = Courier("web", Webhook(receiver.url, {}, 30), attempts=1, count=outcomes)
    courier.start()
    courier.enqueue(ALERT)
    receiver.next()
    for number in range(1001):
        courier.enqueue(replace(ALERT, id=str(number)))
    assert outcomes.next() == ("web", "dropped")
    courier.close()
    receiver.open.set()
    assert outcomes.next() == ("web", "delivered")


def test_a_program_reads_the_alert_from_its_standard_input(
    tmp_path: Path, outcomes: Outcomes
) -> None:
    target = tmp_path / "it's; here"
    assert deliver(Command([sys.executable, "-c", PRINT, str(target)], 30), outcomes) == "delivered"
    assert json.loads(target.read_bytes()) == json.loads(as_json(ALERT))


def test_a_program_that_fails_is_run_again_and_its_last_words_are_logged(
    tmp_path: Path, outcomes: Outcomes, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "runs"
    code = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit('no such pager')"
    assert deliver(Command([sys.executable, "-c", code, str(target)], 30), outcomes) == "failed"
    assert target.read_text() == "xxx"
    assert "it ended with status 1: no such pager" in caplog.text


def test_a_program_that_is_not_there_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match="could not be started: No such file") as caught:
        Command([str(tmp_path / "nothing")], 30)(b"{}")
    assert not caught.value.transient


def test_a_program_that_takes_too_long_is_ended_with_its_descendants(tmp_path: Path) -> None:
    marks = tmp_path / "pids"
    os.mkfifo(marks)
    code = (
        "import os, sys, time\n"
        "os.fork()\n"
        "open(sys.argv[1], 'w')\n"  # held open until the process ends
        "held = open(sys.argv[1], 'w')\n"
        "time.sleep(600)\n"
    )
    ended = threading.Event()

    def read() -> None:
        with open(marks) as pipe:
            pipe.read()
        ended.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with pytest.raises(DeliveryError, match="longer than 2 s"):
        Command([sys.executable, "-c", code, str(marks)], 2)(b"{}")
    assert ended.wait(30)
