"""Status requests that are repeated, also before the previous reply."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

from tests.gateway.protocol.gateway import (
    Gateway,
)
from tests.gateway.protocol.peer import CODES, STATES, Peer, numbers, open_peer
from tidegate.wire.sasl import SaslStatus, negotiation_frame
from tidegate.wire.service import (
    args_class,
    encode_message,
    ttypes,
)
from tidegate_server.gateway.protocol.scan import MessageScanner


def test_the_status_of_what_has_ended_may_be_asked_for_again_and_again(peer: Peer) -> None:
    """As Hive's JDBC driver 2.3 does: once per row."""
    session = peer.session()
    operation, other = peer.start(session, "SELECT 1"), peer.start(session, "FAIL")
    assert peer.status(operation).operationState == STATES.FINISHED_STATE
    for _ in range(5):
        assert peer.status(operation).operationState == STATES.FINISHED_STATE
        assert peer.status(operation, getProgressUpdate=True).progressUpdateResponse is not None
        assert peer.status(other).operationState == STATES.ERROR_STATE
    peer.client.CloseOperation(ttypes.TCloseOperationReq(operationHandle=other))
    assert peer.status(other).status.statusCode == CODES.INVALID_HANDLE_STATUS
    assert peer.status(operation).operationState == STATES.FINISHED_STATE
    peer.client.CloseSession(ttypes.TCloseSessionReq(sessionHandle=session))
    for _ in range(2):
        assert peer.status(operation).status.statusCode == CODES.INVALID_HANDLE_STATUS


def test_what_is_asked_again_without_waiting_is_answered_in_order(gateway: Gateway) -> None:
    """Whole, cut at any place, and several at once: each gets the reply to its own number."""
    with open_peer(gateway) as peer:
        operation = peer.start(peer.session(), "SELECT 1")
        assert peer.status(operation).operationState == STATES.FINISHED_STATE

        def asking(number: int) -> bytes:
            request = ttypes.TGetOperationStatusReq(operationHandle=operation)
            arguments = args_class("GetOperationStatus")(req=request)
            return bytes(encode_message("GetOperationStatus", 1, number, arguments))

        other = bytes(encode_message("GetLog", 1, 99, args_class("GetInfo")()))
        with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
            size = len(asking(0))
            parts = [asking(1), asking(2), asking(3) + asking(4), asking(5)[:7], asking(5)[7:]]
            parts += [asking(6) + other, asking(7), other[:3], other[3:] + asking(8)[: size - 1]]
            parts += [asking(8)[-1:], asking(9)]
            for part in parts:
                raw.sendall(part)
                time.sleep(0.02)
            assert _reply_numbers(raw) == [1, 2, 3, 4, 5, 6, 99, 7, 99, 8, 9]


def test_what_is_asked_again_in_frames_is_answered_in_frames(gateway: Gateway) -> None:
    """One frame for each message, or a message in two frames, or two frames at once."""
    with open_peer(gateway) as peer:
        operation = peer.start(peer.session(), "SELECT 1")
        request = ttypes.TGetOperationStatusReq(operationHandle=operation)
        arguments = args_class("GetOperationStatus")(req=request)

        def frame(*pieces: bytes) -> bytes:
            return b"".join(struct.pack(">i", len(piece)) + piece for piece in pieces)

        def asking(number: int) -> bytes:
            return bytes(encode_message("GetOperationStatus", 1, number, arguments))

        with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
            raw.sendall(negotiation_frame(SaslStatus.START, b"PLAIN"))
            raw.sendall(negotiation_frame(SaslStatus.OK, b"\0eva\0x"))
            assert raw.recv(5) == negotiation_frame(SaslStatus.COMPLETE, b"")
            parts = [frame(asking(number)) for number in (1, 2, 3)]
            parts += [frame(asking(4)[:9], asking(4)[9:]), frame(asking(5)[:9])]
            parts += [frame(asking(5)[9:]), frame(asking(6), asking(7)), frame(asking(8))]
            for part in parts:
                raw.sendall(part)
                time.sleep(0.02)
            raw.shutdown(socket.SHUT_WR)
            scanner = MessageScanner(1 << 20)
            received = b"".join(iter(lambda: raw.recv(65536), b""))
            while received:
                (length,) = struct.unpack_from(">i", received)
                scanner.feed(received[4 : 4 + length])
                received = received[4 + length :]
        answered = iter(scanner.next_message, None)
        assert [message.sequence for message in answered] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_question_asked_again_waits_for_the_answer_to_the_first(
    gateway: Gateway, peer: Peer
) -> None:
    """Both come while the operation runs; it ends in between; the first is answered first."""
    release = threading.Event()

    def answer_when_released(context: Any) -> Any:
        assert release.wait(10)
        return numbers(2)(context)

    gateway.answers["SELECT held"] = answer_when_released
    operation = peer.start(peer.session(), "SELECT held")
    request = ttypes.TGetOperationStatusReq(operationHandle=operation)
    arguments = args_class("GetOperationStatus")(req=request)
    other = bytes(encode_message("GetLog", 1, 1, args_class("GetInfo")()))
    asking = [bytes(encode_message("GetOperationStatus", 1, n, arguments)) for n in (2, 3, 4)]
    with socket.create_connection((gateway.host, gateway.port), timeout=10) as raw:
        raw.sendall(other + asking[0])
        time.sleep(0.1)
        release.set()
        raw.sendall(asking[1])
        raw.sendall(asking[2])
        assert _reply_numbers(raw) == [1, 2, 3, 4]


def _reply_numbers(raw: socket.socket) -> list[int]:
    """End a connection and return the numbers of the replies on it, in their order."""
    raw.shutdown(socket.SHUT_WR)
    scanner = MessageScanner(1 << 20)
    while received := raw.recv(65536):
        scanner.feed(received)
    numbers_answered = []
    while (message := scanner.next_message()) is not None:
        numbers_answered.append(message.sequence)
    return numbers_answered
