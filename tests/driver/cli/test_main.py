"""The command line runs scripts, reports errors, and exits with the status it promises."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli import main

NOT_FOUND = tidegate.ProgrammingError(
    "[MT_NOT_FOUND] There is no materialized table x (line 2, column 5).",
    sqlstate="42P01",
    code="MT_NOT_FOUND",
    hint="SHOW MATERIALIZED TABLES lists them.",
)


def run(server: FakeServer, *arguments: str) -> int:
    return main(list(arguments), connect=server.connect)


def test_a_statement_with_rows_is_written_as_a_table(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["select 1"] = Answer(["a", "b"], [(1, "x"), (20, None)])
    assert run(server, "-e", "select 1") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "+-----+------+",
        "|   a | b    |",
        "|-----+------|",
        "|   1 | x    |",
        "|  20 | NULL |",
        "+-----+------+",
    ]
    assert err.startswith("2 rows (")


def test_a_statement_without_rows_says_that_it_succeeded(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(server, "-e", "create x") == 0
    assert capsys.readouterr().err == "[INFO] Execute statement succeeded.\n"


def test_warnings_about_a_new_session_are_shown(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.warnings = ("Spark has no setting spark.sql.x: did you mean spark.sql.y?",)
    assert run(server, "-q", "-e", "create x") == 0
    assert capsys.readouterr().err == f"[WARN] {server.warnings[0]}\n"


def test_changed_rows_are_counted(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["insert"] = Answer(rowcount=3)
    run(server, "-e", "insert")
    assert capsys.readouterr().err == "[INFO] Execute statement succeeded: 3 rows.\n"


def test_warnings_and_notes_of_the_server_are_written(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [tidegate.Warning("thin ice"), tidegate.Warning("as it was", severity="note")]
    server.answers["select 1"] = Answer(["a"], [(1,)], messages=messages)
    run(server, "--format", "csv", "--no-header", "-e", "select 1")
    out, err = capsys.readouterr()
    assert out == "1\n"
    assert err.splitlines()[:2] == ["[WARN] thin ice", "[INFO] as it was"]
    run(server, "-q", "--format", "csv", "--no-header", "-e", "select 1")
    assert capsys.readouterr() == ("1\n", "[WARN] thin ice\n")


def test_quiet_writes_nothing_but_the_data(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["select 1"] = Answer(["a"], [(1,)])
    run(server, "-q", "--format", "csv", "--no-header", "-e", "select 1; create x")
    assert capsys.readouterr() == ("1\n", "")


def test_scripts_run_in_the_order_of_the_command_line(server: FakeServer, tmp_path: Path) -> None:
    script, init = tmp_path / "a.sql", tmp_path / "init.sql"
    script.write_text("two; three;")
    init.write_text("zero")
    assert run(server, "-e", "one", "-f", str(script), "-e", "four", "-i", str(init)) == 0
    assert server.statements == ["zero", "one", "two", "three", "four"]


def test_a_script_is_read_from_standard_input(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one;\ntwo"))
    assert run(server) == 0
    assert server.statements == ["one", "two"]


def test_a_script_may_begin_with_a_byte_order_mark(server: FakeServer, tmp_path: Path) -> None:
    script = tmp_path / "a.sql"
    script.write_text("one", "utf-8-sig")
    assert run(server, "-f", str(script)) == 0
    assert server.statements == ["one"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "ERROR cannot read {file}: No such file or directory"),
        (b"one; \xfftwo", "ERROR {file} is not text in UTF-8: byte 0xff at position 5"),
    ],
)
def test_a_script_that_cannot_be_read_is_named_and_nothing_runs(
    server: FakeServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    complaint: str,
) -> None:
    script = tmp_path / "a.sql"
    if content is not None:
        script.write_bytes(content)
    assert run(server, "-e", "zero", "-f", str(script)) == 2
    assert capsys.readouterr().err.splitlines() == [complaint.format(file=script)]
    assert server.statements == []


def test_an_error_names_file_line_state_code_hint_and_place(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a.sql"
    script.write_text("-- nightly\none;\nselect *\nfrom x;\nlast")
    server.answers["select *\nfrom x"] = Answer(error=NOT_FOUND)
    assert run(server, "-q", "-f", str(script)) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{script}:4: ERROR 42P01 {NOT_FOUND}",
        "LINE 2: from x",
        "            ^",
        "HINT: SHOW MATERIALIZED TABLES lists them.",
    ]
    assert server.statements == ["one", "select *\nfrom x"]


def test_force_goes_on_after_an_error_and_still_fails(server: FakeServer) -> None:
    server.answers["two"] = Answer(error=NOT_FOUND)
    assert run(server, "--force", "-e", "one; two; three", "-e", "four") == 1
    assert server.statements == ["one", "two", "three", "four"]


def test_without_a_connection_the_status_is_3(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusal = tidegate.OperationalError("connection refused", sqlstate="08001")
    assert run(server, "-e", "one") == 3
    assert capsys.readouterr().err == "ERROR 08001 connection refused\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["-f", "/there/is/no/such/file"],
        ["-u", "mysql://x", "-e", "one"],
        ["-u", "gateway:10001", "-e", "one"],
    ],
)
def test_wrong_usage_is_status_2(server: FakeServer, arguments: list[str]) -> None:
    assert run(server, *arguments) == 2
    assert server.statements == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nope"],
        ["--format", "xml"],
        ["--set", "novalue"],
        ["-u", "tidegate://a", "--port", "1"],
        ["-u", "tidegate://a", "--embedded"],
        ["--socket", "/run/tidegate", "--port", "1"],
        ["--data", "lake"],
    ],
)
def test_wrong_arguments_are_status_2(server: FakeServer, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(server, *arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("word", ["mt", "plan", "apply"])
def test_options_before_a_command_are_rejected_with_its_place(
    server: FakeServer, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(server, "-p", "secret", word, "list")
    assert ended.value.code == 2
    written = capsys.readouterr().err
    assert f"{word} is a command, which comes before the options: tidegate {word} …" in written
    assert "secret" not in written


def test_the_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "SHOW MATERIALIZED TABLES" in capsys.readouterr().out


def test_url_and_arguments_name_the_server_together(server: FakeServer) -> None:
    url = "tidegate://ada@gateway:10001/sales?auth=NOSASL&a=1"
    run(server, "-u", url, "-n", "bob", "-p", "pw", "-d", "hr", "--set", "b=2=3", "-e", "one")
    options = server.options[0]
    assert (options.host, options.port, options.auth) == ("gateway", 10001, "NOSASL")
    assert (options.user, options.password, options.schema) == ("bob", "pw", "hr")
    assert options.settings == {"a": "1", "b": "2=3"}


@pytest.mark.parametrize(
    ("arguments", "statement"),
    [
        (["list"], "SHOW MATERIALIZED TABLES EXTENDED"),
        (["list", "d%"], "SHOW MATERIALIZED TABLES EXTENDED LIKE 'd%'"),
        (["show", "sales.a`b"], None),
        (["show", "sales.daily"], "DESCRIBE MATERIALIZED TABLE EXTENDED `sales`.`daily`"),
        (["show", "--ddl", "`a.b`"], "SHOW CREATE MATERIALIZED TABLE `a.b`"),
        (["refresh", "t"], "ALTER MATERIALIZED TABLE `t` REFRESH SYNC"),
        (
            ["refresh", "t", "--full", "--async", "--cascade", "upstream"],
            "ALTER MATERIALIZED TABLE `t` REFRESH FULL CASCADE UPSTREAM ASYNC",
        ),
        (
            ["refresh", "t", "--partition", "ds=1", "--partition", "x y=it's"],
            "ALTER MATERIALIZED TABLE `t` REFRESH PARTITION (`ds` = '1', `x y` = 'it\\'s') SYNC",
        ),
        (["refresh", "t", "--partition", "ds"], None),
        (["refresh"], None),
        (["suspend", "t", "--cascade"], "ALTER MATERIALIZED TABLE `t` SUSPEND CASCADE"),
        (["resume", "t"], "ALTER MATERIALIZED TABLE `t` RESUME"),
        (["history"], "SHOW REFRESH HISTORY LIMIT 20"),
        (
            ["history", "c.s.t", "--limit", "3", "--errors"],
            "SHOW REFRESH HISTORY FOR `c`.`s`.`t` LIMIT 3 ERRORS",
        ),
        (["lineage", "t", "--columns"], "SHOW LINEAGE `t` COLUMNS"),
        (["lineage", "a.b.c.d"], None),
    ],
)
def test_a_verb_is_a_statement(
    server: FakeServer, arguments: list[str], statement: str | None
) -> None:
    if statement is None:
        with pytest.raises(SystemExit) as ended:
            run(server, "mt", *arguments)
        assert ended.value.code == 2
        assert server.statements == []
    else:
        assert run(server, "mt", *arguments, "--host", "gateway") == 0
        assert server.statements == [statement]
        assert server.options[0].host == "gateway"


@pytest.mark.parametrize(("equal", "status"), [(True, 0), (False, 1)])
def test_verify_ends_with_1_if_the_table_differs(
    server: FakeServer, capsys: pytest.CaptureFixture[str], equal: bool, status: int
) -> None:
    statement = "VERIFY MATERIALIZED TABLE `t` VERSION 3"
    server.answers[statement] = Answer(["table", "equal"], [("t", equal)])
    assert run(server, "mt", "verify", "t", "--version", "3", "--json") == status
    assert json.loads(capsys.readouterr().out) == {"table": "t", "equal": equal}


def test_lag_ends_with_1_if_a_table_that_it_shows_is_late(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["catalog", "database", "table", "breached"]
    rows = [("main", "sales", "late", True), ("main", "sales", "fresh", False)]
    server.answers["SHOW LAG"] = Answer(names, rows)
    assert run(server, "mt", "lag", "--json") == 1
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert run(server, "mt", "lag", "Sales.fresh", "--json") == 0
    assert json.loads(capsys.readouterr().out)["table"] == "fresh"
    server.answers["SHOW LAG"] = Answer(names, [("main", "sales", "a`b", True)])
    assert run(server, "mt", "lag", "`a``b`", "--json") == 1


def test_a_failed_verb_says_why(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["ALTER MATERIALIZED TABLE `x` SUSPEND"] = Answer(error=NOT_FOUND)
    assert run(server, "mt", "suspend", "x") == 1
    assert "HINT: SHOW MATERIALIZED TABLES lists them." in capsys.readouterr().err


def test_create_runs_definitions_only(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "tables.sql"
    script.write_text("-- daily\ncreate or alter materialized table a as select 1;\n")
    assert run(server, "mt", "create", "-f", str(script)) == 0
    assert len(server.statements) == 1
    script.write_text("CREATE MATERIALIZED TABLE a AS SELECT 1;\n\nDROP TABLE b;")
    with pytest.raises(SystemExit) as ended:
        run(server, "mt", "create", "-f", str(script))
    assert ended.value.code == 2
    assert f"{script}:3: only CREATE" in capsys.readouterr().err
    assert len(server.statements) == 1


def test_commands_have_the_names_of_psql_too(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "it's.sql"
    script.write_text("two;")
    quoted = str(script).replace("'", "''")
    run(server, "-e", f"\\d sales.t\n!describe t\n\\?\none; EXECUTE '{quoted}'; \n\\q\nthree;")
    assert server.statements == ["DESCRIBE EXTENDED sales.t", "DESCRIBE EXTENDED t", "one", "two"]
    assert "!record [FILE]" in capsys.readouterr().out


def test_results_are_recorded_in_a_file(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["one"] = Answer(["a"], [("x|y",)])
    file = tmp_path / "log.md"
    script = f"!record {file}\none;\n!record\none;\n"
    assert run(server, "--format", "markdown", "-e", script) == 0
    table = "| a |\n| -- |\n| x\\|y |\n"
    assert file.read_text() == table
    assert capsys.readouterr().out == 2 * table
    assert run(server, "-e", "!record") == 1


@pytest.mark.parametrize("command", ["!watch", "!watch never", "!watch 0 select 1"])
def test_what_cannot_be_watched_is_an_error(server: FakeServer, command: str) -> None:
    assert run(server, "-e", command) == 1
    assert server.statements == []


def test_jars_are_added_to_the_session(server: FakeServer, tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "c.txt"):
        (tmp_path / name).touch()
    run(server, "--jar", "hdfs:///x.jar", "--library", str(tmp_path), "-e", "one")
    assert server.statements == [
        "ADD JAR 'hdfs:///x.jar'",
        *(f"ADD JAR '{tmp_path / name}'" for name in ("a.jar", "b.jar")),
        "one",
    ]
    with pytest.raises(SystemExit) as ended:
        run(server, "--library", str(tmp_path / "empty"), "-e", "one")
    assert ended.value.code == 2


def test_beelines_options_are_settings(server: FakeServer) -> None:
    run(server, "--hiveconf", "a=1", "--hivevar", "day=x", "--set", "b=2", "-e", "one")
    assert server.options[0].settings == {"a": "1", "hivevar:day": "x", "b": "2"}


def test_a_socket_is_an_address(server: FakeServer) -> None:
    run(server, "-u", "tidegate:///sales?socket=%2Frun%2Ftide%20gate", "-e", "one")
    run(server, "--socket", "/run/tidegate", "-e", "one")
    assert [options.address for options in server.options] == ["/run/tide gate", "/run/tidegate"]
    assert server.options[0].schema == "sales"


def test_settings_come_from_files_the_url_and_arguments(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "tidegate").mkdir()
    (tmp_path / "tidegate" / "sql-defaults.conf").write_text(
        "# everybody's\na = 1\nb: 1\nc = 1\nd = 1\n"
    )
    context = tmp_path / "sql-context.conf"
    context.write_text("-- of this task\n\n'b' = 'x # y = z'\nc = 2\nd=2\n// the end\n")
    url = "tidegate://ada@gateway/sales?c=3&d=3"
    run(server, "-u", url, "--context", str(context), "--set", "d=4", "-e", "one")
    assert server.options[0].settings == {"a": "1", "b": "x # y = z", "c": "3", "d": "4"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file"),
        ("a = 1\nb\n", "line 2 is not of the form key = value"),
        ("a = 1\n[b]\n", "[b] is not a setting"),
        ("a = 1\n\na = 2\n", "line 3 sets a again"),
    ],
)
def test_settings_that_cannot_be_read_are_status_2(
    server: FakeServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    told: str,
) -> None:
    context = tmp_path / "sql-context.conf"
    if text is not None:
        context.write_text(text)
    with pytest.raises(SystemExit) as ended:
        run(server, "--context", str(context), "-e", "one")
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert server.statements == []


def test_a_password_is_read_from_a_file(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("pw\n")
    run(server, "--password-file", str(tmp_path / "secret"), "-e", "one")
    assert server.options[0].password == "pw"


def test_the_session_is_closed_at_the_end(server: FakeServer) -> None:
    server.answers["two"] = Answer(error=NOT_FOUND)
    run(server, "-e", "one")
    run(server, "-e", "two")
    assert server.open_sessions == 0


def test_ctrl_c_cancels_the_statement_on_the_server(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["long"] = Answer(blocks=True)

    def interrupt() -> None:
        assert server.running.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    user = threading.Thread(target=interrupt)
    user.start()
    status = run(server, "-e", "long; never")
    user.join()
    assert status == 130
    assert server.canceled.is_set()
    assert server.statements == ["long"]
    assert capsys.readouterr().err == "Interrupted.\n"


def test_a_reader_that_leaves_ends_it_quietly(server: FakeServer) -> None:
    rows = [(n, "x" * 100) for n in range(5000)]
    server.answers["big"] = Answer(["n", "x"], rows)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        stdout, sys.stdout = sys.stdout, pipe
        try:
            status = run(server, "--format", "csv", "-e", "big")
        finally:
            sys.stdout = stdout
    assert status == 141
    assert server.open_sessions == 0


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("!tables", ("tables", (None, "%"))),
        ("!tables sales.o%", ("tables", ("sales", "o%"))),
        ("!mts", ("tables", (None, "%", ["MATERIALIZED_TABLE"]))),
        ("!columns t", ("columns", (None, "t"))),
        ("!schemas", ("schemas", ())),
        ("!functions", ("functions", ())),
    ],
)
def test_a_command_asks_for_metadata(server: FakeServer, line: str, call: Any) -> None:
    assert run(server, "-e", line) == 0
    assert server.calls == [call]


def test_set_changes_the_format_for_what_follows(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["select 1"] = Answer(["a"], [(1,)])
    run(server, "-e", "!set format json\nselect 1; !set quiet on\n!set")
    assert capsys.readouterr().out == '{"a": 1}\nformat json\nheader on\nquiet on\npager off\n'


def test_quit_leaves_a_script(server: FakeServer) -> None:
    assert run(server, "-e", "one; !quit\ntwo", "-e", "three") == 0
    assert server.statements == ["one"]


def test_connect_changes_the_server(server: FakeServer) -> None:
    assert run(server, "-e", "!connect tidegate://other:10009/hr ada pw\none") == 0
    assert [options.host for options in server.options] == ["localhost", "other"]
    assert server.options[1].password == "pw"
    assert server.open_sessions == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("!nope", "There is no command !nope"),
        ("!columns", "Write !columns"),
        ("!connect", "Write !connect"),
        ("!set format xml", "Write !set format"),
        ("!run /no/file", "cannot read /no/file: No such file"),
        ("!history", "Only the interactive shell"),
        ("!tables 'x", "No closing quotation"),
        ("!sh exit 3", "status 3"),
    ],
)
def test_a_wrong_command_says_how_it_is_written(
    server: FakeServer, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(server, "-e", line) == 1
    assert message in capsys.readouterr().err


def test_a_file_can_be_run_by_a_command(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("one; two")
    assert run(server, "-e", f"!run {tmp_path / 'a.sql'}\nthree") == 0
    assert server.statements == ["one", "two", "three"]


def test_a_statement_without_a_connection_says_how_to_get_one(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(server, "-e", "!close\none") == 1
    assert "!reconnect" in capsys.readouterr().err
