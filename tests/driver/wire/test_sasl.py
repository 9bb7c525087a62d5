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


def test_a_plain_response_has_three_parts() -> None:
    credentials = sasl.PlainCredentials(user="ann", password="sëcret")
    assert sasl.plain_response(credentials) == b"\0ann\0s\xc3\xabcret"


def test_a_plain_response_comes_back_as_it_went() -> None:
    credentials = sasl.PlainCredentials(user="ann", password="x", authorization="bob")
    assert sasl.parse_plain_response(sasl.plain_response(credentials)) == credentials


@pytest.mark.parametrize("payload", [b"", b"ann\0x", b"\0\0x", b"\0\xff\0x", b"\0a\0b\0c"])
def test_a_malformed_plain_response_is_refused(payload: bytes) -> None:
    with pytest.raises(sasl.SaslError):
        sasl.parse_plain_response(payload)


def test_a_separator_inside_a_password_is_refused() -> None:
    with pytest.raises(sasl.SaslError, match="NUL"):
        sasl.plain_response(sasl.PlainCredentials(user="ann", password="a\0b"))


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(sasl.PlainCredentials(user="ann", password="secret"))
