"""The sessions of Flink's clients beside those of Thrift clients."""

from __future__ import annotations

import pytest

from tests.gateway.rest.parts import Rest
from tidegate_server.core.errors import ServerError
from tidegate_server.gateway.auth.access import build_access
from tidegate_server.gateway.auth.base import ANONYMOUS, Identity, Peer
from tidegate_server.gateway.rest.flink.refresh import name_of
from tidegate_server.gateway.rest.flink.sessions import FlinkSessions, split_properties
from tidegate_server.gateway.session.manager import SessionManager

PEER = Peer(address="127.0.0.1")


def test_only_settings_of_this_server_are_passed_on() -> None:
    settings = {
        "spark.sql.shuffle.partitions": "3",
        "sql-client.verbose": "true",
        "materialized-table.initialize": "ON_CREATE",
        "table.local-time-zone": "UTC",
        "execution.mode": "remote",
        "hive.server2.proxy.user": "ann",
    }
    others = {"rest.port": "8083", "jobmanager.memory.process.size": "1g", "s3.secret-key": "hush"}
    assert split_properties({**settings, **others}) == (settings, others)


def test_a_session_that_was_closed_elsewhere_is_forgotten(rest: Rest) -> None:
    manager = SessionManager(rest.services, rest.prepare)
    sessions = FlinkSessions(rest.config, manager, build_access(rest.config, rest.services.clock))
    one, two = (sessions.open(ANONYMOUS, PEER, {}) for _ in range(2))
    manager.close(one.session)
    with pytest.raises(ServerError, match="INVALID_SESSION_HANDLE"):
        sessions.find(one.handle, ANONYMOUS)
    assert sessions.find(two.handle, ANONYMOUS) is two
    assert len(sessions._open) == 1
    sessions.close(two)
    assert list(manager.sessions()) == []


def test_a_handle_is_not_the_id_of_the_session(rest: Rest) -> None:
    manager = SessionManager(rest.services, rest.prepare)
    sessions = FlinkSessions(rest.config, manager, build_access(rest.config, rest.services.clock))
    session = sessions.open(Identity(user="ann", method="PASSWORD"), PEER, {})
    assert session.handle != session.session.id
    with pytest.raises(ServerError, match="INVALID_SESSION_HANDLE"):
        sessions.find(session.session.id, Identity(user="ann", method="PASSWORD"))


def test_acting_for_another_user_needs_a_permission(rest: Rest) -> None:
    manager = SessionManager(rest.services, rest.prepare)
    sessions = FlinkSessions(rest.config, manager, build_access(rest.config, rest.services.clock))
    ann = Identity(user="ann", method="PASSWORD")
    with pytest.raises(ServerError, match="PROXY_REFUSED"):
        sessions.open(ann, PEER, {"hive.server2.proxy.user": "bob"})
    assert list(manager.sessions()) == []


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        ("t", "c.s.t"),
        ("x.t", "c.x.t"),
        ("k.x.t", "k.x.t"),
        ("`k`.`x.y`.`t``z`", "k.x.y.t`z"),
        ("a.b.c.d", None),
        ("`open.t", None),
        ("a..b", None),
        ("", None),
    ],
)
def test_the_name_in_a_path_may_have_backticks(identifier: str, name: str | None) -> None:
    found = name_of(identifier, "c", "s")
    assert (None if found is None else str(found)) == name
