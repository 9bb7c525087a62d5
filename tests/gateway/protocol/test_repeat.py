from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegate_server.gateway.protocol.reply_cache import CachedReplier, RepeatedCall

AT = 4
"""The position of the sequence number in the questions and replies of these tests."""


def repetition(holds: bool = True) -> RepeatedCall:
    return RepeatedCall(question(0), reply(0), AT, lambda: holds)


def question(number: int) -> bytes:
    return b"ask:" + number.to_bytes(4, "big") + b":handle"


def reply(number: int) -> bytes:
    return b"say:" + number.to_bytes(4, "big") + b":finished"


def test_the_reply_bears_the_number_of_the_question() -> None:
    assert repetition().reply_to(question(7)) == reply(7)
    assert repetition().reply_to(question(1 << 31)) == reply(1 << 31)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        question(7)[:-1],
        question(7)[1:],
        question(7) + b"x",
        question(7) * 2,
        b"ASK:" + question(7)[4:],
        question(7)[:-1] + b"E",
    ],
)
def test_only_the_question_itself_is_answered(data: bytes) -> None:
    assert repetition().reply_to(data) is None


def test_nothing_is_said_that_is_not_true_any_more() -> None:
    assert repetition(holds=False).reply_to(question(7)) is None


class Transport(asyncio.WriteTransport):
    """Keeps what is written, and reports the backlog that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.waiting = 0

    def write(self, data: Any) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting


def test_each_question_is_answered_in_one_piece() -> None:
    transport = Transport()
    replier = CachedReplier(repetition(), transport)
    assert [replier(question(1)), replier(question(2)), replier(b"another")] == [True, True, False]
    assert transport.written == [reply(1), reply(2)]


def test_a_client_that_does_not_read_gets_no_more_at_once() -> None:
    transport = Transport()
    transport.waiting = 1 << 20
    assert not CachedReplier(repetition(), transport)(question(1))
    assert not transport.written
