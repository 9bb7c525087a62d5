"""The calls of Flink's interface over real sessions, without an engine."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from tests.contract.examples import table
from tests.gateway.protocol.gateway import FakeEngine, Read, wait_for_cancel
from tests.gateway.rest.parts import Rest, rest_over_sqlite
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection, LoginSection, ServerSection
from tidegate_server.core.errors import Code, error
from tidegate_server.core.model.result import Result, RowsResult, nothing
from tidegate_server.core.model.types import Column, Schema
from tidegate_server.gateway.auth.passwords import set_password
from tidegate_server.gateway.context import Context

NUMBERS = Schema((Column(name="n", type="int", nullable=False),))


def execute(engine: FakeEngine, text: str, context: Context) -> Result:
    """Carry out the few statements of these tests."""
    match text.split():
        case ["SELECT", "WHO"]:
            return RowsResult(
                Schema((Column(name="who", type="string"),)), [(context.session.user,)]
            )
        case ["SELECT", count]:
            rows = [(n,) for n in range(int(count))]
            return RowsResult(NUMBERS, rows, types=(pa.int32(),))
        case ["SET", key, value]:
            context.session.settings[key] = value
            return nothing()
        case ["WARN"]:
            context.warn("the ice is thin")
            return nothing()
        case ["WAIT"]:
            wait_for_cancel(engine, context)
    raise error(Code.PARSE_SYNTAX, found=text, expected="a statement", line=1, column=1)


@dataclass
class Flink:
    """A session of one client."""

    client: TestClient
    version: str = "v3"
    handle: str = ""

    def open(self, **properties: str) -> Flink:
        answer = self.client.post(f"/{self.version}/sessions", json={"properties": properties})
        assert answer.status_code == 200, answer.text
        self.handle = answer.json()["sessionHandle"]
        return self

    def path(self, rest: str) -> str:
        return f"/{self.version}/sessions/{self.handle}{rest}"

    def start(self, sql: str, **body: Any) -> str:
        answer = self.client.post(self.path("/statements"), json={"statement": sql, **body})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["operationHandle"])

    def page(self, operation: str, token: int = 0, **query: str) -> Any:
        return self.client.get(self.path(f"/operations/{operation}/result/{token}"), params=query)

    def rows(self, sql: str) -> list[list[Any]]:
        """Follow ``nextResultUri`` to the end of a statement's result."""
        found, uri = [], self.path(f"/operations/{self.start(sql)}/result/0?rowFormat=JSON")
        while uri is not None:
            page = self.client.get(uri).json()
            found += [row["fields"] for row in page.get("results", {}).get("data", ())]
            uri = page.get("nextResultUri")
        assert page["resultType"] == "EOS"
        return found


@contextmanager
def serving(directory: Path, config: Config | None = None) -> Iterator[Callable[..., TestClient]]:
    """Yield a function that returns a client of one application with the given headers."""
    engine = FakeEngine()
    with rest_over_sqlite(directory, config=config or Config(), engine=engine) as rest:
        rest.prepare = lambda text, dialect: Read(text, partial(execute, engine))
        rest.go_on.set()
        rest.catalog.create(table())
        app = rest.app()
        yield lambda **headers: TestClient(
            app, base_url="http://127.0.0.1:10002", headers=headers, client=("127.0.0.1", 5)
        )


@pytest.fixture
def flink(tmp_path: Path) -> Iterator[Flink]:
    with serving(tmp_path) as client:
        yield Flink(client()).open()


