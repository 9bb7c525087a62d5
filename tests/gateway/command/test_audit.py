"""What the audit log has of statements, whoever runs them and however they end."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.examples import NOON
from tests.gateway.command.fakes import FixedClock
from tests.gateway.command.guarded import LOGINS, READS_M, Guarded, selecting
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection
from tidegate_server.core.errors import Code, error
from tidegate_server.core.messages.answers import Surveyed
from tidegate_server.core.messages.requests import CloseResult, Execute, Survey
from tidegate_server.core.model.access import Access, Act, ObjectKind
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.privileges import Privilege
from tidegate_server.core.model.runs import Trigger
from tidegate_server.core.refresh.request import RefreshRequest
from tidegate_server.gateway.audit.file import RotatedFile
from tidegate_server.gateway.audit.log import AuditLog
from tidegate_server.gateway.audit.record import Record
from tidegate_server.gateway.authorization.admission import admit_run
from tidegate_server.gateway.context import Services
from tidegate_server.gateway.runs.orders import RunRequest, refresh_order, run_request

SYSTEM = TableName("spark_catalog", "information_schema", "audit_log")


class Audited(Guarded):
    """A guarded world with an audit log."""

    def __init__(self, folder: Path) -> None:
        self.file = RotatedFile(folder / "audit.jsonl", max_bytes=1 << 20, max_files=2)
        self.audit = AuditLog(self.file, server_id="server-1", clock=FixedClock())
        self.asked: list[bool] = []
        """For each publication of system tables whether private ones were included."""
        super().__init__()
        self.session.real_user, self.session.address = "proxy", "192.0.2.1"

    def _services(self) -> Services:
        return replace(super()._services(), audit=self.audit)

    def _publish(self, text: str, administers: bool) -> None:
        self.asked.append(administers)

    def line(self, user: str, text: str, **options: Any) -> dict[str, Any]:
        """Return the only line that a user's statement leaves."""
        before = len(self.lines)
        self.be(user)
        try:
            self.execute(text, **options).close()
        except Exception as problem:
            assert getattr(problem, "code", ""), problem
        [line] = self.lines[before:]
        return line

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.path.read_text().splitlines()]


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    return Audited(tmp_path)


def objects(line: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["act"], each["kind"], each["name"]) for each in line["objects"]]


def test_a_statement_leaves_one_line_with_who_ran_it_and_where_from(audited: Audited) -> None:
    audited.may(Privilege.SELECT)
    audited.engine.surveys["SELECT * FROM m"] = READS_M
    line = audited.line("bob", "SELECT * FROM m")
    told = ("event", "user", "real_user", "address", "session_id", "operation_id", "outcome")
    assert [line[key] for key in told] == (
        ["statement", "bob", "proxy", "192.0.2.1", "s1", f"op{audited.operations}", "SUCCESS"]
    )
    assert (line["statement_kind"], line["text"]) == ("SELECT", "SELECT * FROM m")
    assert (line["allowed"], line["reason"]) == (True, None)
    assert objects(line) == [("SELECT", "TABLE", "spark_catalog.d.m")]


def test_a_denied_query_says_what_was_judged_and_why(audited: Audited) -> None:
    audited.engine.surveys["SELECT * FROM m"] = READS_M
    line = audited.line("bob", "SELECT * FROM m")
    assert (line["allowed"], line["outcome"]) == (False, "ACCESS_DENIED")
    assert line["reason"] == "User bob needs SELECT on materialized table spark_catalog.d.m."
    assert objects(line) == [("SELECT", "TABLE", "spark_catalog.d.m")]


def test_what_the_engine_denies_is_denied(audited: Audited) -> None:
    denial = error(Code.ACCESS_DENIED, user="ann", privilege="SELECT", object="table x")
    audited.engine.failures[Execute] = denial
    line = audited.line("ann", "SELECT * FROM x")
    assert (line["allowed"], line["reason"]) == (False, "User ann needs SELECT on table x.")


