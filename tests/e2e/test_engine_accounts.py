"""Engines of users under accounts of the operating system, and what these cannot read."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import tidegate
from tests.support.accounts import (
    UNPRIVILEGED,
    Accounts,
    launcher_of_root,
    python_under,
    run,
    unix_accounts,
)
from tests.support.fixtures.server import Server, run_as, running_server
from tests.support.full_run import FULL
from tests.support.metastore import DRIVER, postgres_metastore
from tests.support.waiting import wait_until
from tidegate_server.engine.jvm.jars import CACHE_VARIABLE, JARS, fetch_jars

pytestmark = pytest.mark.faults  # a server of its own

CONFIG = """
[authorization]
enabled = true
administrators = ["root"]
allow = ["paths"]

[engine]
share = "user"
group_reads = true
jars = ["{driver}"]
account = "{account}"
launcher = [{launcher}]

[engine.settings]
{settings}
"""


@dataclass(frozen=True, slots=True)
class House:
    """A server whose engines run under accounts."""

    server: Server
    folder: Path
    accounts: Accounts

    @property
    def others(self) -> int:
        """The rights that an account's files must not grant.

        A gateway that is not root's reaches them as a member of the account's group.
        """
        return 0o077 if self.server.data.stat().st_uid == 0 else 0o007

    def uid(self, user: str) -> int:
        """Return the id of a user's account."""
        return pwd.getpwnam(self.accounts.of(user)).pw_uid

    def engine(self, user: str) -> dict[str, int]:
        """Return the process ids of a user's engine, started if need be."""
        run_as(self.server, user, "SELECT 1")
        wait_until(lambda: user in self.server.ready_info()["engines"], f"{user} has no engine")
        found: dict[str, int] = self.server.ready_info()["engines"][user]
        return found


