"""Refused logins are counted, and nothing else changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.gateway.command.fakes import FixedClock
from tidegate_server.core.config import Config
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.audit.file import RotatedFile
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.auth.access import build_access
from tidegate_server.gateway.auth.base import Identity, Peer
from tidegate_server.gateway.observability.metrics import Metrics
from tidegate_server.gateway.protocol.rejections import watch_rejections

HOME = Peer(address="127.0.0.1")


def test_a_refused_password_and_a_refused_token_are_counted_and_recorded(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("")
    config = Config.model_validate(
        {"server": {"auth": "PASSWORD"}, "login": {"password_file": str(users)}}
    )
    metrics = Metrics()
    file = tmp_path / "audit.jsonl"
    audit = AuditLog(RotatedFile(file, max_bytes=1 << 20, max_files=2), clock=FixedClock())
    access = watch_rejections(build_access(config, FixedClock()), metrics, audit)
    for attempt in (access.with_password("ann", "wrong", HOME), access.with_bearer("x.y.z", HOME)):
        with pytest.raises(ServerError) as caught:
            asyncio.run(attempt)
        assert caught.value.code == "LOGIN_REFUSED"
    assert 'authentication_failures_total{port="thrift"} 2.0' in metrics.text().decode()
    ann = Identity(user="ann", method="PASSWORD")
    with pytest.raises(ServerError):
        access.effective_user(ann, "eva", HOME)
    assert access.effective_user(ann, "ann", HOME) == "ann"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["user"], each["real_user"], each["outcome"]) for each in lines] == [
        ("ann", "ann", "LOGIN_REFUSED"),
        (None, None, "LOGIN_REFUSED"),
        ("eva", "ann", "PROXY_REFUSED"),
    ]
    told = {(each["event"], each["address"], each["allowed"]) for each in lines}
    assert told == {("login", "127.0.0.1", False)}


def test_a_login_that_is_let_in_is_not_counted() -> None:
    metrics = Metrics()
    access = watch_rejections(build_access(Config(), FixedClock()), metrics, AuditLog())
    assert asyncio.run(access.with_password("ann", "any", HOME)).user == "ann"
    assert 'port="thrift"' not in metrics.text().decode()