def errors(answer: Any, status: int) -> str:
    """Return the only error of an answer in the form that Flink's clients read."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(body) == ["errors"]
    [text] = body["errors"]
    return str(text)


def test_a_client_learns_the_versions_from_the_oldest_one(flink: Flink) -> None:
    client = flink.client
    assert client.get("/v1/api_versions").json() == {"versions": ["V1", "V2", "V3", "V4"]}
    for version in ("v1", "v2", "v3", "v4"):
        assert client.get(f"/{version}/info").json()["productName"] == "Tidegate"
    assert "Not Found" in errors(client.get("/v5/info"), 404)


@pytest.mark.parametrize(
    ("method", "path", "since"),
    [
        ("POST", "/configure-session", 2),
        ("GET", "/complete-statement", 2),
        ("POST", "/materialized-tables/t/refresh", 3),
        ("POST", "/scripts", 4),
        ("POST", "/heartbeat", 1),
    ],
)
def test_each_version_has_its_calls(flink: Flink, method: str, path: str, since: int) -> None:
    for number in range(1, 5):
        answer = flink.client.request(method, f"/v{number}/sessions/{flink.handle}{path}")
        assert ("Not Found" in answer.text) is (number < since)


def test_a_result_is_fetched_page_by_page_and_each_page_again(flink: Flink) -> None:
    operation = flink.start("SELECT 3")
    page = flink.page(operation, rowFormat="JSON").json()
    path = flink.path(f"/operations/{operation}/result")
    assert page == {
        "resultType": "PAYLOAD",
        "isQueryResult": True,
        "resultKind": "SUCCESS_WITH_CONTENT",
        "results": {
            "columns": [
                {
                    "name": "n",
                    "logicalType": {"type": "INTEGER", "nullable": False},
                    "comment": None,
                }
            ],
            "rowFormat": "JSON",
            "data": [{"kind": "INSERT", "fields": [n]} for n in range(3)],
        },
        "nextResultUri": f"{path}/1?rowFormat=JSON",
    }
    assert flink.page(operation, rowFormat="JSON").json() == page
    last = flink.client.get(page["nextResultUri"]).json()
    assert (last["resultType"], last["results"]["data"]) == ("EOS", [])
    assert "nextResultUri" not in last
    assert flink.page(operation).json()["results"] == page["results"]
    assert "must be 1 or 0" in errors(flink.page(operation, 2), 400)


def test_long_results_have_pages(flink: Flink) -> None:
    assert flink.rows("SELECT 25000") == [[n] for n in range(25000)]


def test_text_for_people_and_the_first_version(flink: Flink) -> None:
    operation = flink.start("SELECT 1")
    page = flink.page(operation, rowFormat="PLAIN_TEXT").json()
    assert page["results"]["rowFormat"] == "PLAIN_TEXT"
    assert page["results"]["data"] == [{"kind": "INSERT", "fields": ["0"]}]
    assert page["nextResultUri"].endswith("/result/1?rowFormat=PLAIN_TEXT")
    assert "rowFormat must be JSON or PLAIN_TEXT" in errors(
        flink.page(operation, rowFormat="XML"), 400
    )
    first = Flink(flink.client, "v1").open()
    page = first.page(first.start("SELECT 1")).json()
    assert page["nextResultUri"].startswith(f"/v1/sessions/{first.handle}/")
    assert page["nextResultUri"].endswith("/result/1")


def test_pages_are_arrow_streams_for_those_who_accept_them(flink: Flink) -> None:
    operation = flink.start("SELECT 15000")
    path, read = flink.path(f"/operations/{operation}/result/0"), []
    while True:
        page = flink.client.get(path, headers={"Accept": "application/vnd.apache.arrow.stream"})
        if page.status_code == 204:
            break
        assert page.headers["content-type"] == "application/vnd.apache.arrow.stream"
        read.append(pa.ipc.open_stream(page.content).read_all())
        path = page.links["next"]["url"]
    assert [each.num_rows for each in read] == [10000, 5000]
    assert pa.concat_tables(read).to_pydict() == {"n": list(range(15000))}
    assert read[0].schema.field("n").type == pa.int32()


def test_an_empty_result_is_at_its_end_with_its_columns(flink: Flink) -> None:
    page = flink.page(flink.start("SELECT 0")).json()
    assert (page["resultType"], page["isQueryResult"]) == ("EOS", True)
    assert [column["name"] for column in page["results"]["columns"]] == ["n"]


def test_statements_without_rows_are_ok_and_warnings_follow(flink: Flink) -> None:
    page = flink.page(flink.start("SET a b")).json()
    assert (page["resultKind"], page["isQueryResult"]) == ("SUCCESS", False)
    assert page["results"]["data"] == [{"kind": "INSERT", "fields": ["OK"]}]
    page = flink.page(flink.start("WARN")).json()
    assert page["resultKind"] == "SUCCESS_WITH_CONTENT"
    rows = [row["fields"][0] for row in page["results"]["data"]]
    assert rows == ["OK", "Warning: the ice is thin"]


def test_a_failed_statement_says_why_whenever_it_is_fetched(flink: Flink) -> None:
    operation = flink.start("SELEC 1")
    for _ in range(2):
        assert errors(flink.page(operation), 400).startswith("[PARSE_SYNTAX] Syntax error")
    assert flink.client.get(flink.path(f"/operations/{operation}/status")).json() == {
        "status": "ERROR"
    }


def test_a_running_statement_is_not_ready_and_can_be_canceled(flink: Flink) -> None:
    operation = flink.start("WAIT")
    path = flink.path(f"/operations/{operation}")
    page = flink.page(operation, rowFormat="JSON").json()
    assert page == {
        "resultType": "NOT_READY",
        "nextResultUri": f"{path}/result/0?rowFormat=JSON",
    }
    assert flink.client.get(f"{path}/status").json() == {"status": "RUNNING"}
    assert "must be 0" in errors(flink.page(operation, 1), 400)
    assert flink.client.post(f"{path}/cancel").json() == {"status": "CANCELED"}
    assert errors(flink.page(operation), 409).startswith("[OPERATION_CANCELED]")
    assert flink.client.delete(f"{path}/close").json() == {"status": "CLOSED"}
    assert errors(flink.client.get(f"{path}/status"), 404).startswith("[INVALID_OPERATION_HANDLE]")


def test_a_statement_has_a_timeout_in_milliseconds(flink: Flink) -> None:
    operation = flink.start("WAIT", executionTimeout=50)
    assert errors(flink.page(operation), 409).startswith("[OPERATION_TIMEOUT]")
    path = flink.path(f"/operations/{operation}/status")
    assert flink.client.get(path).json() == {"status": "TIMEOUT"}


def test_settings_are_those_of_the_session_and_of_its_client(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        own = {"rest.port": "8083", "sql-client.verbose": "true"}
        session = Flink(client()).open(**own)
        shown = client().get(session.path("")).json()["properties"]
        assert shown == {
            **own,
            "execution.runtime-mode": "batch",
            "materialized-table.describe.format": "flink",
            "sql.dialect": "flink",
        }
        body = {"statement": "SET sql-client.verbose false"}
        assert client().post(session.path("/configure-session"), json=body).json() == {}
        shown = client().get(session.path("")).json()["properties"]
        assert shown["sql-client.verbose"] == "false"
        answer = client().post(session.path("/configure-session"), json={"statement": "NO"})
        assert errors(answer, 400).startswith("[PARSE_SYNTAX]")


def test_settings_of_the_client_have_an_effect_and_others_of_flink_a_warning(rest: Rest) -> None:
    session = Flink(rest.client()).open()
    assert session.rows("SET 'sql-client.execution.result-mode' = 'tableau'") == [["OK"]]
    ok, *warning = session.rows("SET 'parallelism.default' = '3'")
    assert ok == ["OK"]
    assert "changes nothing here" in " ".join(line for [line] in warning)


def test_an_invalid_setting_keeps_a_session_from_opening(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        answer = client().post("/v2/sessions", json={"properties": {"sql.dialect": "cobol"}})
        assert errors(answer, 400).startswith("[MT_OPTION_VALUE]")


def test_a_closed_session_is_unknown(flink: Flink) -> None:
    assert flink.client.post(flink.path("/heartbeat")).json() == {}
    assert flink.client.delete(flink.path("")).json() == {"status": "CLOSED"}
    for handle in (flink.handle, "nonsense", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"):
        answer = flink.client.get(f"/v3/sessions/{handle}")
        assert errors(answer, 404).startswith("[INVALID_SESSION_HANDLE]")


def test_operations_of_another_session_are_unknown(flink: Flink) -> None:
    operation = flink.start("SELECT 1")
    other = Flink(flink.client).open()
    assert errors(other.page(operation), 404).startswith("[INVALID_OPERATION_HANDLE]")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"statement": 1}', b'{"statement": "x", "more": 1}']
)
def test_malformed_bodies_are_errors(flink: Flink, body: bytes) -> None:
    answer = flink.client.post(flink.path("/statements"), content=body)
    assert errors(answer, 400).startswith("[INVALID_REQUEST]")


def test_words_are_completed_with_the_names_of_tables(flink: Flink) -> None:
    def complete(statement: str) -> list[str]:
        body = {"statement": statement, "position": len(statement)}
        answer = flink.client.request("GET", flink.path("/complete-statement"), json=body)
        found: list[str] = answer.json()["candidates"]
        return found

    assert "SHOW TABLES" in complete("SH")
    assert complete("USE CATALOG ") == ["spark_catalog"]
    assert f"{table().name.schema}.{table().name.table}" in complete("SELECT * FROM ")


def test_a_script_cannot_be_deployed(flink: Flink) -> None:
    answer = flink.client.post(f"/v4/sessions/{flink.handle}/scripts", json={"script": "SELECT 1"})
    assert errors(answer, 400).startswith("[NOT_SUPPORTED] Deploying a script")


def test_the_refresh_call_is_an_operation(tmp_path: Path) -> None:
    with rest_over_sqlite(tmp_path) as rest:
        rest.go_on.set()
        rest.catalog.create(table())
        session = Flink(rest.client()).open()
        name = table().name

        def refresh(identifier: str, **body: Any) -> Any:
            path = session.path(f"/materialized-tables/{identifier}/refresh")
            started = session.client.post(path, json=body)
            return session.page(started.json()["operationHandle"])

        page = refresh(f"`{name.catalog}`.`{name.schema}`.`{name.table}`").json()
        assert [column["name"] for column in page["results"]["columns"]] == [
            "job id",
            "cluster info",
        ]
        [row] = page["results"]["data"]
        assert (row["fields"][0], row["fields"][1]["state"]) == (
            rest.requests[0].refresh_id,
            "SUCCEEDED",
        )
        refresh(str(name), isPeriodic=True, scheduleTime="2024-01-03 00:00:00")
        assert str(rest.requests[1].schedule_time) == "2024-01-03 00:00:00+00:00"
        spec = {"Ds": "2024-01-02"}
        refresh(str(name), staticPartitions=spec, dynamicOptions=None)
        assert rest.requests[2].recompute.partitions == (spec,)
        assert errors(refresh("no.such.table"), 404).startswith("[MT_NOT_FOUND]")
        wrong = refresh(str(name), isPeriodic=True, scheduleTime="soon")
        assert errors(wrong, 400).startswith("[MT_SCHEDULE_TIME]")


def test_a_refresh_needs_the_privilege(tmp_path: Path) -> None:
    guarded = Config(authorization=AuthorizationSection(enabled=True, administrators=("root",)))
    with rest_over_sqlite(tmp_path, config=guarded) as rest:
        rest.go_on.set()
        rest.catalog.create(table())
        ann = Flink(rest.client(Authorization=basic("ann"))).open()
        path = ann.path(f"/materialized-tables/{table().name}/refresh")
        started = ann.client.post(path).json()["operationHandle"]
        assert errors(ann.page(started), 403).startswith("[ACCESS_DENIED]")
        assert rest.requests == []


# ---- logins --------------------------------------------------------------------------------------


def basic(user: str, password: str = "") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_without_logins_a_name_is_taken_as_it_is_given(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        assert Flink(client()).open().rows("SELECT WHO") == [["anonymous"]]
        ann = client(Authorization=basic("ann"))
        assert Flink(ann).open().rows("SELECT WHO") == [["ann"]]
        answer = client(Authorization="Basic ?").post("/v2/sessions", json={})
        assert errors(answer, 401).startswith("[LOGIN_REFUSED]")


def test_the_token_of_the_port_is_the_user_of_the_port(tmp_path: Path) -> None:
    config = Config(server=ServerSection(http_token="t", http_user="robot"))
    with serving(tmp_path, config) as client:
        for header in ({}, {"Authorization": "Bearer no"}, {"Authorization": basic("ann")}):
            assert "A bearer token is required" in errors(
                client(**header).get("/v1/api_versions"), 401
            )
        robot = client(Authorization="Bearer t")
        assert Flink(robot).open().rows("SELECT WHO") == [["robot"]]


@pytest.fixture
def with_passwords(tmp_path: Path) -> Config:
    file = tmp_path / "passwords"
    for user in ("ann", "bob"):
        set_password(file, user, user * 2)
    return Config(
        server=ServerSection(auth="PASSWORD", http_token="t"),
        login=LoginSection(password_file=str(file)),
    )


def test_users_log_in_with_passwords_and_have_sessions_of_their_own(
    tmp_path: Path, with_passwords: Config
) -> None:
    with serving(tmp_path, with_passwords) as client:
        answer = client().get("/v1/info")
        assert "FLINK_REST_CLIENT_HEADERS" in errors(answer, 401)
        assert answer.headers["www-authenticate"].startswith("Basic")
        wrong = client(Authorization=basic("ann", "bobbob")).post("/v2/sessions", json={})
        assert errors(wrong, 401).startswith("[LOGIN_REFUSED]")
        ann = Flink(client(Authorization=basic("ann", "annann"))).open()
        assert ann.rows("SELECT WHO") == [["ann"]]
        bob = client(Authorization=basic("bob", "bobbob"))
        assert errors(bob.get(ann.path("")), 404).startswith("[INVALID_SESSION_HANDLE]")
        assert errors(bob.delete(ann.path("")), 404).startswith("[INVALID_SESSION_HANDLE]")
        assert ann.rows("SELECT 1") == [[0]]


def test_rejected_logins_are_counted(tmp_path: Path, with_passwords: Config) -> None:
    with rest_over_sqlite(tmp_path, config=with_passwords) as rest:
        for headers in ({}, {"Authorization": "Digest x"}, {"Authorization": "Basic ?"}):
            assert rest.client(**headers).get("/v1/info").status_code == 401
        counted = rest.services.metrics.text().decode()
        assert 'tidegate_authentication_failures_total{port="http"} 3.0' in counted


def test_a_token_opens_no_session_beside_logins_unless_privileges_are_checked(
    tmp_path: Path, with_passwords: Config
) -> None:
    with serving(tmp_path, with_passwords) as client:
        answer = client(Authorization="Bearer t").post("/v2/sessions", json={})
        assert "does not open sessions unless privileges are checked" in errors(answer, 401)
    guarded = with_passwords.model_copy(
        update={"authorization": AuthorizationSection(enabled=True, administrators=("ann",))}
    )
    with serving(tmp_path / "guarded", guarded) as client:
        assert client(Authorization="Bearer t").get("/v1/info").status_code == 200


def test_pages_of_other_origins_open_no_sessions(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        answer = client(Origin="https://evil.example").post("/v1/sessions", json={})
        assert "Cross-origin" in errors(answer, 401)
