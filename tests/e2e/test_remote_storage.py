"""A warehouse in S3 or HDFS, executors of YARN, and a metastore that is a service."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fixtures.server import StartServer
from tests.support.fixtures.walkthrough import keep_a_table_fresh_though_the_engine_dies, run
from tests.support.full_run import FULL
from tests.support.hive_metastore import running_hive_metastore
from tests.support.object_store import ACCESS_KEY, SECRET_KEY, running_object_store
from tests.support.yarn import running_yarn

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FULL, reason="fetches 700 MB of Hadoop's and Amazon's jars"),
]


def test_tables_are_objects_in_s3(start_server: StartServer, tmp_path: Path) -> None:
    config = tmp_path / "tidegate.toml"
    with running_object_store(tmp_path) as store:
        config.write_text(store.configuration())
        config.chmod(0o600)
        server = start_server("--config", str(config))
        server.wait_for_engine()
        before = store.objects()
        keep_a_table_fresh_though_the_engine_dies(server)
        first = "_delta_log/00000000000000000000.json"
        assert sum(name.endswith(first) for name in store.objects()) == 2
        shown = [*run(server, "SET"), *run(server, "SET -v")]
        shown += run(server, "SET spark.hadoop.fs.s3a.secret.key")
        assert SECRET_KEY not in str(shown)
        run(server, "DROP MATERIALIZED TABLE totals", "DROP TABLE events")
        assert store.objects() == before
        written = [path.read_bytes() for path in server.data.rglob("*") if path.is_file()]
        for secret in (ACCESS_KEY, SECRET_KEY):
            assert not any(secret.encode() in content for content in written)


def test_tables_are_in_a_hive_metastore(start_server: StartServer, tmp_path: Path) -> None:
    with running_hive_metastore(tmp_path) as uri:
        server = start_server(f"--set=engine.settings.spark.hadoop.hive.metastore.uris={uri}")
        keep_a_table_fresh_though_the_engine_dies(server)
        run(server, "DROP MATERIALIZED TABLE totals", "DROP TABLE events")


def test_executors_are_containers_of_yarn_and_tables_are_in_hdfs(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "tidegate.toml"
    with running_yarn(tmp_path) as yarn:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.configuration))
        lines = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in yarn.settings.items()]
        config.write_text("\n".join(["[engine.settings]", *lines]))
        server = start_server("--config", str(config), "--set=engine.master=yarn")
        keep_a_table_fresh_though_the_engine_dies(server)
        engines = [(row[2], row[3], row[4]) for row in run(server, "SHOW ENGINES")]
        assert engines == [("yarn-session", "yarn", "UP")]
        with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("SELECT id, repeat('x', 100) FROM range(500000)")
            assert len(cursor.fetchall()) == 500_000
        run(server, "DROP MATERIALIZED TABLE totals", "DROP TABLE events")
