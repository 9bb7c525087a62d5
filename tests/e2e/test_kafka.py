"""A stream from a real broker, which Kafka's own jars run: `bin/test --full`."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import tidegate
from tests.support.fixtures.server import StartServer, named_rows
from tests.support.full_run import FULL
from tests.support.waiting import wait_until
from tidegate_server.engine.jvm.jars import KAFKA, cache_dir

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="fetches Kafka's broker"),
]

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/logs
offsets.topic.replication.factor=1
num.partitions=2
"""


def broker_jars() -> Path:
    """Return the directory of the broker's jars, fetched once with Spark's own Ivy."""
    version = next(jar.revision for jar in KAFKA if jar.name == "kafka-clients")
    place = cache_dir() / f"kafka-broker-{version}"
    if not place.exists():
        work = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
        shipped = Path(pyspark.__file__).parent / "jars"
        command = ["java", "-cp", f"{shipped}/*", "org.apache.ivy.Main", "-cache", f"{work}-ivy"]
        if settings := os.environ.get("TIDEGATE_IVY_SETTINGS"):
            command += ["-settings", settings]
        command += ["-dependency", "org.apache.kafka", "kafka_2.13", version]
        command += ["-confs", "default", "-types", "jar", "bundle"]
        command += ["-retrieve", str(work / "[artifact]-[revision].[ext]")]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        work.rename(place)
    return place


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """Run a broker; its address."""
    folder = tmp_path / "kafka"
    folder.mkdir()
    port = free_port()
    settings = folder / "server.properties"
    settings.write_text(PROPERTIES.format(port=port, controller=free_port(), folder=folder))
    java = ["java", "-Xmx256m", "-cp", f"{broker_jars()}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    formatting = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    subprocess.run([*java, *formatting], check=True, capture_output=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            wait_until(lambda: listens(port), "the broker did not come up")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def produce(broker: str, *values: int) -> None:
    """Append values to the topic ``n``, which begins to exist with the first."""
    java = ["java", "-cp", f"{broker_jars()}/*", "kafka.tools.ConsoleProducer"]
    lines = "\n".join(map(str, values)).encode()
    command = [*java, "--bootstrap-server", broker, "--topic", "n"]
    subprocess.run(command, input=lines, check=True, capture_output=True, timeout=60)


def test_a_topic_is_taken_in_across_a_restart(start_server: StartServer, broker: str) -> None:
    kafka = "--set=engine.kafka=true"
    produce(broker, *range(5))
    server = start_server(kafka)
    server.wait_for_engine()
    query = (
        "SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM STREAM read_kafka("
        f"bootstrapServers => '{broker}', subscribe => 'n', startingOffsets => 'earliest')"
    )
    named_rows(
        server,
        "CREATE TABLE topic (n INT, part INT METADATA FROM 'partition', place BIGINT METADATA FROM "
        "'offset', at TIMESTAMP METADATA FROM 'timestamp') WITH ('connector' = 'kafka', 'topic' = "
        f"'n', 'properties.bootstrap.servers' = '{broker}', 'format' = 'csv')",
        "CREATE MATERIALIZED TABLE numbers FRESHNESS = INTERVAL '1' DAY AS SELECT n FROM topic",
        "ALTER MATERIALIZED TABLE numbers REFRESH",
        "CREATE TABLE copied (n INT) USING delta",
        "SET 'execution.checkpointing.interval' = '1 s'",
        f"INSERT INTO copied {query}",
    )
    [found] = named_rows(
        server,
        "SELECT count(n) AS ns, min(place) AS first, bool_and(at > now() - INTERVAL 1 HOUR) AS new"
        " FROM topic WHERE part IN (0, 1)",
    )
    assert found == {"ns": 5, "first": 0, "new": True}
    keyed = (
        "CREATE TABLE {} (k_id INT, text STRING, at TIMESTAMP(3), h MAP<STRING, BYTES> METADATA "
        "FROM 'headers', part INT METADATA FROM 'partition') WITH ('connector' = 'kafka', 'topic' "
        f"= 'sunk', 'properties.bootstrap.servers' = '{broker}', 'key.format' = 'json', "
        "'key.fields' = 'k_id', 'key.fields-prefix' = 'k_', 'value.fields-include' = 'EXCEPT_KEY', "
        "'value.format' = '{}')"
    )
    named_rows(
        server,
        keyed.format("sunk", "json"),
        keyed.format("csvs", "csv").replace("'sunk'", "'csvs'"),
        "INSERT INTO sunk VALUES (1, 'a', TIMESTAMP '2026-01-01 01:02:03.5', map('x', X'ff')), "
        "(2, NULL, NULL, NULL)",
        "INSERT INTO csvs BY NAME SELECT n AS k_id, 'it,s' AS text FROM topic",
    )
    with pytest.raises(tidegate.Error, match="does not support truncate"):
        named_rows(server, "INSERT OVERWRITE sunk VALUES (1, 'a', NULL, NULL)")
    rows = named_rows(server, "SELECT k_id, text, CAST(at AS STRING) AS at, h FROM sunk ORDER BY 1")
    assert rows[0] == {"k_id": 1, "text": "a", "at": "2026-01-01 01:02:03.5", "h": {"x": "/w=="}}
    assert rows[1] == {"k_id": 2, "text": None, "at": None, "h": None}
    named_rows(
        server,
        "CREATE TABLE timed (n INT, h MAP<STRING, BYTES> METADATA FROM 'headers', at TIMESTAMP "
        "METADATA FROM 'timestamp') WITH ('connector' = 'kafka', 'topic' = 'timed', 'format' = "
        f"'csv', 'properties.bootstrap.servers' = '{broker}')",
        "INSERT INTO timed VALUES (1, map('x', X'ff'), TIMESTAMP '2026-01-01 01:02:03.5'), "
        "(2, NULL, NULL)",
    )
    seen = "n, h, IF(at > now() - INTERVAL 1 HOUR, 'now', CAST(at AS STRING)) AS at"
    rows = named_rows(server, f"SELECT {seen} FROM timed ORDER BY n")
    assert rows[0] == {"n": 1, "h": {"x": "/w=="}, "at": "2026-01-01 01:02:03.5"}
    assert rows[1] == {"n": 2, "h": None, "at": "now"}
    rows = named_rows(server, "SELECT k_id, text, h FROM csvs ORDER BY k_id")
    assert rows == [{"k_id": n, "text": "it,s", "h": None} for n in range(5)]
    texts = (
        f"SELECT CAST(value AS STRING) FROM read_kafka(bootstrapServers => '{broker}', "
        "subscribePattern => '^n$', endingOffsets => 'latest')"
    )
    assert len(named_rows(server, texts)) == 5
    copied = "SELECT n FROM copied ORDER BY n"
    wait_until(lambda: len(named_rows(server, copied)) == 5, "the job did not begin")
    server.stop()
    produce(broker, *range(5, 9))
    server = start_server(kafka)
    server.wait_for_engine()
    for _ in range(2):
        named_rows(server, "ALTER MATERIALIZED TABLE numbers REFRESH")
        rows = named_rows(server, "SELECT n FROM numbers ORDER BY n")
        assert [row["n"] for row in rows] == list(range(9))
    [last] = named_rows(server, "SHOW REFRESH HISTORY FOR numbers LIMIT 1")
    assert last["action"] == "NO_DATA"
    wait_until(lambda: len(named_rows(server, copied)) >= 9, "the job did not go on")
    assert [row["n"] for row in named_rows(server, copied)] == list(range(9))
