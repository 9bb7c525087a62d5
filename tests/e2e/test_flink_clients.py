"""Clients of Flink's SQL gateway take this server for the real one."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import termios
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.fixtures.server import Server, run_as, running_tasks
from tests.support.flink_clients import (
    generated_client,
    run_jdbc,
    run_sql_client,
    sql_client,
    without_styles,
)
from tests.support.full_run import FULL
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
full = pytest.mark.skipif(not FULL, reason="fetches 100 MB of Flink's jars")

WALKTHROUGH = """
SET 'sql-client.execution.result-mode' = 'tableau';
CREATE DATABASE {schema};
USE {schema};
SHOW CURRENT DATABASE;
CREATE TABLE orders (id INT, customer STRING, amount DECIMAL(10, 2), ts TIMESTAMP(3), ds STRING)
PARTITIONED BY (ds);
INSERT INTO orders VALUES
  (1, 'ann', 10.50, TIMESTAMP '2024-11-25 10:00:00', '20241125'),
  (2, CAST(NULL AS STRING), NULL, NULL, '20241126');
SELECT * FROM orders ORDER BY id;
SET 'execution.mode' = 'remote';
CREATE MATERIALIZED TABLE customer_orders
PARTITIONED BY (ds)
FRESHNESS = INTERVAL '1' DAY
AS SELECT customer, COUNT(*) AS orders, ds FROM orders GROUP BY customer, ds;
ALTER MATERIALIZED TABLE customer_orders REFRESH PARTITION(ds='20241125');
SELECT * FROM customer_orders;
ALTER MATERIALIZED TABLE customer_orders SUSPEND;
ALTER MATERIALIZED TABLE customer_orders RESUME;
ALTER MATERIALIZED TABLE customer_orders
AS SELECT customer, COUNT(*) AS orders, ds, MAX(id) AS newest FROM orders GROUP BY customer, ds;
DESCRIBE customer_orders;
SHOW TABLES;
SHOW CREATE MATERIALIZED TABLE customer_orders;
SHOW JARS;
EXPLAIN SELECT * FROM orders;
DROP MATERIALIZED TABLE customer_orders;
DROP TABLE orders;
USE default;
DROP DATABASE {schema};
SELECT nonsense;
"""
"""The statements of Flink's pages on materialized tables, between some that prepare and show."""

VALUES: tuple[tuple[str, str, Any, str], ...] = (
    ("1", "INT NOT NULL", 1, "1"),
    ("CAST(3 AS TINYINT)", "TINYINT NOT NULL", 3, "3"),
    ("CAST(9223372036854775807 AS BIGINT)", "BIGINT NOT NULL", 2**63 - 1, str(2**63 - 1)),
    ("'x'", "STRING NOT NULL", "x", "x"),
    ("true", "BOOLEAN NOT NULL", True, "TRUE"),
    ("CAST(1.5 AS DECIMAL(10, 2))", "DECIMAL(10, 2) NOT NULL", "1.50", "1.50"),
    (
        *("CAST(12345678901234567890.12345678 AS DECIMAL(28, 8))", "DECIMAL(28, 8) NOT NULL"),
        *("12345678901234567890.12345678", "12345678901234567890.12345678"),
    ),
    ("CAST(1e10 AS DOUBLE)", "DOUBLE NOT NULL", 1e10, "1.0E10"),
    ("DATE '2024-02-29'", "DATE NOT NULL", "2024-02-29", "2024-02-29"),
    (
        *("TIMESTAMP '2024-01-01 00:00:00.25'", "TIMESTAMP(6) NOT NULL"),
        *("2024-01-01 00:00:00.25", "2024-01-01 00:00:00.250000"),
    ),
    ("x'00ff'", "BYTES NOT NULL", "00ff", "x'00ff'"),
    ("map(1, 'v')", "MAP<STRING NOT NULL, STRING> NOT NULL", "{1=v}", "{1=v}"),
    ("CAST(NULL AS INT)", "INT", None, "<NULL>"),
    ("NULL", "STRING", None, "<NULL>"),
    ("parse_json('{\"a\":1}')", "STRING NOT NULL", '{"a":1}', '{"a":1}'),
)
"""An expression, its type and value in the JDBC driver, and what the SQL client prints."""


