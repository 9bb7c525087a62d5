"""A server with passwords and TLS, as its processes run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import tidegate
from tests.gateway.protocol.certificates import authority
from tests.support.fixtures.server import Beeline, StartServer
from tidegate_server.gateway.auth.passwords import set_password

pytestmark = pytest.mark.faults


def total(connection: tidegate.Connection) -> int:
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute("SELECT sum(id) FROM range(10)")
        [(answer,)] = cursor.fetchall()
        return int(answer)


def test_a_guarded_server_runs_statements_over_every_transport(
    start_server: StartServer, tmp_path: Path
) -> None:
    issuer, users = authority(tmp_path / "issuer"), tmp_path / "users"
    set_password(users, "ada", "lovelace")
    server = start_server(
        "--set=server.auth=PASSWORD",
        f"--set=login.password_file={users}",
        f"--set=tls.certificate={issuer.server['certificate']}",
        f"--set=tls.key={issuer.server['key']}",
    )
    server.wait_for_engine()
    login = {"user": "ada", "password": "lovelace", "ssl": True, "ca": issuer.file}
    for transport in ("binary", "http"):
        assert total(server.connect(**login, transport=transport)) == 45
    with server.connect(**login) as connection:
        token = connection.delegation_token()
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET day = 1")
            cursor.execute("SELECT '${env:HOME} ${system:user.home} ${day}'")
            assert cursor.fetchall() == [("${env:HOME} ${system:user.home} 1",)]
            with pytest.raises(tidegate.ProgrammingError, match="ACCESS_DENIED"):
                cursor.execute("SET spark.sql.variable.substitute = true")
    assert total(server.connect(auth="TOKEN", token=token)) == 45
    with pytest.raises(tidegate.OperationalError, match="password is wrong"):
        server.connect(**{**login, "password": "wrong"})
    done = Beeline(tmp_path, server.url).run(
        "SELECT sum(id) FROM range(10)", options=("--silent=true", "-p", "lovelace"), user="ada"
    )
    assert done.stdout.splitlines()[1:] == ["45"], done.stderr
    assert "lovelace" not in server.logs(10_000)
