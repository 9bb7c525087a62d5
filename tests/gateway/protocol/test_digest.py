"""DIGEST-MD5 as pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from puresasl import SASLProtocolException
from puresasl.client import SASLClient

from tidegate_server.gateway.protocol.digest import DigestError, challenge, parse_response


def client_response(password: str, nonce: str = "n0nce") -> tuple[SASLClient, bytes]:
    """Return a third-party client and its response."""
    client = SASLClient("default", "hive", "DIGEST-MD5", username="dXNlcg==", password=password)
    return client, client.process(challenge(nonce))


def test_the_example_of_the_rfc() -> None:
    """RFC 2831, section 4, the first exchange."""
    response = parse_response(
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",'
        b'nc=00000001,cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",'
        b"response=d388dad90d4bbd760a152321f2143af7,qop=auth",
        "OA6MG9tEQGm2hh",
    )
    assert response.is_proven_by("secret")
    assert response.server_proof("secret") == b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def test_another_implementation_understands_it() -> None:
    client, payload = client_response("pass")
    response = parse_response(payload, "n0nce")
    assert response.username == "dXNlcg=="
    assert response.is_proven_by("pass")
    client.process(response.server_proof("pass"))
    assert client.complete


def test_a_wrong_password_proves_nothing_on_either_side() -> None:
    client, payload = client_response("pass")
    response = parse_response(payload, "n0nce")
    assert not response.is_proven_by("Pass")
    with pytest.raises(SASLProtocolException):
        client.process(response.server_proof("other"))


def test_a_response_to_another_challenge_is_a_replay() -> None:
    _, payload = client_response("pass", "an older one")
    with pytest.raises(DigestError, match="another challenge"):
        parse_response(payload, "n0nce")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"username",
        b'username="a',
        b'username="a",username="b"',
        b'username="a" nonce="n0nce"',
        b'username="a",nonce="n0nce",cnonce="c",digest-uri="u",response=x,nc=00000002',
        b'username="a",nonce="n0nce",cnonce="c",digest-uri="u",response=x,nc=00000001,qop=auth-conf',
    ],
)
def test_what_is_no_response_is_refused(payload: bytes) -> None:
    with pytest.raises(DigestError):
        parse_response(payload, "n0nce")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    try:
        assert not parse_response(payload, "n0nce").is_proven_by("pass")
    except DigestError as problem:
        assert str(problem)
