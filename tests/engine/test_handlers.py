"""Every request has a handler, which answers what the request declares."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from tidegate_server.core.messages.encoding import REQUESTS, answer_type
from tidegate_server.core.messages.requests import Request
from tidegate_server.engine.handlers import HANDLERS


def test_every_request_has_a_handler() -> None:
    assert HANDLERS.keys() == set(REQUESTS.values())


@pytest.mark.parametrize("request_type", HANDLERS, ids=lambda kind: kind.__name__)
def test_a_handler_takes_its_request_and_gives_the_answer_declared(
    request_type: type[Request[Any]],
) -> None:
    hints = get_type_hints(HANDLERS[request_type].call)
    assert hints["request"] is request_type
    assert hints["return"] is answer_type(request_type)