def test_administrators_are_not_judged_but_recorded(audited: Audited) -> None:
    surveys = len(audited.engine.requests_of(Survey))
    line = audited.line("root", "SELECT * FROM m")
    assert len(audited.engine.requests_of(Survey)) == surveys
    assert (line["allowed"], line["reason"], line["objects"]) == (True, "administrator", [])
    line = audited.line("root", "ALTER MATERIALIZED TABLE m SUSPEND")
    assert objects(line) == [("ALTER", "MATERIALIZED TABLE", "spark_catalog.d.m")]


M, ON_M = "MATERIALIZED TABLE", ("MATERIALIZED TABLE", "spark_catalog.d.m")


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (
            f"CREATE {M} new AS SELECT 1",
            "CREATE MATERIALIZED TABLE",
            [("CREATE", M, "spark_catalog.d.new")],
        ),
        (f"DROP {M} m", "DROP MATERIALIZED TABLE", [("OWN", *ON_M)]),
        (f"ALTER {M} m RENAME TO o", "ALTER RENAME", [("OWN", *ON_M)]),
        (
            f"ALTER {M} m SWAP WITH n",
            "ALTER SWAP",
            [("OWN", *ON_M), ("OWN", M, "spark_catalog.d.n")],
        ),
        (f"ALTER {M} m REFRESH", "ALTER REFRESH", [("REFRESH", *ON_M)]),
        (
            f"ALTER {M} m SUSPEND CASCADE",
            "ALTER SUSPEND",
            [("ALTER", *ON_M), ("ALTER", M, "spark_catalog.d.n")],
        ),
        (f"SHOW CREATE {M} m", "SHOW CREATE MATERIALIZED TABLE", [("SEE", *ON_M)]),
        (
            f"GRANT SELECT ON {M} m TO USER carl",
            "GRANT PRIVILEGES",
            [("GRANT", *ON_M)],
        ),
        (f"REVOKE SELECT ON {M} m FROM USER carl", "REVOKE PRIVILEGES", [("REVOKE", *ON_M)]),
        (f"SHOW GRANTS ON {M} m", "SHOW GRANTS", [("SEE", *ON_M)]),
        (f"ALTER {M} m SET OWNER TO USER carl", "SET OWNER", [("SET OWNER", *ON_M)]),
        ("CREATE ROLE clerks", "CREATE ROLE", [("CREATE ROLE", "ROLE", "clerks")]),
        ("SET x = 1", "SET OPTION", [("SET", "SETTING", "x")]),
        ("SELEC 1", "SELEC", []),
        (f"ALTER {M} m NONSENSE", None, []),
    ],
)
@pytest.mark.parametrize("user", ["ann", "bob"])
def test_the_kind_and_the_objects_of_own_statements(
    audited: Audited, user: str, text: str, kind: str | None, expected: list[tuple[str, str, str]]
) -> None:
    line = audited.line(user, text)
    assert line["statement_kind"] == kind
    found = objects(line)
    # Judging ends with the first denial.
    assert found == (expected if line["allowed"] else expected[: len(found)])
    assert found or not expected
    if expected and user == "bob" and not text.startswith(("CREATE M", "SET x")):
        assert (line["allowed"], line["outcome"]) == (False, "ACCESS_DENIED")


def test_settings_are_objects(audited: Audited) -> None:
    line = audited.line("bob", "SET materialized-table.read.max-staleness = 1 h")
    assert objects(line) == [("SET", "SETTING", "materialized-table.read.max-staleness")]
    line = audited.line("bob", "SET materialized-table.read.max-staleness")
    assert objects(line) == [("SHOW", "SETTING", "materialized-table.read.max-staleness")]


def test_a_denied_setting_of_a_statement_is_recorded_before_any_judgement(
    audited: Audited,
) -> None:
    line = audited.line("bob", "SELECT 1", overlay={"spark.jars": "/x.jar"})
    assert (line["allowed"], line["outcome"]) == (False, "ACCESS_DENIED")
    assert "spark.jars" in line["reason"]