@pytest.fixture(scope="module", params=["root", "capable"] if FULL else ["capable"])
def house(request: pytest.FixtureRequest) -> Iterator[House]:
    """A server of root's, and one of an account that may only change to others."""
    with (
        unix_accounts("ann", "bob", "gate") as accounts,
        tempfile.TemporaryDirectory(prefix="tghouse", dir="/tmp") as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        folder = Path(place)
        folder.chmod(0o755)
        _share_jars(folder / "jars", patch)
        data = folder / "data"
        data.mkdir()
        file = folder / "tidegate.toml"
        python, words = sys.executable, launcher_of_root(folder)
        if request.param == "capable":
            gate = accounts.of("gate")
            run(
                "usermod",
                "--append",
                "--groups",
                f"{accounts.of('ann')},{accounts.of('bob')}",
                gate,
            )
            python, words = str(python_under(gate, folder)), [*UNPRIVILEGED, "--"]
            for path in (folder, data):
                shutil.chown(path, user=gate)
        shutil.chown(data, group=accounts.group)
        with postgres_metastore(folder) as metastore:
            text = CONFIG.format(
                account=accounts.template,
                launcher=", ".join(f'"{word}"' for word in words),
                driver=metastore.driver,
                settings=metastore.lines,
            )
            file.write_text(text)
            shutil.chown(file, user=data.stat().st_uid)
            file.chmod(0o600)
            with running_server(folder, "--config", str(file), python=python) as server:
                server.wait_for_engine()
                yield House(server, folder, accounts)


def _share_jars(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Give the accounts a directory of jars that they can read."""
    folder.mkdir()
    for jar in fetch_jars((*JARS, DRIVER)):
        shutil.copy(jar, folder)
    for file in folder.iterdir():
        file.chmod(0o644)
    patch.setenv(CACHE_VARIABLE, str(folder))


def _capabilities(pid: int) -> int:
    """Return the capabilities that a process has or could get back."""
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(
        int(status.partition(f"\n{kind}:")[2].split()[0], 16)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")
    )


def test_each_engine_runs_as_its_users_account(house: House) -> None:
    for user in ("ann", "bob"):
        engine = house.engine(user)
        for pid in (engine["pid"], engine["jvm_pid"]):
            uids = Path(f"/proc/{pid}/status").read_text().partition("\nUid:")[2].split("\n")[0]
            assert set(map(int, uids.split())) == {house.uid(user)}
            assert _capabilities(pid) == 0
    assert house.uid("ann") != house.uid("bob")


def test_a_file_of_one_user_cannot_be_read_by_the_engine_of_another(house: House) -> None:
    """The gate lets everybody read paths; the system does not."""
    file = house.folder / "ann.csv"
    file.write_text("1\n")
    file.chmod(0o600)
    os.chown(file, house.uid("ann"), -1)
    query = f"SELECT * FROM csv.`file:{file}`"
    assert run_as(house.server, "ann", query) == [("1",)]
    # Java reports a file that it may not open as one that is not there.
    with pytest.raises(tidegate.Error, match="FAILED_READ_FILE"):
        run_as(house.server, "bob", query)


@pytest.mark.thorough(4)
def test_tables_belong_to_the_account_of_their_executor(house: House) -> None:
    run_as(
        house.server,
        "ann",
        "CREATE SCHEMA ann",
        "CREATE TABLE ann.source AS SELECT 1 AS a",
        "CREATE MATERIALIZED TABLE ann.total FRESHNESS = INTERVAL '1' DAY "
        "AS SELECT sum(a) AS total FROM ann.source",
        "ALTER MATERIALIZED TABLE ann.total REFRESH",
        "GRANT SELECT ON MATERIALIZED TABLE ann.total TO USER bob",
    )
    assert run_as(house.server, "ann", "SELECT total FROM ann.total") == [(1,)]
    warehouse = house.server.data / "warehouse"
    files = list((warehouse / "ann.db").rglob("*"))
    assert len(files) > 5
    assert {path.stat().st_uid for path in files} == {house.uid("ann")}
    # The privilege opens the gate, not the storage, whose table log cannot be listed.
    with pytest.raises(tidegate.Error, match="DELTA_TABLE_NOT_FOUND"):
        run_as(house.server, "bob", "SELECT total FROM ann.total")


def test_an_engine_can_read_the_system_tables(house: House) -> None:
    query = "SELECT table_name FROM information_schema.materialized_tables"
    assert ("total",) in run_as(house.server, "ann", query)


def test_sockets_spools_and_logs_are_for_one_account(house: House) -> None:
    house.engine("ann")
    place = house.server.data / "engines" / "ann"
    assert place.stat().st_uid == house.uid("ann")
    assert place.stat().st_mode & house.others == 0
    connections = psutil.Process(house.engine("ann")["pid"]).net_connections("unix")
    sockets = [Path(c.laddr) for c in connections if str(c.laddr).endswith("engine.sock")]
    assert sockets
    for folder in (socket.parent for socket in sockets):
        assert folder.stat().st_uid == house.uid("ann")
        assert folder.stat().st_mode & house.others == 0


def test_a_user_without_an_account_is_refused_before_anything_starts(house: House) -> None:
    before = {process.pid for process in house.server.processes()}
    with pytest.raises(tidegate.Error, match="ENGINE_ACCOUNT") as caught:
        run_as(house.server, "eva", "SELECT 1")
    assert "there is no such account" in str(caught.value)
    assert {process.pid for process in house.server.processes()} <= before


@pytest.mark.thorough(4)
def test_a_killed_engine_comes_back_under_its_account(house: House) -> None:
    first = house.engine("ann")
    os.kill(first["pid"], 9)
    wait_until(lambda: not psutil.pid_exists(first["jvm_pid"]), "Java outlives its engine")
    wait_until(
        lambda: house.server.ready_info()["engines"].get("ann", first) != first,
        "no other engine comes up",
    )
    assert psutil.Process(house.engine("ann")["pid"]).uids().real == house.uid("ann")


def test_a_stopped_gateway_ends_even_an_engine_that_does_not_react(house: House) -> None:
    ann, bob = house.engine("ann"), house.engine("bob")
    os.kill(ann["pid"], signal.SIGSTOP)
    assert house.server.stop() == 0
    for pid in (ann["pid"], ann["jvm_pid"], bob["pid"], bob["jvm_pid"]):
        wait_until(lambda pid=pid: not psutil.pid_exists(pid), "an engine outlives its gateway")
