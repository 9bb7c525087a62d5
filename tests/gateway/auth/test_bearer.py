"""Bearer tokens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tidegate_server.core.config_sections import JwtSection
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth import bearer
from tidegate_server.gateway.auth.base import Identity
from tidegate_server.gateway.auth.bearer import BearerTokens

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
OTHER = rsa.generate_private_key(65537, 2048)
ISSUER, AUDIENCE = "https://login.example", "tidegate"


def document(**keys: Any) -> str:
    found = []
    for key_id, key in keys.items():
        algorithm: Any = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        found.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id})
    return json.dumps({"keys": found})


def claims(**changes: Any) -> dict[str, Any]:
    said = {"sub": "ada", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 300, **changes}
    return {key: value for key, value in said.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", key_id: str = "r", **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": key_id})


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    """A file of two keys."""
    path = tmp_path / "jwks.json"
    path.write_text(document(r=RSA, e=EC))
    return path


@pytest.fixture
def tokens(jwks: Path) -> BearerTokens:
    return BearerTokens(section(str(jwks)))


def section(source: str, **options: Any) -> JwtSection:
    return JwtSection(jwks=source, issuer=ISSUER, audience=AUDIENCE, **options)


def refusal(tokens: BearerTokens, given: str) -> str:
    with pytest.raises(ServerError) as caught:
        tokens.check(given)
    assert (caught.value.code, caught.value.sqlstate) == ("LOGIN_REFUSED", "28000")
    return caught.value.message


@pytest.mark.parametrize(("key", "algorithm", "key_id"), [(RSA, "RS256", "r"), (EC, "ES256", "e")])
def test_a_signed_token_names_its_user(
    tokens: BearerTokens, key: Any, algorithm: str, key_id: str
) -> None:
    assert tokens.check(token(key, algorithm, key_id)) == Identity(user="ada", method="JWT")


def test_another_claim_can_name_the_user(jwks: Path) -> None:
    tokens = BearerTokens(section(str(jwks), user_claim="email"))
    assert tokens.check(token(email="ada@example.org")).user == "ada@example.org"
    assert "email names no user" in refusal(tokens, token())


@pytest.mark.parametrize(
    ("claim", "groups"),
    [
        (["staff", "admins"], ("admins", "staff")),
        ("staff", ("staff",)),
        (["staff", 3, "", " padded "], ("staff",)),
        ([], ()),
        (None, ()),
    ],
)
def test_a_claim_lists_the_groups(jwks: Path, claim: Any, groups: tuple[str, ...]) -> None:
    tokens = BearerTokens(section(str(jwks), groups_claim="roles"))
    assert tokens.check(token(roles=claim)).groups == groups


def test_without_such_a_claim_groups_are_unknown(tokens: BearerTokens) -> None:
    assert tokens.check(token(groups=["staff"])).groups is None


def test_a_claim_of_groups_that_is_not_a_list_is_refused(jwks: Path) -> None:
    tokens = BearerTokens(section(str(jwks), groups_claim="roles"))
    assert "roles is not a list" in refusal(tokens, token(roles={"staff": True}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"aud": "another service"}, "[Aa]udience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example"}, "[Ii]ssuer"),
        ({"iss": None}, "iss"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": 4e9}, "not yet valid"),
        ({"sub": None}, "names no user"),
        ({"sub": " ada"}, "names no user"),
        ({"sub": "unowned"}, "names no user"),
        ({"sub": "ROLE admins"}, "names no user"),
    ],
)
def test_a_claim_that_does_not_fit_is_named(
    tokens: BearerTokens, changes: dict[str, Any], said: str
) -> None:
    import re

    assert re.search(said, refusal(tokens, token(**changes)))


def test_a_token_that_somebody_else_signed_is_refused(tokens: BearerTokens) -> None:
    refusal(tokens, token(OTHER))
    assert "signed with a key" in refusal(tokens, token(OTHER, key_id="unknown"))


def test_a_token_without_a_signature_is_refused(tokens: BearerTokens) -> None:
    unsigned = jwt.encode(claims(), None, "none", headers={"kid": "r"})
    refusal(tokens, unsigned)


def test_a_public_key_is_no_shared_secret(tokens: BearerTokens) -> None:
    """The attack that turns an RS256 key into one of HS256."""
    shared = jwt.encode(claims(), "x" * 32, "HS256", headers={"kid": "r"})
    refusal(tokens, shared)


@pytest.mark.parametrize("given", ["", "x", "a.b.c", "é" * 3, "x" * 20_000])
def test_what_is_no_token_is_refused(tokens: BearerTokens, given: str) -> None:
    refusal(tokens, given)


def test_a_key_that_is_added_is_found(
    jwks: Path, tokens: BearerTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens.check(token())
    jwks.write_text(document(r=RSA, new=OTHER))
    assert "signed with a key" in refusal(tokens, token(OTHER, key_id="new"))
    monkeypatch.setattr(bearer, "_PAUSE", -1.0)
    assert tokens.check(token(OTHER, key_id="new")).user == "ada"


def test_keys_that_cannot_be_read_are_the_servers_fault(tmp_path: Path) -> None:
    with pytest.raises(ServerError) as caught:
        BearerTokens(section(str(tmp_path / "none"))).check(token())
    assert caught.value.code == "LOGIN_UNAVAILABLE"


class Keys(BaseHTTPRequestHandler):
    """Serves the keys, and counts how often."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        data = document(r=RSA).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def keys_url() -> Iterator[str]:
    Keys.asked = 0
    with HTTPServer(("127.0.0.1", 0), Keys) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/keys"
        server.shutdown()
        thread.join()


def test_keys_come_from_a_url_and_strangers_cannot_make_it_asked_often(keys_url: str) -> None:
    tokens = BearerTokens(section(keys_url))
    assert tokens.check(token()).user == "ada"
    for number in range(5):
        refusal(tokens, token(OTHER, key_id=f"unknown {number}"))
    assert Keys.asked == 1