@pytest.fixture
def address(server: Server) -> str:
    """Host and port of the shared server's REST interface."""
    return f"127.0.0.1:{server.ready_info()['http_port']}"


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    """A new schema, which is dropped afterwards."""
    name = f"flink_{uuid.uuid4().hex[:8]}"
    run_as(server, "root", f"CREATE SCHEMA {name}")
    yield name
    run_as(server, "root", f"DROP SCHEMA {name} CASCADE")


def test_statements_results_and_a_refresh_over_http(address: str, schema: str) -> None:
    with httpx.Client(base_url=f"http://{address}", timeout=120) as client:
        opened = client.post("/v3/sessions", json={"properties": {"rest.port": "8083"}}).json()
        session = f"/v3/sessions/{opened['sessionHandle']}"

        job_ids: list[str | None] = []

        def rows(started: Any, form: str = "JSON") -> list[list[Any]]:
            assert started.status_code == 200, started.text
            found: list[list[Any]] = []
            operation = f"{session}/operations/{started.json()['operationHandle']}"
            uri = f"{operation}/result/0?rowFormat={form}"
            while uri is not None:
                page = client.get(uri)
                assert page.status_code == 200, page.text
                uri = page.json().get("nextResultUri")
                job_ids.append(page.json().get("jobID"))
                found += [row["fields"] for row in page.json().get("results", {}).get("data", ())]
            assert client.delete(f"{operation}/close").json() == {"status": "CLOSED"}
            return found

        def run(sql: str, form: str = "JSON") -> list[list[Any]]:
            return rows(client.post(f"{session}/statements", json={"statement": sql}), form)

        body = {"statement": f"USE {schema};"}
        assert client.post(f"{session}/configure-session", json=body).json() == {}
        assert run("SHOW CURRENT DATABASE;") == [[schema]]
        assert run("CREATE TABLE t (id INT, ds STRING) PARTITIONED BY (ds)") == [["OK"]]
        assert run("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (CAST(NULL AS INT), 'b')") == [["OK"]]
        assert set(job_ids) == {None}
        run("SET 'table.dml-sync' = 'false'")
        [[job]] = run("INSERT INTO t SELECT 3, 'c'")
        assert (len(job), job_ids[-1]) == (32, job)
        wait_until(lambda: ["status", "FINISHED"] in run(f"DESCRIBE JOB '{job}'"), "it lasts", 60)
        assert run("SELECT id FROM t WHERE ds = 'c'") == [[3]]
        assert run("SHOW TABLES") == [["t"]]
        values = "CAST(1.5 AS DECIMAL(10, 2)) d, ARRAY[1, 2] a, TIMESTAMP '2024-01-01 00:00:00.5' t"
        assert run(f"SELECT {values}") == [[1.5, [1, 2], "2024-01-01T00:00:00.5"]]
        assert run(f"SELECT {values}", "PLAIN_TEXT") == [
            ["1.50", "[1, 2]", "2024-01-01 00:00:00.500000"]
        ]
        query = "SELECT ds, COUNT(id) AS n FROM t GROUP BY ds"
        options = "PARTITIONED BY (ds) REFRESH_MODE = FULL"  # refreshed below before its schedule
        run(f"CREATE MATERIALIZED TABLE m {options} AS {query}")
        refresh = f"{session}/materialized-tables/`spark_catalog`.`{schema}`.`m`/refresh"
        started = client.post(refresh, json={"staticPartitions": {"ds": "b"}})
        [[job, info]] = rows(started)
        assert (uuid.UUID(job).version, info["action"]) == (4, "PARTITION")
        assert run("SELECT * FROM m") == [["b", 1]] or run("SELECT n, ds FROM m") == [[1, "b"]]
        assert run("DROP MATERIALIZED TABLE m") == [["OK"]]
        assert client.delete(session).json() == {"status": "CLOSED"}


