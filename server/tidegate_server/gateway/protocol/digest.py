"""SASL DIGEST-MD5 (RFC 2831), which Hive's clients use for delegation tokens, as pure functions."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

REALM: Final = "default"
"""The realm of Hive's servers; clients accept any."""
_NC: Final = "00000001"
_DIRECTIVE: Final = re.compile(r'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|$)')


class DigestError(Exception):
    """The response does not conform to the mechanism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestResponse:
    """A client's identity and the proof of its password."""

    username: str
    realm: str
    nonce: str
    cnonce: str
    digest_uri: str
    response: str = field(repr=False)
    authorization: str = ""

    def is_proven_by(self, password: str) -> bool:
        """Return whether the client knows the password."""
        expected = _digest(self, password, "AUTHENTICATE:")
        return hmac.compare_digest(expected.encode(), self.response.encode("utf-8", "replace"))

    def server_proof(self, password: str) -> bytes:
        """Return the proof that the server knows the password too."""
        return f"rspauth={_digest(self, password, ':')}".encode()


def challenge(nonce: str) -> bytes:
    """Return the server's first message."""
    return (f'realm="{REALM}",nonce="{nonce}",qop="auth",charset=utf-8,algorithm=md5-sess').encode()


def parse_response(payload: bytes, nonce: str) -> DigestResponse:
    """Parse a client's response.

    :raises DigestError: if it is malformed or answers another challenge.
    """
    values = _directives(payload)
    try:
        response = DigestResponse(
            username=values["username"],
            realm=values.get("realm", ""),
            nonce=values["nonce"],
            cnonce=values["cnonce"],
            digest_uri=values["digest-uri"],
            response=values["response"].lower(),
            authorization=values.get("authzid", ""),
        )
    except KeyError as missing:
        raise DigestError(f"the response lacks {missing}") from None
    if not hmac.compare_digest(response.nonce.encode("utf-8", "replace"), nonce.encode()):
        raise DigestError("the response answers another challenge")
    # A higher count would be a subsequent authentication, which is not supported.
    if values.get("nc") != _NC or values.get("qop", "auth") != "auth":
        raise DigestError("only qop=auth and nc=00000001 are supported")
    return response


def _directives(payload: bytes) -> Mapping[str, str]:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise DigestError("the response is not text in UTF-8") from None
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _DIRECTIVE.match(text, position)
        if found is None or found[1].lower() in values:
            raise DigestError("the response is not a list of directives")
        quoted, bare = found[2], found[3]
        values[found[1].lower()] = re.sub(r"\\(.)", r"\1", quoted) if bare is None else bare
        position = found.end()
    return values


def _digest(response: DigestResponse, password: str, method: str) -> str:
    secret = _md5(f"{response.username}:{response.realm}:{password}".encode())
    first = secret + f":{response.nonce}:{response.cnonce}".encode()
    if response.authorization:
        first += f":{response.authorization}".encode()
    second = f"{method}{response.digest_uri}".encode()
    parts = (_md5(first).hex(), response.nonce, _NC, response.cnonce, "auth", _md5(second).hex())
    return _md5(":".join(parts).encode()).hex()


def _md5(data: bytes) -> bytes:
    # The mechanism requires MD5; the secrets of tokens are random, so it cannot be brute-forced.
    return hashlib.md5(data, usedforsecurity=False).digest()
