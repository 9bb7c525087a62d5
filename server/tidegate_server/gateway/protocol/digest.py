"""SASL DIGEST-MD5 (RFC 2831), which Hive's clients use for delegation tokens, as pure functions."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

REALM: Final = "default"
"""What Hive's servers say; its clients take it as it comes."""
_NC: Final = "00000001"
_DIRECTIVE: Final = re.compile(r'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?:,|$)')


class DigestError(Exception):
    """The response is not of the form that the mechanism asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestResponse:
    """What a client says about itself and as proof of its password."""

    username: str
    realm: str
    nonce: str
    cnonce: str
    digest_uri: str
    response: str = field(repr=False)
    authorization: str = ""

    def proven_by(self, password: str) -> bool:
        """Tell whether the client knows the password."""
        expected = _digest(self, password, "AUTHENTICATE:")
        return hmac.compare_digest(expected.encode(), self.response.encode("utf-8", "replace"))

    def answer(self, password: str) -> bytes:
        """Return the proof that the server knows the password too."""
        return f"rspauth={_digest(self, password, ':')}".encode()


def challenge(nonce: str) -> bytes:
    """Return what the server begins with."""
    return (f'realm="{REALM}",nonce="{nonce}",qop="auth",charset=utf-8,algorithm=md5-sess').encode()


def parse_response(payload: bytes, nonce: str) -> DigestResponse:
    """Take a client's response apart.

    :raises DigestError: if it is not of the right form or answers another challenge.
    """
    told = _directives(payload)
    try:
        response = DigestResponse(
            username=told["username"],
            realm=told.get("realm", ""),
            nonce=told["nonce"],
            cnonce=told["cnonce"],
            digest_uri=told["digest-uri"],
            response=told["response"].lower(),
            authorization=told.get("authzid", ""),
        )
    except KeyError as missing:
        raise DigestError(f"the response lacks {missing}") from None
    if not hmac.compare_digest(response.nonce.encode("utf-8", "replace"), nonce.encode()):
        raise DigestError("the response answers another challenge")
    # A count above the first would be a login repeated, which nobody was offered.
    if told.get("nc") != _NC or told.get("qop", "auth") != "auth":
        raise DigestError("only qop=auth and nc=00000001 are offered")
    return response


def _directives(payload: bytes) -> Mapping[str, str]:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        raise DigestError("the response is not text in UTF-8") from None
    told: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _DIRECTIVE.match(text, position)
        if found is None or found[1].lower() in told:
            raise DigestError("the response is no list of directives")
        quoted, bare = found[2], found[3]
        told[found[1].lower()] = re.sub(r"\\(.)", r"\1", quoted) if bare is None else bare
        position = found.end()
    return told


def _digest(said: DigestResponse, password: str, method: str) -> str:
    secret = _md5(f"{said.username}:{said.realm}:{password}".encode())
    first = secret + f":{said.nonce}:{said.cnonce}".encode()
    if said.authorization:
        first += f":{said.authorization}".encode()
    second = f"{method}{said.digest_uri}".encode()
    parts = (_md5(first).hex(), said.nonce, _NC, said.cnonce, "auth", _md5(second).hex())
    return _md5(":".join(parts).encode()).hex()


def _md5(data: bytes) -> bytes:
    # The mechanism knows no other; it guards the exchange, while the token's secret is random.
    return hashlib.md5(data, usedforsecurity=False).digest()