def test_a_refresh_is_recorded_with_what_its_executor_reads(audited: Audited) -> None:
    def admitted(owner: str) -> Record:
        table = replace(audited.table("n"), owner=owner)
        audited.catalog.replace(table)
        record = Record()
        request = run_of_n(audited)
        admit_run(request, audited._services(), record)
        return record

    text = audited.definition("n").expanded_query
    audited.engine.surveys[text] = READS_M
    record = admitted("ann")
    assert [each.name for each in record.objects] == ["spark_catalog.d.m"]
    assert record.reason == ""
    record = admitted("root")
    assert ([each.name for each in record.objects], record.reason) == (
        ["spark_catalog.d.m"],
        "administrator",
    )


def run_of_n(world: Audited) -> RunRequest:
    table = world.table("n")
    asked = RefreshRequest(table_id=table.id, trigger=Trigger.MANUAL, requested_by="ann")
    order = refresh_order(table, asked, refresh_id="r", epoch=1, asked_at=NOON)
    return run_request(table, asked.task, order)


def test_a_result_is_withheld_if_its_statement_cannot_be_recorded(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(handle: int, text: bytes) -> int:
        raise OSError(28, "No space left on device")

    audited.audit = AuditLog(audited.file, required=True)
    monkeypatch.setattr(os, "write", fail)
    executed = len(audited.engine.requests_of(Execute))
    assert audited.outcome("SELECT 1") == "AUDIT_UNAVAILABLE"
    assert len(audited.engine.requests_of(Execute)) == executed + 1
    assert len(audited.engine.requests_of(CloseResult)) == 1
    assert audited.outcome("SELECT 1") == "AUDIT_UNAVAILABLE"
    assert len(audited.engine.requests_of(Execute)) == executed + 1, "it did not run"


# ---- who may read it -------------------------------------------------------------------------


def _in_a_view() -> Surveyed:
    view = Access(
        act=Act.SELECT,
        kind=ObjectKind.VIEW,
        catalog="spark_catalog",
        schema="d",
        name="v",
        owner="root",
    )
    [access] = selecting(SYSTEM).accesses
    within = replace(access, via="spark_catalog.d.v")
    return replace(selecting(SYSTEM), accesses=(view, within))


@pytest.mark.parametrize("surveyed", [selecting(SYSTEM), _in_a_view()], ids=["table", "view"])
@pytest.mark.parametrize(
    "config",
    [
        Config(authorization=AuthorizationSection(enabled=True, administrators=("root",))),
        Config(server=LOGINS, authorization=AuthorizationSection(administrators=("root",))),
    ],
    ids=["authorization", "logins"],
)
def test_only_administrators_read_it(audited: Audited, config: Config, surveyed: Surveyed) -> None:
    audited.config = config
    query = "SELECT * FROM information_schema.audit_log"
    audited.engine.surveys[query] = surveyed
    line = audited.line("bob", query)
    assert (line["allowed"], line["outcome"]) == (False, "ACCESS_DENIED")
    if not line["reason"].startswith("User bob needs SELECT on view"):
        assert line["reason"] == "User bob needs administration on information_schema.audit_log."
    assert audited.line("root", query)["allowed"]


def test_no_definition_reads_it(audited: Audited) -> None:
    query = "SELECT * FROM information_schema.audit_log"
    audited.engine.surveys[query] = selecting(SYSTEM)
    line = audited.line("bob", f"CREATE {M} mine AS {query}")
    assert line["reason"] == "User bob needs administration on information_schema.audit_log."


def test_its_rows_are_only_gathered_for_administrators(audited: Audited) -> None:
    query = "SELECT * FROM information_schema.audit_log"
    audited.engine.surveys[query] = selecting(SYSTEM)
    for user in ("bob", "root"):
        audited.line(user, query)
    assert audited.asked == [False, True]


def test_an_insert_that_becomes_a_job_names_its_target(audited: Audited) -> None:
    line = audited.line("bob", "INSERT INTO plain SELECT * FROM STREAM rate()")
    assert objects(line) == [("MODIFY", "TABLE", "spark_catalog.d.plain")]
