"""What the gateway is told of exceptions that say little by themselves."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tidegate_server.engine.errors import to_server_error


@pytest.mark.parametrize(
    ("caught", "code"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "ENGINE_LOST"),
        (ConnectionRefusedError("[Errno 111] Connection refused"), "ENGINE_LOST"),
        (Py4JError("An error occurred while calling o8.statusTracker"), "ENGINE_LOST"),
        (Py4JError("An error occurred while calling o8.x. Trace:\nno such method"), "INTERNAL"),
        (ValueError("something"), "INTERNAL"),
    ],
)
def test_a_jvm_that_does_not_answer_is_a_lost_engine(caught: Exception, code: str) -> None:
    assert to_server_error(caught).code == code


def test_whatever_a_canceled_operation_dies_of_it_was_canceled() -> None:
    assert to_server_error(ValueError(), canceled=True).code == "OPERATION_CANCELED"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "ran out of memory"),
        (
            "java.lang.OutOfMemoryError: Cannot reserve 127586304 bytes of direct buffer memory",
            "ran out of direct memory",
        ),
    ],
)
def test_which_memory_ran_out_is_said(text: str, words: str) -> None:
    failed = to_server_error(RuntimeError(text))
    assert (failed.code, failed.sqlstate) == ("OUT_OF_MEMORY", "53200")
    assert words in failed.message
    assert "engine.driver_memory" in failed.hint
