"""SASL frames, byte by byte."""

from __future__ import annotations

import pytest

from tidegate.wire import sasl


def test_a_start_message_is_status_length_and_mechanism() -> None:
    frame = sasl.negotiation_frame(sasl.SaslStatus.START, b"PLAIN")
    assert frame == b"\x01\x00\x00\x00\x05PLAIN"


def test_an_empty_complete_message_is_five_bytes() -> None:
    assert sasl.negotiation_frame(sasl.SaslStatus.COMPLETE, b"") == b"\x05\x00\x00\x00\x00"


def test_a_data_frame_is_length_and_payload() -> None:
    assert sasl.data_frame(b"abc") == b"\x00\x00\x00\x03abc"


def test_a_negotiation_header_tells_status_and_length() -> None:
    assert sasl.parse_negotiation_header(b"\x02\x00\x00\x01\x00") == (sasl.SaslStatus.OK, 256)


@pytest.mark.parametrize("number", [0, 6, 0x80])
def test_an_unknown_status_is_refused(number: int) -> None:
    with pytest.raises(sasl.SaslError, match=f"but {number} came"):
        sasl.parse_negotiation_header(bytes([number, 0, 0, 0, 0]))


def test_a_negotiation_message_above_the_limit_is_refused() -> None:
    with pytest.raises(sasl.SaslError, match="at most 10 bytes, but 11"):
        sasl.parse_negotiation_header(b"\x01\x00\x00\x00\x0b", limit=10)


def test_a_negative_data_length_is_refused() -> None:
    with pytest.raises(sasl.SaslError, match="-1 were announced"):
        sasl.parse_data_header(b"\xff\xff\xff\xff")