# ---- Flink's SQL client --------------------------------------------------------------------------


@full
def test_the_sql_client_runs_the_walkthrough(address: str, schema: str, tmp_path: Path) -> None:
    script = WALKTHROUGH.format(schema=f"{schema}_walk")
    shown = run_sql_client(address, tmp_path, script)
    for part in (
        f"| current database name |\n+-----------------------+\n|   {schema}_walk |",
        "| id | customer | amount |                         ts |       ds |",
        "|  1 |      ann |  10.50 | 2024-11-25 10:00:00.000000 | 20241125 |",
        "|  2 |   <NULL> | <NULL> |                     <NULL> | 20241126 |",
        "Warning: execution.mode changes nothing here",
        "customer_orders is empty until its first refresh",
        "|                               job id |",
        f"{{table=spark_catalog.{schema}_walk.customer_orders, state=SUCCEEDED, action=PARTITION",
        "|      ann |      1 | 20241125 |",
        "|     name |   type |  null | key | extras | watermark |",
        "|   newest |    INT |  TRUE |     |        |           |",
        "CREATE MATERIALIZED TABLE `spark_catalog`",
        "== Physical Plan ==",
        "[ERROR] Could not execute SQL statement. Reason:\n[[UNRESOLVED_COLUMN",
    ):
        assert part in shown, shown
    # CREATE DATABASE, USE, CREATE TABLE, INSERT, SUSPEND, RESUME, AS, two DROPs, USE, DROP
    assert shown.count("[INFO] Execute statement succeeded.") == 12


@full
def test_the_sql_client_prints_each_type(address: str, tmp_path: Path) -> None:
    columns = ", ".join(f"{sql} AS c{n}" for n, (sql, *_) in enumerate(VALUES))
    script = f"SET 'sql-client.execution.result-mode' = 'tableau';\nSELECT {columns};\n"
    shown = run_sql_client(address, tmp_path, script)
    [line] = [line for line in shown.splitlines() if line.startswith("|") and "x'00ff'" in line]
    cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
    assert cells == [printed for *_, printed in VALUES]


@full
def test_the_sql_client_logs_in_by_a_header(address: str, tmp_path: Path) -> None:
    header = "Authorization:Basic YW5uOg=="  # ann, without a password
    script = "SET 'sql-client.execution.result-mode' = 'tableau';\nSELECT current_user();\n"
    shown = run_sql_client(address, tmp_path, script, FLINK_REST_CLIENT_HEADERS=header)
    assert "|            ann |" in shown


@full
def test_a_person_at_the_sql_client_completes_cancels_and_leaves(
    server: Server, address: str, tmp_path: Path
) -> None:
    with Terminal(sql_client(address, tmp_path)) as terminal:
        terminal.wait_for("Flink SQL")
        terminal.send("SET 'sql-client.execution.result-mode' = 'tableau';\r")
        terminal.wait_for("Execute statement succeeded")
        terminal.send("SHOW CATAL\t")
        terminal.wait_for("CATALOGS")
        terminal.send(";\r")
        terminal.wait_for("| spark_catalog |")
        terminal.send("SELECT SUM(hash(a.id, b.id)) FROM range(1000000) a, range(10000000) b;\r")
        wait_until(lambda: running_tasks(server), "the query does not run")
        terminal.send("\x03")
        wait_until(lambda: not running_tasks(server), "the query still runs")
        terminal.send("SELECT 40 + 2 AS answer;\r")
        terminal.wait_for("|     42 |")
        terminal.send("QUIT;\r")
        terminal.wait_for("done.")


class Terminal:
    """A program in a terminal of its own; collects what it shows."""

    def __init__(self, command: list[str]) -> None:
        self._pid, self._own = pty.fork()
        if self._pid == 0:
            os.environ["TERM"] = "xterm"
            os.execvp(command[0], command)
        termios.tcsetwinsize(self._own, (40, 160))
        self._shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._own)

    def send(self, text: str) -> None:
        """Type a text."""
        os.write(self._own, text.encode())

    def wait_for(self, text: str, seconds: float = 120) -> None:
        """Wait until a text is shown after what was waited for before."""
        deadline = time.monotonic() + seconds
        while text not in self._shown:
            assert time.monotonic() < deadline, f"{text!r} is not in {self._shown[-3000:]!r}"
            if select.select([self._own], [], [], 0.2)[0]:
                read = os.read(self._own, 65536).decode("utf-8", "replace")
                self._shown = without_styles(self._shown + read)
        self._shown = self._shown.partition(text)[2]


