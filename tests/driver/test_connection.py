"""Sessions: opened, used, lost, closed."""

from __future__ import annotations

import socket
import sys
import threading

import pytest

import tidegate
from tests.driver.fake_server import Answer, FakeServer
from tidegate.network.channel import FairLock
from tidegate.network.transport import SocketTransport
from tidegate.wire.service import ttypes

NUMBERS = Answer([("n", "INT")], [(1,)])


def test_user_and_password_go_out_by_plain() -> None:
    with (
        FakeServer() as server,
        tidegate.connect("127.0.0.1", server.port, "ann", "pw", auth="LDAP"),
    ):
        (credentials,) = server.credentials
        assert (credentials.user, credentials.password) == ("ann", "pw")


def test_a_server_without_sasl_is_spoken_to_plainly() -> None:
    with (
        FakeServer({"q": NUMBERS}, auth="NOSASL") as server,
        tidegate.connect("127.0.0.1", server.port, auth="NOSASL") as connection,
    ):
        assert connection.cursor().execute("q").fetchall() == [(1,)]


def test_schema_and_settings_open_the_session() -> None:
    settings = {"spark.x": "1", "hivevar:v": "2", "hive.server2.proxy.user": "bob"}
    with (
        FakeServer() as server,
        tidegate.connect("127.0.0.1", server.port, schema="s", settings=settings),
    ):
        (request,) = server.requests("OpenSession")
        assert request.configuration.items() >= {
            ("use:database", "s"),
            ("set:hiveconf:spark.x", "1"),
            ("set:hivevar:v", "2"),
            ("hive.server2.proxy.user", "bob"),
        }


def test_a_server_older_than_the_protocol_is_asked_again_for_an_old_one() -> None:
    v8 = ttypes.TProtocolVersion.HIVE_CLI_SERVICE_PROTOCOL_V8
    with (
        FakeServer({"q": NUMBERS}, newest=v8) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
    ):
        assert connection.cursor().execute("q").fetchall() == [(1,)]


def test_a_url_names_the_server_and_arguments_override_it() -> None:
    with FakeServer() as server:
        url = f"tidegate://ann@127.0.0.1:{server.port}/s?spark.x=1"
        tidegate.connect(url, schema="other").close()
        (request,) = server.requests("OpenSession")
        assert request.username == "ann"
        assert request.configuration["use:database"] == "other"
        assert request.configuration["set:hiveconf:spark.x"] == "1"


def test_the_exceptions_are_found_at_the_connection() -> None:
    names = [name for name in tidegate.__all__ if name.endswith("Error")]
    for name in [*names, "Warning"]:
        assert getattr(tidegate.Connection, name) is getattr(tidegate, name)


def test_the_server_suggests_how_many_rows_to_fetch() -> None:
    key = "hive.server2.thrift.resultset.default.fetch.size"
    with (
        FakeServer({"q": NUMBERS}, configuration={key: "77"}) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
    ):
        connection.cursor().execute("q").fetchall()
        assert {request.maxRows for request in server.requests("FetchResults")} == {77}


def test_the_user_may_choose_how_many_rows_to_fetch() -> None:
    with (
        FakeServer({"q": NUMBERS}) as server,
        tidegate.connect("127.0.0.1", server.port, fetch_size=5) as connection,
    ):
        connection.cursor().execute("q").fetchall()
        assert {request.maxRows for request in server.requests("FetchResults")} == {5}


def test_a_refused_connection_is_told_in_one_sentence_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(tidegate.OperationalError, match=f"refused by 127.0.0.1:{port}") as caught:
        tidegate.connect("127.0.0.1", port)
    assert caught.value.sqlstate == "08001"


def test_an_unknown_host_is_an_operational_error() -> None:
    with pytest.raises(tidegate.OperationalError, match=r"cannot connect to nowhere\.invalid"):
        tidegate.connect("nowhere.invalid")


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(tidegate.OperationalError, match="no answer from") as caught:
            tidegate.connect("127.0.0.1", port, connect_timeout=0.1)
    assert "auth=NONE" in (caught.value.hint or "")


def test_refused_credentials_name_what_to_check() -> None:
    with FakeServer() as server, pytest.raises(tidegate.OperationalError) as caught:
        tidegate.connect("127.0.0.1", server.port, password="wrong")
    assert "no such user" in str(caught.value)
    assert caught.value.sqlstate == "28000"


def test_an_unknown_schema_fails_with_the_servers_words() -> None:
    with FakeServer() as server, pytest.raises(tidegate.ProgrammingError, match="no schema"):
        tidegate.connect("127.0.0.1", server.port, schema="nowhere")


def test_an_unknown_auth_is_refused_before_connecting() -> None:
    with pytest.raises(tidegate.NotSupportedError, match="auth=MAGIC"):
        tidegate.connect("127.0.0.1", 1, auth="MAGIC")


def test_a_lost_connection_is_told_so_and_counts_as_closed() -> None:
    with FakeServer() as server:
        connection = tidegate.connect("127.0.0.1", server.port)
        server.drop_connections()
        with pytest.raises(tidegate.OperationalError, match="connection lost") as caught:
            connection.ping()
        assert caught.value.sqlstate == "08006"
        assert connection.closed
        assert not connection.is_alive()
        connection.close()


def test_a_live_session_answers() -> None:
    with FakeServer() as server, tidegate.connect("127.0.0.1", server.port) as connection:
        assert connection.is_alive()


