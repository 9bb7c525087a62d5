"""The gateway put together, with an engine that is not Spark."""

from __future__ import annotations

import json
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import tidegate
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import EngineSection, EngineUserSection, ServerSection
from tidegate_server.core.errors import ServerError
from tidegate_server.core.messages.answers import EngineInfo
from tidegate_server.gateway.app import Gateway
from tidegate_server.gateway.foreground import connection_help, describe
from tidegate_server.gateway.link.lock import DataDirectoryTakenError

FAKE_ENGINE = Path(__file__).with_name("link") / "fake_engine.py"


def build(
    data: Path, *engine_arguments: str, port: int = 0, host: str = "127.0.0.1", patience: float = 30
) -> Gateway:
    config = Config(
        data=data,
        server=ServerSection(port=port, host=host),
        engine=EngineSection(start_timeout=patience),
    )
    return Gateway(
        config,
        java_home=data,
        engine_command=[sys.executable, str(FAKE_ENGINE), *engine_arguments],
    )


@contextmanager
def cursor_of(gateway: Gateway) -> Iterator[tidegate.Cursor]:
    with (
        closing(tidegate.connect(host=gateway.host, port=gateway.port)) as connection,
        closing(connection.cursor()) as cursor,
    ):
        yield cursor


def test_statements_without_spark_need_no_engine(tmp_path: Path) -> None:
    with build(tmp_path, "mute") as gateway, cursor_of(gateway) as cursor:
        cursor.execute("SHOW MATERIALIZED TABLES")
        assert cursor.fetchall() == []


def test_a_statement_for_spark_tells_why_there_is_no_engine(tmp_path: Path) -> None:
    with build(tmp_path, "broken") as gateway, cursor_of(gateway) as cursor:
        with pytest.raises(tidegate.OperationalError, match="no Spark here") as caught:
            cursor.execute("SELECT 1")
        assert caught.value.sqlstate == "08006"


def test_rows_travel_from_the_engine_to_the_client(tmp_path: Path) -> None:
    with build(tmp_path) as gateway, cursor_of(gateway) as cursor:
        cursor.execute("SELECT n FROM numbers")
        assert [row[0] for row in cursor.fetchall()] == list(range(9))


def test_who_waits_for_the_engine_is_told_when_it_is_up(tmp_path: Path) -> None:
    told: list[EngineInfo] = []
    up = threading.Event()
    gateway = build(tmp_path)
    gateway.on_engine_ready(lambda info: (told.append(info), up.set())[0])
    with gateway:
        assert up.wait(30)
    assert told[0].spark_version == "0.0-fake"


def test_a_stopped_gateway_can_be_started_again_on_its_data(tmp_path: Path) -> None:
    for _ in range(2):
        with build(tmp_path, "mute") as gateway, cursor_of(gateway) as cursor:
            cursor.execute("SHOW MATERIALIZED TABLES")


def test_two_gateways_do_not_share_a_data_directory(tmp_path: Path) -> None:
    with build(tmp_path, "mute"), pytest.raises(DataDirectoryTakenError), build(tmp_path, "mute"):
        pass


def test_a_port_in_use_leaves_the_data_directory_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), build(tmp_path, "mute", port=port):
            pass
    with build(tmp_path, "mute"):
        pass


def test_an_open_address_without_authentication_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServerError) as caught:
        build(tmp_path, host="0.0.0.0")
    assert caught.value.code == "INSECURE_ADDRESS"


@pytest.mark.parametrize(
    ("settings", "shared"),
    [
        ({}, False),
        ({"spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName=m"}, False),
        ({"spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby://host:1527/m"}, True),
        ({"spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:postgresql://db/m"}, True),
        ({"spark.hadoop.hive.metastore.uris": "thrift://host:9083"}, True),
    ],
)
def test_engines_of_users_need_a_metastore_that_all_can_open(
    tmp_path: Path, settings: dict[str, str], shared: bool
) -> None:
    config = Config(data=tmp_path, engine=EngineSection(share="user", settings=settings))
    if shared:
        Gateway(config, java_home=tmp_path)
        return
    with pytest.raises(ServerError) as caught:
        Gateway(config, java_home=tmp_path)
    assert caught.value.code == "METASTORE_NOT_SHARED"
    assert "engine.share = user" in caught.value.message


def test_a_secret_in_a_users_java_options_is_refused(tmp_path: Path) -> None:
    options = {"spark.driver.extraJavaOptions": "-Dx.password=hush"}
    settings = {"spark.hadoop.hive.metastore.uris": "thrift://host:9083"}
    users = {"ann": EngineUserSection(settings=options)}
    config = Config(
        data=tmp_path, engine=EngineSection(share="user", settings=settings, users=users)
    )
    with pytest.raises(ServerError) as caught:
        Gateway(config, java_home=tmp_path)
    assert caught.value.code == "SECRET_EXPOSED"
    assert "hush" not in str(caught.value)


@pytest.mark.slow
def test_users_have_engines_of_their_own(tmp_path: Path) -> None:
    settings = {"spark.hadoop.hive.metastore.uris": "thrift://host:9083"}
    config = Config(
        data=tmp_path,
        server=ServerSection(port=0),
        engine=EngineSection(share="user", settings=settings, start_timeout=60),
    )
    command = [sys.executable, str(FAKE_ENGINE)]
    with Gateway(config, java_home=tmp_path, engine_command=command) as gateway:
        for user in ("ann", "bob"):
            with (
                closing(
                    tidegate.connect(host=gateway.host, port=gateway.port, user=user)
                ) as connection,
                closing(connection.cursor()) as cursor,
            ):
                cursor.execute("SELECT n FROM numbers")
                assert len(cursor.fetchall()) == 9
        engines = {user: info.pid for user, info in gateway.other_engines.items()}
        told = json.loads(json.dumps(describe(gateway, gateway.engine_info)))
        assert {user: found["pid"] for user, found in told["engines"].items()} == engines
        assert engines.keys() == {"ann", "bob"}
        assert len({*engines.values(), told["engine"]["pid"]}) == 3
        body = urllib.request.urlopen(f"http://127.0.0.1:{gateway.http_port}/metrics").read()
        assert b'tidegate_user_engine_up{user="ann"} 1.0' in body


def test_what_is_told_about_a_gateway_is_plain_json(tmp_path: Path) -> None:
    with build(tmp_path, "mute") as gateway:
        info = EngineInfo(spark_version="4.1.4", pid=1, jvm_pid=2)
        told = json.loads(json.dumps(describe(gateway, info)))
        assert told["port"] == gateway.port
        assert told["engine"] == {"spark_version": "4.1.4", "pid": 1, "jvm_pid": 2}


def test_people_are_told_how_to_connect() -> None:
    text = connection_help("127.0.0.1:10009")
    assert "beeline -u jdbc:hive2://127.0.0.1:10009/" in text
    assert 'tidegate.connect(host="127.0.0.1", port=10009)' in text


def test_from_a_clone_the_programs_are_those_of_its_bin_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setenv("TIDEGATE_PROGRAMS", str(Path.cwd() / "bin"))
    assert "  bin/tidegate -u jdbc:hive2://127.0.0.1:10009/" in connection_help("127.0.0.1:10009")
