"""No secret of a statement or a message survives; everything else stays as it is."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate_server.core.model.secrets import REDACTED, is_sensitive
from tidegate_server.core.sql.redact import (
    redact,
    redact_start,
    secrets_in,
    without,
)

MARK = "Hush7Hush"
"""Part of every secret here, and of nothing else."""

KEYS = (
    "password",
    "PASSWD",
    "db.Password",
    "fs.s3a.secret.key",
    "fs.s3a.access.key",
    "awsSecretAccessKey",
    "fs.azure.account.key.store.dfs.core.windows.net",
    "private_key",
    "clientCredential",
    "access_token",
    "api-key",
    "sas",
    "connectionString",
    "trustStorePassphrase",
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("OPTIONS (password 'x7x', user 'ann')", "OPTIONS (password '*****', user 'ann')"),
        ("OPTIONS ('password' = \"x7x\")", "OPTIONS ('password' = \"*****\")"),
        ("f(password => 'x7x', n => 1)", "f(password => '*****', n => 1)"),
        ("OPTIONS (password'x7x')", "OPTIONS (password'*****')"),
        ("OPTIONS (password 1234, n 5)", "OPTIONS (password *****, n 5)"),
        ("map('password', 'x7x', 'a', 'b')", "map('password', '*****', 'a', 'b')"),
        (
            "OPTIONS (password concat('x7x', upper('x7x')), user 'ann')",
            "OPTIONS (password concat('*****', upper('*****')), user 'ann')",
        ),
        (
            "SELECT id, token FROM t WHERE day = '1' AND token = 'x7x'",
            "SELECT id, token FROM t WHERE day = '1' AND token = '*****'",
        ),
        (
            "INSERT INTO u (name, password) VALUES ('ann', 'x7x', 5)",
            "INSERT INTO u (name, password) VALUES ('*****', '*****', *****)",
        ),
        ("SET spark.x.password = x7x y", "SET spark.x.password = *****"),
        ("SET spark.x.password=x7x", "SET spark.x.password=*****"),
        ("postgresql://ann:x7x@db:5432/t", "postgresql://ann:*****@db:5432/t"),
        ("'jdbc:x://h/d?user=a&password=x7x&ssl=1'", "'jdbc:x://h/d?user=a&password=*****&ssl=1'"),
        ("jdbc:sqlserver://h;password={x;7};a=b", "jdbc:sqlserver://h;password=*****;a=b"),
        ("jdbc:oracle:thin:ann/x7x@//h/s", "jdbc:oracle:thin:ann/*****@//h/s"),
        ("AccountKey=x7x==;Endpoint=e", "AccountKey=*****;Endpoint=e"),
        ("https://h/c?sv=1&sig=x7x&se=2", "https://h/c?sv=1&sig=*****&se=2"),
        ("Authorization: Bearer x7x", "Authorization: Bearer *****"),
        ("-- password 'x7x'\nSELECT 1", "-- password '*****'\nSELECT 1"),
        ("Can't parse OPTIONS (password 'x7x')", "Can't parse OPTIONS (password '*****')"),
        ("it's OPTIONS (password'x7x')", "it's OPTIONS (password'*****')"),
    ],
)
def test_values_of_secrets_are_replaced(given: str, expected: str) -> None:
    assert redact(given) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'my password' AS x, 'other' FROM t WHERE y = 'z'",
        "http://host:8080/path?mail=ann@example.org",
        "SELECT count(DISTINCT passwords) FROM t",
        "A column `password` cannot be resolved. Did you mean [`a`, `note`].",
        "INSERT INTO u (name, note) VALUES ('ann', 'x')",
        "authorization.enabled is set but authentication is off",
        "SELECT 'Kansas' AS state",
    ],
)
def test_what_is_not_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_names_of_options_are_told_apart() -> None:
    assert all(map(is_sensitive, KEYS))
    assert not any(map(is_sensitive, ("user", "url", "dbtable", "Kansas", "key", "path")))


_inner = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
_noise = st.text(st.sampled_from(string.ascii_letters + " \n.,;()=-/*@:`\\"), max_size=30)
_quoted_noise = st.text(st.sampled_from(string.ascii_letters + " '\"\n()\\`-"), max_size=30)


def _literal(value: str, quote: str, escape: str) -> str:
    """Write a value as a literal of Spark, with its quotes escaped or doubled."""
    return quote + value.replace("\\", "\\\\").replace(quote, escape + quote) + quote


@st.composite
def assignments(draw: st.DrawFn) -> str:
    """An option with a secret value, in one of the ways in which Spark takes it."""
    value = draw(_inner) + MARK + draw(_inner)
    key = draw(st.sampled_from(KEYS))
    wrapped = draw(st.sampled_from(["{}", "'{}'", '"{}"', "`{}`"])).format(key)
    between = draw(st.sampled_from([" ", " = ", "=", " => ", "=>", " : ", "\n", "  =\n"]))
    quote = draw(st.sampled_from("'\""))
    literal = _literal(value, quote, draw(st.sampled_from(["\\", quote])))
    prefix = draw(st.sampled_from(["", "", "'a' ", "N"])) if between.strip() else ""
    return f"{wrapped}{between}{prefix}{literal}"


@given(_quoted_noise, assignments(), _quoted_noise)
@example("SELECT 'the password ', x; ", f"password '{MARK}'", "")
def test_no_surroundings_hide_a_secret(before: str, secret: str, after: str) -> None:
    assert MARK not in redact(f"{before} {secret} {after}")


@given(_noise, assignments(), st.integers(min_value=0, max_value=200))
def test_a_text_cut_anywhere_hides_its_secret(before: str, secret: str, cut: int) -> None:
    shown = redact(f"{before} {secret}"[:cut])
    assert not any(part in shown for part in (MARK, MARK[:6]))


_word = st.text(
    st.sampled_from(string.ascii_letters + string.digits + "!#$%*+-._~|<>?"), max_size=9
)


@given(_word, _word, _quoted_noise, _quoted_noise)
def test_no_password_of_a_url_survives(front: str, back: str, before: str, after: str) -> None:
    value = f"x{front}{MARK}{back}"
    for url in (f"jdbc:postgresql://ann:{value}@db:5432/t", f"https://h/?a=b&password={value}&c=d"):
        assert MARK not in redact(f"{before} {url} {after}")


@given(st.text())
def test_text_without_secrets_is_unchanged(text: str) -> None:
    if not re.search(r"pass|pwd|secret|token|cred|key|string|sas|sig|@|authorization", text, re.I):
        assert redact(text) == text


@given(_quoted_noise, assignments(), _quoted_noise)
def test_redacting_twice_changes_nothing_that_matters(a: str, secret: str, b: str) -> None:
    once = redact(f"{a} {secret} {b}")
    assert MARK not in redact(once)
    assert REDACTED in once


def test_a_message_may_quote_a_secret_without_its_name() -> None:
    statement = "CREATE TABLE t USING jdbc OPTIONS password 'x7x7x')"
    shown = without(secrets_in(statement), "Syntax error at or near ''x7x7x''")
    assert shown == "Syntax error at or near ''*****''"


def test_a_long_statement_is_read_up_to_a_limit() -> None:
    statement = f"INSERT INTO t OPTIONS (password '{MARK}') VALUES {'(1), ' * 100_000}"
    assert MARK not in redact_start(statement)
    assert len(redact_start(statement)) < len(statement)