def test_closing_ends_the_session_once() -> None:
    with FakeServer() as server:
        connection = tidegate.connect("127.0.0.1", server.port)
        connection.close()
        connection.close()
        assert len(server.requests("CloseSession")) == 1


def test_a_closed_connection_refuses() -> None:
    with FakeServer() as server:
        with tidegate.connect("127.0.0.1", server.port) as connection:
            cursor = connection.cursor()
        with pytest.raises(tidegate.InterfaceError, match="connection is closed"):
            connection.cursor()
        with pytest.raises(tidegate.InterfaceError, match="connection is closed"):
            cursor.execute("q")


def test_idle_connections_are_kept_alive() -> None:
    with FakeServer() as server:
        transport = SocketTransport(("127.0.0.1", server.port), timeout=10)
        transport.open()
        opened = transport._require_socket()
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        transport.close()


def test_there_is_nothing_to_roll_back() -> None:
    with FakeServer() as server, tidegate.connect("127.0.0.1", server.port) as connection:
        connection.commit()
        with pytest.raises(tidegate.NotSupportedError):
            connection.rollback()


def test_a_call_that_the_server_does_not_know_leaves_the_connection_in_step() -> None:
    with (
        FakeServer({"q": NUMBERS}, unknown=["GetCatalogs"]) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
    ):
        cursor = connection.cursor()
        with pytest.raises(tidegate.NotSupportedError, match="GetCatalogs"):
            cursor.catalogs()
        assert cursor.execute("q").fetchall() == [(1,)]


def test_any_transport_can_be_spoken_over() -> None:
    with FakeServer({"q": NUMBERS}) as server:

        def transport() -> SocketTransport:
            return SocketTransport(("127.0.0.1", server.port), timeout=10)

        with tidegate.connect("elsewhere", transport=transport) as connection:
            assert connection.cursor().execute("q").fetchall() == [(1,)]


def test_threads_share_a_connection() -> None:
    with (
        FakeServer({"q": Answer([("n", "INT")], [(1,)] * 5, page=1)}) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
    ):
        found: list[int] = []

        def run() -> None:
            for _ in range(5):
                found.append(len(connection.cursor().execute("q").fetchall()))  # noqa: PERF401

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert found == [5] * 20


def test_the_lock_is_given_in_the_order_of_asking() -> None:
    lock, order = FairLock(), []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = []
    with lock:
        for number in range(5):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            while len(lock._waiting) <= number:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join(10)
    assert order == list(range(5))
    assert not lock.held


def test_arrow_is_asked_for_when_pyarrow_is_there() -> None:
    with FakeServer() as server:
        tidegate.connect("127.0.0.1", server.port).close()
        (request,) = server.requests("OpenSession")
        assert request.configuration["tidegate.result.format"] == "arrow"


def test_arrow_is_not_asked_for_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connection.find_spec", lambda name: None)
    with FakeServer() as server:
        tidegate.connect("127.0.0.1", server.port).close()
        (request,) = server.requests("OpenSession")
        assert "tidegate.result.format" not in request.configuration


def test_arrow_results_without_pyarrow_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        FakeServer({"q": NUMBERS}) as server,
        tidegate.connect("127.0.0.1", server.port) as connection,
    ):
        cursor = connection.cursor().execute("q")
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(tidegate.NotSupportedError) as caught:
            cursor.fetch_arrow_table()
        assert "tidegate[arrow]" in (caught.value.hint or "")


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
    return port


def test_the_next_host_is_used_when_one_is_down() -> None:
    with FakeServer({"q": NUMBERS}) as server:
        hosts = f"127.0.0.1:{unused_port()},127.0.0.1:{server.port}"
        for host in (hosts, f"tidegate://{hosts}/s", f"jdbc:hive2://{hosts}/s"):
            with tidegate.connect(host) as connection:
                assert connection.cursor().execute("q").fetchall() == [(1,)]
                assert f"127.0.0.1:{server.port}" in repr(connection)
        assert server.connections == 3


def test_no_host_of_several_is_up() -> None:
    ports = unused_port(), unused_port()
    with pytest.raises(tidegate.OperationalError, match="none of 2 servers") as failed:
        tidegate.connect(",".join(f"127.0.0.1:{port}" for port in ports))
    assert failed.value.sqlstate == "08001"
    assert all(f":{port}" in str(failed.value) for port in ports)


def test_a_refused_login_is_not_tried_elsewhere() -> None:
    with FakeServer() as first, FakeServer() as second:
        hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
        with pytest.raises(tidegate.OperationalError, match="no such user"):
            tidegate.connect(hosts, user="ann", password="wrong", auth="LDAP")
        assert second.connections == 0


def test_a_statement_whose_reply_is_lost_is_not_sent_to_another_host() -> None:
    with FakeServer() as second:

        def answer(statement: str) -> Answer:
            first.drop_connections()
            return NUMBERS

        with FakeServer(answer) as first:
            hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
            with tidegate.connect(hosts) as connection:
                with pytest.raises(tidegate.OperationalError, match="connection lost"):
                    connection.cursor().execute("INSERT INTO t VALUES (1)")
                assert connection.closed
            assert len(first.requests("ExecuteStatement")) == 1
            assert second.connections == 0


def test_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer() as server:
        monkeypatch.setenv("TIDEGATE_URL", f"tidegate://ann@127.0.0.1:{server.port}/s")
        with tidegate.connect(user="bob"):
            pass
        (request,) = server.requests("OpenSession")
        assert (request.username, request.configuration["use:database"]) == ("bob", "s")
        with pytest.raises(tidegate.OperationalError, match="refused"):
            tidegate.connect(port=unused_port())
