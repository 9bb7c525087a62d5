"""Every call does what its OpenAPI description says, whatever is sent (Schemathesis)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.gateway.rest.flink.test_api import Flink, serving
from tests.support.full_run import FULL

EXAMPLES = settings(
    max_examples=200 if FULL else 2, deadline=None, suppress_health_check=list(HealthCheck)
)
HOST = b"127.0.0.1:10002"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with serving(tmp_path) as make:
        yield make()


def from_here(app: ASGIApp) -> ASGIApp:
    """Return the application for a client on the same machine, which needs no token."""

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [each for each in scope["headers"] if each[0] != b"host"]
            own = {"client": ("127.0.0.1", 5), "headers": [*headers, (b"host", HOST)]}
            scope = {**scope, **own}
        await app(scope, receive, send)

    return called


def known_ids(client: TestClient) -> dict[str, str]:
    """Return ids that exist, of a new session and others."""
    flink = Flink(client).open()
    operation = flink.start("SELECT 3")
    return {"session": flink.handle, "operation": operation, "table": "t-1", "token": "0"}


def check(operation: Any, mode: GenerationMode, ids: Callable[[], dict[str, str]]) -> None:
    """Send requests that match the description, or do not, and check the answers."""
    known = ids()
    if mode is GenerationMode.NEGATIVE:
        del known["token"]  # every text is valid for the others

    @EXAMPLES
    @given(case=operation.as_strategy(generation_mode=mode), exists=st.booleans())
    def sent(case: Any, exists: bool) -> None:
        if exists:
            case.path_parameters.update(
                {name: known[name] for name in case.path_parameters if name in known}
            )
        # Bodies of the right form can still be wrong, such as a statement that is not SQL.
        case.call_and_validate(excluded_checks=[positive_data_acceptance] if exists else [])

    try:
        sent()
    except Unsatisfiable:
        # Calls without parameters and bodies cannot be called wrongly.
        assert mode is GenerationMode.NEGATIVE, operation.label


def test_calls_do_what_is_described(client: TestClient) -> None:
    described = schemathesis.openapi.from_asgi("/v1/openapi.json", from_here(client.app))
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) > 50
    if not FULL:  # the versions of Flink's interface differ in a few calls
        operations = [each for each in operations if not each.path.startswith(("/v2/", "/v3/"))]
        operations = operations[::3]
    for operation in operations:
        for mode in GenerationMode:
            check(operation, mode, lambda: known_ids(client))