# ---- Flink's JDBC driver -------------------------------------------------------------------------


@full
def test_the_jdbc_driver_reads_values_metadata_and_settings(address: str, schema: str) -> None:
    columns = ", ".join(f"{sql} AS c{n}" for n, (sql, *_) in enumerate(VALUES))
    table = f"{schema}.numbers"
    answers = run_jdbc(
        f"jdbc:flink://{address}/spark_catalog/{schema}?sql-client.verbose=true",
        ("types", f"SELECT {columns}"),
        ("query", f"SELECT {columns}"),
        ("call", "getCatalog"),
        ("call", "getSchema"),
        ("metadata", "getCatalogs"),
        ("metadata", "getSchemas"),
        ("execute", f"CREATE TABLE {table} (n BIGINT)"),
        ("execute", f"INSERT INTO {table} SELECT id FROM range(25000)"),
        ("count", f"SELECT n FROM {table}"),
        ("execute", "SHOW TABLES"),
        ("execute", "SELECT nonsense"),
        ("close", "SELECT id FROM range(1000000)"),
        ("call", "setClientInfo", "spark.sql.shuffle.partitions", "7"),
        ("call", "getClientInfo", "spark.sql.shuffle.partitions"),
        ("call", "getClientInfo", "sql-client.verbose"),
        ("execute", f"DROP TABLE {table}"),
    )
    types, [row], catalog, current, catalogs, schemas, created, inserted, *rest = answers
    assert [kind for _, kind in types] == [kind for _, kind, _, _ in VALUES]
    assert row == [value for _, _, value, _ in VALUES]
    assert (catalog, current, catalogs) == ("spark_catalog", schema, [["spark_catalog"]])
    assert [schema, "spark_catalog"] in schemas
    assert (created, inserted) == (False, False)
    counted, tables, failed, closed, _, partitions, verbose, dropped = rest
    assert (counted, tables) == ([25000, 25000], [["numbers"]])
    assert failed["error"].startswith("[[UNRESOLVED_COLUMN")
    assert closed < 30
    assert (partitions, verbose, dropped) == ("7", "true", False)


# ---- PyPI's generated client ---------------------------------------------------------------------

GENERATED = """
from flink_gateway_api import Client
from flink_gateway_api.api.default import (
    close_session, execute_statement, fetch_results, get_info, open_session,
)
from flink_gateway_api.models import (
    ExecuteStatementRequestBody, OpenSessionRequestBody, ResultType, RowFormat,
)

with Client(base_url="http://{address}/v3", raise_on_unexpected_status=True) as client:
    print(get_info.sync(client=client).product_name)
    opened = open_session.sync(client=client, body=OpenSessionRequestBody.from_dict({{}}))
    body = ExecuteStatementRequestBody.from_dict({{"statement": "SELECT 6 * 7 AS n"}})
    session = opened.session_handle
    started = execute_statement.sync(session, client=client, body=body)
    token, page = 0, None
    while page is None or page.result_type is not ResultType.EOS:
        page = fetch_results.sync(
            session, started.operation_handle, token, client=client, row_format=RowFormat.JSON
        )
        if page.result_type is ResultType.PAYLOAD:
            token += 1
            print([row.additional_properties["fields"] for row in page.results.data])
    print(close_session.sync(session, client=client).status)
"""


@full
def test_pypis_generated_client_reads_a_result(address: str) -> None:
    program = GENERATED.format(address=address)
    done = subprocess.run(
        [generated_client(), "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split("\n") == ["Tidegate", "[[42]]", "CLOSED", ""], done.stderr
