"""The errors and warnings of a statement as clients receive them."""

from __future__ import annotations

import re

import pytest

from tests.gateway.protocol.gateway import (
    Gateway,
)
from tests.gateway.protocol.peer import CODES, STATES, Peer
from tidegate_server.core.errors import ServerError
from tidegate_server.core.model.result import Result
from tidegate_server.gateway.context import Context
from tidegate_server.gateway.protocol.status import failure


def test_a_failing_statement_fails_its_synchronous_call(peer: Peer) -> None:
    response = peer.execute(peer.session(), "SELECT nope")
    status = response.status
    assert (status.statusCode, status.sqlState) == (CODES.ERROR_STATUS, "42P01")
    told = "[TABLE_OR_VIEW_NOT_FOUND] cannot run SELECT nope (SQLSTATE '42P01')"
    assert status.errorMessage == told
    assert status.infoMessages[0].startswith("*java.sql.SQLException:[TABLE_OR_VIEW_NOT_FOUND]")
    assert status.infoMessages[1:] == ["first line", "second line"]
    assert status.errorCode is not None
    assert response.operationHandle is None


def test_a_failing_statement_tells_its_error_in_status_and_fetch(peer: Peer) -> None:
    operation = peer.start(peer.session(), "SELECT nope")
    status = peer.status(operation)
    assert (status.operationState, status.sqlState) == (STATES.ERROR_STATE, "42P01")
    assert status.errorMessage == "[TABLE_OR_VIEW_NOT_FOUND] cannot run SELECT nope"
    fetched = peer.fetch(operation)
    assert fetched.status.errorMessage == f"{status.errorMessage} (SQLSTATE '42P01')"
    # What Superset makes of PyHive's exception, whose text is this.
    found = re.search(r'errorMessage="(.*?)(?<!\\)"', repr(fetched))
    assert found is not None
    assert found[1] == fetched.status.errorMessage


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("The table `a`.`b` is not there", "The table 'a'.'b' is not there"),
        ("The table `a` isn't there", "The table `a` isn't there"),
        ('Near "x"', "Near 'x'"),
        ("Division by zero", "Division by zero (SQLSTATE '22012')"),
    ],
)
def test_messages_can_be_found_in_the_text_of_their_response(told: str, shown: str) -> None:
    problem = ServerError(code="X", sqlstate="22012", message=told)
    answer = failure(problem)
    assert answer.errorMessage == f"[X] {shown}"
    assert f'errorMessage="[X] {shown}"' in repr(answer)


def test_a_message_of_several_lines_is_sent_whole_before_its_hint() -> None:
    message = "by row:\n - x : 1"
    answer = failure(
        ServerError(code="X", sqlstate="23001", message=message, hint="Don't.", line=1, column=3)
    )
    assert answer.errorMessage == "[X] by row: (line 1, column 3)\n - x : 1\nHint: Don't."
    assert len(answer.infoMessages) == 1


def test_a_line_with_a_star_is_no_exception() -> None:
    problem = ServerError(code="X", sqlstate="22012", message="m", detail="*(1) Scan\nplan")
    assert failure(problem).infoMessages[1:] == [" *(1) Scan", "plan"]


@pytest.mark.parametrize("name", ["zoo.nosuch", "nosuch"])
def test_pyhives_dialect_knows_a_missing_table(gateway: Gateway, peer: Peer, name: str) -> None:
    quoted = ".".join(f"`{part}`" for part in name.split("."))

    def missing(_: Context) -> Result:
        message = f"The table or view {quoted} cannot be found. Verify the `search path`."
        raise ServerError(code="TABLE_OR_VIEW_NOT_FOUND", sqlstate="42P01", message=message)

    gateway.answers["DESCRIBE nosuch"] = missing
    # As pyhive.sqlalchemy_hive looks for it in the text of its exception.
    said = repr(peer.execute(peer.session(), "DESCRIBE nosuch"))
    wanted = rf"TExecuteStatementResp.*SemanticException.*Table not found {re.escape(name)}'"
    assert re.search(wanted, said)


def test_warnings_and_notes_come_with_a_success_that_every_client_takes(peer: Peer) -> None:
    messages = ["Warning: the ice is thin", "Note: nothing was changed"]
    synchronous = peer.execute(peer.session(), "WARN").status
    assert (synchronous.statusCode, synchronous.infoMessages) == (CODES.SUCCESS_STATUS, messages)
    operation = peer.start(peer.session(), "WARN")
    status = peer.status(operation)
    while status.operationState != STATES.FINISHED_STATE:
        status = peer.status(operation)
    assert status.status.statusCode == CODES.SUCCESS_STATUS
    assert status.status.infoMessages == messages
    _, *lines, _ = peer.fetch(operation, fetchType=1).results.columns[0].stringVal.values
    assert lines == [b"WARN  : the ice is thin", b"INFO  : nothing was changed"]


def test_the_error_of_a_statement_that_warned_has_no_warnings_in_it(peer: Peer) -> None:
    operation = peer.start(peer.session(), "WARN AND FAIL")
    status = peer.status(operation)
    while status.operationState != STATES.ERROR_STATE:
        status = peer.status(operation)
    assert status.status.infoMessages is None
    assert "ice" not in status.errorMessage
