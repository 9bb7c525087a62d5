"""The audit log of a real server with two users and an administrator."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

import tidegate
from tests.support.fixtures.server import Server, running_server
from tests.support.waiting import wait_until
from tidegate_server.gateway.auth.passwords import set_password

pytestmark = pytest.mark.faults  # a server of its own

CONFIG = """
[server]
auth = "PASSWORD"
http_token = "open-sesame"

[authorization]
enabled = true
administrators = ["root"]

[engine]
group_reads = true

[options]
"materialized-table.initialize" = "ON_CREATE"

[login]
password_file = "{users}"
"""
TOTALS = "spark_catalog.shop.totals"


@dataclass(frozen=True)
class Audited:
    """A server, and the lines that its audit log has gained since they were last read."""

    server: Server

    @property
    def file(self) -> Path:
        return self.server.data / "audit" / "audit.jsonl"

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]

    def run(self, user: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements; return the rows of the last one."""
        login = {"user": user, "password": user}
        with (
            closing(self.server.connect(**login)) as connection,
            closing(connection.cursor()) as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def denied(self, user: str, statement: str) -> str:
        """Run a statement that must be denied; return its message."""
        with pytest.raises(tidegate.Error) as caught:
            self.run(user, statement)
        assert caught.value.sqlstate == "42501", caught.value
        return str(caught.value)

    def line(self, user: str, statement: str) -> dict[str, Any]:
        """Return the line of a user's last statement with this text."""
        found = [
            each
            for each in self.lines
            if (each["event"], each["user"]) == ("statement", user)
            and statement in str(each["text"])
        ]
        assert found, statement
        return found[-1]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("audited")
    users = folder / "users"
    for user in ("root", "ann", "bob"):
        set_password(users, user, user)
    file = folder / "tidegate.toml"
    file.write_text(CONFIG.format(users=users))
    file.chmod(0o600)
    with running_server(folder, "--config", str(file)) as server:
        server.wait_for_engine()
        found = Audited(server)
        found.run(
            "ann",
            "CREATE SCHEMA shop",
            "CREATE TABLE shop.orders AS SELECT id, id % 3 AS k FROM range(9)",
            "CREATE MATERIALIZED TABLE shop.totals FRESHNESS = INTERVAL '1' DAY "
            "AS SELECT k, count(*) AS c FROM shop.orders GROUP BY k",
        )
        yield found


def objects(line: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(each["act"], each["kind"], each["name"]) for each in line["objects"]}


def test_statements_are_recorded_with_their_objects_allowed_or_not(audited: Audited) -> None:
    query = "SELECT count(*) FROM shop.totals"
    read = ("SELECT", "TABLE", TOTALS)
    assert audited.run("ann", query) == [(3,)]
    line = audited.line("ann", query)
    assert (line["allowed"], line["outcome"], line["reason"]) == (True, "SUCCESS", None)
    assert (line["statement_kind"], line["real_user"]) == ("SELECT", "ann")
    assert (line["address"], objects(line)) == ("127.0.0.1", {read})
    assert line["duration_ms"] > 0

    audited.denied("bob", query)
    line = audited.line("bob", query)
    assert (line["allowed"], line["outcome"]) == (False, "ACCESS_DENIED")
    assert line["reason"] == f"User bob needs SELECT on materialized table {TOTALS}."
    assert objects(line) == {read}

    grant = "GRANT SELECT ON MATERIALIZED TABLE shop.totals TO USER bob"
    audited.run("ann", grant)
    assert objects(audited.line("ann", grant)) == {("GRANT", "MATERIALIZED TABLE", TOTALS)}
    immediate = f"EXECUTE IMMEDIATE '{query}'"
    assert audited.run("bob", immediate) == [(3,)]
    assert read in objects(audited.line("bob", immediate))
    audited.run("root", query)
    line = audited.line("root", query)
    assert (line["allowed"], line["reason"], line["objects"]) == (True, "administrator", [])


def test_passwords_in_statements_are_replaced(audited: Audited) -> None:
    create = "CREATE TABLE shop.safe (a INT) USING parquet OPTIONS ("
    audited.denied("ann", f"{create}password 'Hush7')")
    audited.run("root", f"{create}password 'Hush7')")
    for user in ("ann", "root"):
        assert audited.line(user, "shop.safe")["text"] == f"{create}password '*****')"
    assert "Hush7" not in audited.file.read_text()


def test_logins_are_recorded_however_they_end(audited: Audited) -> None:
    audited.run("bob", "SELECT 1")
    session = audited.line("bob", "SELECT 1")["session_id"]
    [line] = [each for each in audited.lines if each["session_id"] == session][:1]
    assert (line["event"], line["user"], line["allowed"]) == ("login", "bob", True)
    for transport in ("binary", "http"):
        with pytest.raises(tidegate.OperationalError, match="password is wrong"):
            audited.server.connect(user="mallory", password="x", transport=transport)
        line = audited.lines[-1]
        told = ("event", "user", "address", "allowed", "outcome")
        wanted = ["login", "mallory", "127.0.0.1", False, "LOGIN_REFUSED"]
        assert [line[key] for key in told] == wanted
    with pytest.raises(tidegate.Error, match="PROXY_REFUSED"):
        audited.server.connect(
            user="bob", password="bob", settings={"hive.server2.proxy.user": "root"}
        )
    line = audited.lines[-1]
    assert (line["user"], line["real_user"], line["outcome"]) == ("root", "bob", "PROXY_REFUSED")


def test_refreshes_are_recorded_with_their_executor(audited: Audited) -> None:
    audited.run("root", "ALTER MATERIALIZED TABLE shop.totals REFRESH")
    line = audited.lines[-1]
    if line["event"] != "refresh":
        line = next(each for each in reversed(audited.lines) if each["event"] == "refresh")
    assert (line["user"], line["real_user"], line["allowed"]) == ("ann", "root", True)
    assert line["statement_kind"] == "MANUAL"
    assert line["operation_id"] == audited.line("root", "REFRESH")["operation_id"]
    assert objects(line) == {
        ("REFRESH", "MATERIALIZED TABLE", TOTALS),
        ("SELECT", "TABLE", "spark_catalog.shop.orders"),
    }

    audited.run("root", "ALTER TABLE shop.orders SET OWNER TO USER root")
    with pytest.raises(tidegate.Error):
        audited.run("root", "ALTER MATERIALIZED TABLE shop.totals REFRESH FULL")
    line = next(each for each in reversed(audited.lines) if each["event"] == "refresh")
    assert (line["allowed"], line["outcome"]) == (False, "ACCESS_DENIED")
    audited.run("root", "ALTER TABLE shop.orders SET OWNER TO USER ann")


def test_calls_of_the_rest_interface_are_recorded(audited: Audited) -> None:
    port = audited.server.ready_info()["http_port"]
    url = f"http://127.0.0.1:{port}/v1/materialized-tables/shop.totals"
    assert httpx.get(url).status_code == 401
    line = audited.lines[-1]
    assert (line["event"], line["address"], line["allowed"]) == ("login", "127.0.0.1", False)
    header = {"Authorization": "Bearer open-sesame"}
    assert httpx.get(url, headers=header).status_code == 403
    line = audited.lines[-1]
    assert (line["event"], line["user"], line["outcome"]) == ("rest", "rest", "ACCESS_DENIED")
    assert line["text"] == "GET /v1/materialized-tables/shop.totals"
    assert objects(line) == {("SEE", "MATERIALIZED TABLE", TOTALS)}

    audited.run("ann", "GRANT ALTER ON MATERIALIZED TABLE shop.totals TO USER rest")
    for action in ("suspend", "resume"):
        assert httpx.post(f"{url}/{action}", headers=header).status_code == 200
        line = audited.lines[-1]
        assert (line["event"], line["allowed"]) == ("rest", True)
        assert objects(line) == {("ALTER", "MATERIALIZED TABLE", TOTALS)}


def test_administrators_read_it_as_a_table(audited: Audited) -> None:
    audited.run("bob", "SELECT 'a mark'")
    rows = audited.run(
        "root",
        "SELECT user, allowed, from_json(objects, 'array<struct<name string>>').name, time "
        "FROM information_schema.audit_log WHERE text LIKE '%a mark%' AND user = 'bob'",
    )
    [(user, allowed, names, time)] = rows
    assert (user, allowed) == ("bob", True)
    assert names in ("[]", [])
    assert time.year > 2000
    [(count,)] = audited.run("root", "SELECT count(*) FROM information_schema.audit_log")
    # The line of a statement follows its end.
    wait_until(lambda: len(audited.lines) == count + 1, "the log has other lines than its table")


def test_other_users_do_not_read_it_in_any_way(audited: Audited) -> None:
    log = "information_schema.audit_log"
    audited.run(
        "root",
        f"CREATE OR REPLACE VIEW shop.peek AS SELECT * FROM {log}",
        "GRANT SELECT ON VIEW shop.peek TO USER ann",
    )
    told = audited.denied("ann", f"SELECT * FROM {log}")
    assert "User ann needs administration on information_schema.audit_log." in told
    for statement in (
        "SELECT * FROM shop.peek",
        f"SELECT (SELECT max(user) FROM {log})",
        f"EXECUTE IMMEDIATE 'SELECT * FROM {log}'",
        f"CREATE VIEW shop.mine AS SELECT * FROM {log}",
        f"CREATE TABLE shop.copy AS SELECT * FROM {log}",
        f"CREATE TABLE shop.copy SHALLOW CLONE {log}",
        f"CREATE MATERIALIZED TABLE shop.mine AS SELECT * FROM {log}",
        f"DESCRIBE HISTORY {log}",
        f"DESCRIBE {log}",
        f"SHOW CREATE TABLE {log}",
        f"DELETE FROM {log}",
        f"DROP TABLE {log}",
        f"SELECT * FROM delta.`{audited.server.data}/audit/audit_log`",
        f"SELECT * FROM json.`{audited.file}`",
    ):
        audited.denied("ann", statement)
        assert not audited.lines[-1]["allowed"]


def test_an_administrator_can_show_a_part_of_it_to_others(audited: Audited) -> None:
    audited.run("bob", "SELECT 'shown'")
    audited.run(
        "root",
        "SELECT count(*) FROM information_schema.audit_log",  # populates it
        "CREATE MATERIALIZED TABLE shop.shown FRESHNESS = INTERVAL '1' DAY AS "
        "SELECT text FROM information_schema.audit_log WHERE user = 'bob'",
        "GRANT SELECT ON MATERIALIZED TABLE shop.shown TO USER ann",
    )
    assert ("SELECT 'shown'",) in audited.run("ann", "SELECT text FROM shop.shown")
    audited.run("root", "ALTER MATERIALIZED TABLE shop.shown SET EXECUTE AS USER bob")
    audited.denied("root", "ALTER MATERIALIZED TABLE shop.shown REFRESH FULL")


def test_only_the_servers_user_reads_the_files(audited: Audited) -> None:
    assert stat.S_IMODE(audited.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(audited.file.parent.stat().st_mode) == 0o700
    assert (audited.file.parent / "audit_log" / "_delta_log").is_dir()
    assert stat.S_IMODE((audited.server.data / "system").stat().st_mode) == 0o750
