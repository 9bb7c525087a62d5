"""The command line against a real server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.spark

MAIN = "import sys; from tidegate.cli import main; sys.exit(main())"


def tidegate(server: Any, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, "-u", server.url, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def schema(server: Any) -> Iterator[str]:
    name = f"cli_{uuid.uuid4().hex[:8]}"
    assert tidegate(server, "-e", f"CREATE SCHEMA {name}").returncode == 0
    yield name
    tidegate(server, "-e", f"DROP SCHEMA {name} CASCADE")


def test_a_query_is_written_as_json(server: Any) -> None:
    done = tidegate(
        server, "--format", "json", "-e", "SELECT 1 AS a, 'x' AS b, NULL AS c, array(1, 2) AS d"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"a": 1, "b": "x", "c": None, "d": [1, 2]}


def test_a_long_result_streams_through(server: Any) -> None:
    done = tidegate(server, "--format", "csv", "--no-header", "-e", "SELECT id FROM range(12345)")
    assert done.stdout.split() == [str(number) for number in range(12345)]
    assert done.stderr.startswith("12345 rows (")


def test_a_result_is_written_as_parquet_with_its_types(server: Any, tmp_path: Path) -> None:
    query = "SELECT id, CAST(id AS DECIMAL(10, 2)) AS d, DATE'2026-01-31' AS day FROM range(12345)"
    with (tmp_path / "rows.parquet").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "-u", server.url, "--format", "parquet", "-e", query],
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "rows.parquet")
    assert [str(field.type) for field in table.schema] == [
        "int64",
        "decimal128(10, 2)",
        "date32[day]",
    ]
    assert table.column("id").to_pylist() == list(range(12345))


def test_warnings_and_notes_are_written(server: Any, schema: str) -> None:
    create = f"CREATE MATERIALIZED TABLE IF NOT EXISTS {schema}.noted AS SELECT 1 AS a"
    done = tidegate(server, "-e", f"{create}; {create}; SET table.refresh-handler = x")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert f"[INFO] Materialized table spark_catalog.{schema}.noted exists already; " in (
        lines[1].removesuffix("nothing was changed.")
    )
    assert any(line.startswith("[WARN] table.refresh-handler changes nothing") for line in lines)
    assert tidegate(server, "-e", f"DROP MATERIALIZED TABLE {schema}.noted").returncode == 0


def test_settings_and_use_hold_for_the_session(server: Any, schema: str) -> None:
    script = f"USE {schema}; SET a.b=c; SELECT current_schema(), '${{a.b}}'"
    done = tidegate(server, "-q", "--format", "tsv", "--no-header", "-f", "-", stdin=script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split("\t")[0] == schema


def test_a_materialized_table_lives_its_life_in_a_script(server: Any, schema: str) -> None:
    script = f"""
        -- a pipeline; of two tables
        CREATE TABLE {schema}.orders (id INT, ds STRING) USING delta;
        INSERT INTO {schema}.orders VALUES (1, '2024-01-01'), (2, '2024-01-02');
        // Daily counts; refreshed once per hour.
        CREATE MATERIALIZED TABLE {schema}.daily
        FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = FULL
        AS SELECT ds, count(*) AS n FROM {schema}.orders GROUP BY ds;
        ALTER MATERIALIZED TABLE {schema}.daily REFRESH;
        !set format csv
        SELECT * FROM {schema}.daily ORDER BY ds;
        DROP MATERIALIZED TABLE {schema}.daily;
    """
    done = tidegate(server, "-f", "-", stdin=script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("ds,n\n2024-01-01,1\n2024-01-02,1\n")
    assert "[INFO] Execute statement succeeded." in done.stderr


def test_an_error_names_line_code_and_hint(server: Any) -> None:
    script = "SELECT 1;\nALTER MATERIALIZED TABLE nope SUSPEND;\nSELECT 2"
    done = tidegate(server, "-q", "--format", "csv", "-f", "-", stdin=script)
    assert done.returncode == 1
    assert done.stderr.startswith("stdin:2: ERROR 42P01 [MT_NOT_FOUND]")
    assert "SHOW MATERIALIZED TABLES lists" in done.stderr
    assert "2" not in done.stdout


def test_an_error_of_spark_has_a_caret(server: Any) -> None:
    done = tidegate(server, "-e", "SELECT 1,\n  nope")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:3] == ["LINE 2:   nope", "          ^"]


def test_metadata_commands_list_what_there_is(server: Any, schema: str) -> None:
    script = f"CREATE TABLE {schema}.t (a INT COMMENT 'x', b DECIMAL(5,2));\n!columns {schema}.t\n"
    done = tidegate(server, "-q", "--format", "csv", "-e", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith(f"{schema},t,a,INT,YES,x")
    assert schema in tidegate(server, "-q", "--format", "csv", "-e", "!schemas").stdout.split()


def test_a_reader_that_leaves_ends_it_quietly(server: Any) -> None:
    with subprocess.Popen(
        [
            *(sys.executable, "-c", MAIN, "-u", server.url),
            *("--format", "csv", "-q", "-e", "SELECT id FROM range(1000000)"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"id\n"
        process.stdout.close()
        assert process.wait(120) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_changes_of_a_materialized_table_are_followed(server: Any, schema: str) -> None:
    refresh = f"ALTER MATERIALIZED TABLE {schema}.totals REFRESH;"
    done = tidegate(
        server,
        "-e",
        f"CREATE TABLE {schema}.sold (id INT NOT NULL, n INT) USING delta;"
        f"INSERT INTO {schema}.sold VALUES (1, 10), (2, 20), (3, 30);"
        f"CREATE MATERIALIZED TABLE {schema}.totals (PRIMARY KEY (id) NOT ENFORCED) "
        f"FRESHNESS = INTERVAL '1' DAY AS SELECT id, n * 2 AS n FROM {schema}.sold; {refresh}",
    )
    assert done.returncode == 0, done.stderr
    mode = "SET 'sql-client.execution.result-mode' = 'changelog'"
    with subprocess.Popen(
        [
            *(sys.executable, "-c", MAIN, "-u", server.url, "--format", "json"),
            *("-e", f"{mode}; SELECT * FROM {schema}.totals WHERE id < 9"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None

        def rows(count: int) -> list[tuple[str, int, int]]:
            assert process.stdout is not None
            lines = [json.loads(process.stdout.readline()) for _ in range(count)]
            return sorted((line["op"], line["id"], line["n"]) for line in lines)

        # A row that never comes must not keep the test waiting.
        watchdog = threading.Timer(240, process.kill)
        watchdog.start()
        try:
            assert rows(3) == [("+I", 1, 20), ("+I", 2, 40), ("+I", 3, 60)]
            changes = (
                f"UPDATE {schema}.sold SET n = 11 WHERE id = 1; "
                f"DELETE FROM {schema}.sold WHERE id = 2; "
                f"INSERT INTO {schema}.sold VALUES (4, 40), (9, 9); {refresh}"
            )
            done = tidegate(server, "-e", changes)
            assert done.returncode == 0, done.stderr
            assert rows(4) == [("+I", 4, 80), ("+U", 1, 22), ("-D", 2, 40), ("-U", 1, 20)]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            watchdog.cancel()
            process.kill()
        assert process.stdout.read() == ""
        assert process.stderr is not None
        assert "7 rows (" in process.stderr.read()


def test_no_server_is_status_3() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "--host", "127.0.0.1", "--port", "1", "-e", "SELECT 1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "ERROR 08001" in done.stderr


def test_tables_follow_a_directory(server: Any, schema: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", MAIN, *arguments, "-u", server.url, "-d", schema],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    head = "CREATE OR ALTER MATERIALIZED TABLE"
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "a.sql").write_text(
        f"{head} by_day FRESHNESS = INTERVAL '1' DAY AS SELECT day, sum(n) AS n FROM base "
        f"GROUP BY day;\n{head} base FRESHNESS = INTERVAL '1' DAY AS SELECT 1 AS day, 2 AS n;"
    )
    (tables / "b.sql").write_text(
        f"{head} other FRESHNESS = INTERVAL '1' DAY AS SELECT `day` FROM base"
    )
    applied = run("apply", str(tables), "--yes")
    assert applied.returncode == 0, applied.stderr
    assert "3 tables: 3 created." in applied.stdout

    (tables / "b.sql").unlink()
    (tables / "a.sql").write_text(
        (tables / "a.sql").read_text().replace("FROM base", "from `base`")
    )
    planned = run("plan", str(tables))
    assert "3 tables: 2 unchanged, 1 left, although" in planned.stdout
    (tables / "a.sql").write_text(
        (tables / "a.sql").read_text().replace("2 AS n", "2 AS n, 3 AS m")
    )
    applied = run("apply", str(tables), "--yes", "--prune")
    assert applied.returncode == 0, applied.stderr
    assert "    COLUMN m added: INT [NEXT_REFRESH]\n" in applied.stdout
    assert run("plan", str(tables), "--check", "--analyze").returncode == 0

    assert run("mt", "refresh", "by_day", "--cascade", "upstream").returncode == 0
    verified = run("mt", "verify", "by_day", "--json")
    assert (verified.returncode, json.loads(verified.stdout)["equal"]) == (0, True)
    names = [json.loads(line)["name"] for line in run("mt", "list", "--json").stdout.splitlines()]
    assert {"base", "by_day"} <= set(names)
    assert "other" not in names


def test_tables_follow_a_pipeline_of_spark(server: Any, schema: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", MAIN, *arguments, "-u", server.url],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file:///unused\nschema: {schema}\n"
        "libraries: [{glob: {include: transformations/**}}]\n"
        "configuration: {spark.sql.shuffle.partitions: '3'}\n"
    )
    arriving = tmp_path / "arriving"
    arriving.mkdir()
    (arriving / "1.json").write_text('{"day": 1, "n": 2}\n{"day": 1, "n": 3}\n')
    folder = tmp_path / "transformations" / "gold"
    folder.mkdir(parents=True)
    (folder / "odd_sums.sql").write_text(
        "CREATE TEMPORARY VIEW odd AS SELECT * FROM orders WHERE n % 2 = 1;\n"
        "CREATE MATERIALIZED VIEW odd_sums COMMENT 'of odd ones'\n"
        "AS SELECT day, sum(n) AS n FROM odd GROUP BY day;"
    )
    (folder / "orders.sql").write_text(
        f"CREATE STREAMING TABLE orders AS SELECT day, n FROM STREAM read_files('{arriving}', "
        "format => 'json', schema => 'day INT, n INT')"
    )
    applied = run("apply", str(tmp_path), "--yes")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert "2 tables: 2 created." in applied.stdout
    assert run("plan", str(tmp_path), "--check").returncode == 0
    assert run("mt", "refresh", f"{schema}.odd_sums", "--cascade", "upstream").returncode == 0
    found = run("-e", f"SELECT * FROM {schema}.odd_sums", "--format", "csv")
    assert found.stdout == "day,n\n1,3\n"
    shown = run("mt", "show", f"{schema}.odd_sums", "--ddl").stdout
    assert "COMMENT 'of odd ones'" in shown and "WITH `odd` AS" in shown
