"""An error that the engine raises reaches the gateway as it was."""

from __future__ import annotations

from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import failure
from tidegate_server.core.messages.encoding import decode_answer, encode_answer


def test_an_error_crosses_the_link_with_every_attribute() -> None:
    raised = ServerError(
        code="MT_PARTITION_UNKNOWN",
        sqlstate="42703",
        message="There is no column x.",
        hint="Name another one.",
        line=2,
        column=7,
        detail="== Plan ==",
        name="x",
    )
    received = decode_answer(encode_answer(failure(raised))).to_error()
    assert vars(received) == vars(raised)
