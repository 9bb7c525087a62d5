"""Context files with sections become settings and statements of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate
from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli import main
from tidegate.cli.contexts import read_context
from tidegate.cli.files import UnreadableFileError

TOML = """\
[settings]
"spark.sql.shuffle.partitions" = 8
"spark.sql.ansi.enabled" = true

[variables]
day = "2026-01-31"

[client]
format = "csv"
header = false

[catalogs.lake]
type = "iceberg"
catalog.type = "hadoop"
"warehouse" = "/it's here"

[use]
catalog = "lake"
schema = "sales"

[functions]
half = "org.example.Half"
twice = { class = "org.example.Twice", jars = ["/jars/a.jar"], temporary = false }

[tables.clicks]
columns = { id = "BIGINT", at = "TIMESTAMP(3)" }
options = { connector = "kafka", topic = "clicks", properties."bootstrap.servers" = "k:9092" }

[tables."main.sales.sink"]
columns = "id BIGINT, PRIMARY KEY (id) NOT ENFORCED"
temporary = false
[tables."main.sales.sink".options]
connector = "blackhole"

[views]
recent = "SELECT * FROM clicks WHERE at > current_date"
"""
YAML = """\
# the same, in part
settings:
  spark.sql.shuffle.partitions: 8
variables:
  day: '2026-01-31'
views:
  recent: |-
    SELECT * FROM clicks
"""
STATEMENTS = [
    (
        "CREATE CATALOG IF NOT EXISTS `lake` WITH ('type' = 'iceberg', 'catalog.type' = 'hadoop', "
        "'warehouse' = '/it\\'s here')"
    ),
    "USE CATALOG `lake`",
    "USE `sales`",
    "CREATE OR REPLACE TEMPORARY FUNCTION `half` AS 'org.example.Half'",
    "CREATE FUNCTION IF NOT EXISTS `twice` AS 'org.example.Twice' USING JAR '/jars/a.jar'",
    (
        "CREATE TEMPORARY TABLE `clicks` (`id` BIGINT, `at` TIMESTAMP(3)) WITH "
        "('connector' = 'kafka', 'topic' = 'clicks', 'properties.bootstrap.servers' = 'k:9092')"
    ),
    (
        "CREATE TABLE IF NOT EXISTS `main`.`sales`.`sink` "
        "(id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'blackhole')"
    ),
    "CREATE OR REPLACE TEMPORARY VIEW `recent` AS SELECT * FROM clicks WHERE at > current_date",
]


def write(folder: Path, text: str, name: str = "sales.toml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_session_begins_with_what_the_file_declares(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["one"] = Answer(["a"], [(1,)])
    file = write(tmp_path, TOML)
    status = main(["--context", file, "-e", "one", "-q"], connect=server.connect)
    assert status == 0
    assert server.statements == [*STATEMENTS, "one"]
    assert server.options[0].settings == {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.ansi.enabled": "true",
        "hivevar:day": "2026-01-31",
    }
    assert capsys.readouterr().out == "1\n"


def test_options_override_the_clients_settings(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answers["one"] = Answer(["a"], [(1,)])
    file = write(tmp_path, "[client]\nformat = 'csv'\n")
    main(["--context", file, "--format", "json", "-e", "one"], connect=server.connect)
    assert capsys.readouterr().out == '{"a": 1}\n'


def test_each_session_begins_with_it(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "[use]\nschema = 'sales'\n[client]\nformat = 'json'\n")
    use = "USE `sales`"
    main(["--context", file, "-e", "!reconnect\none"], connect=server.connect)
    assert server.statements == [use, use, "one"]
    server.answers["SHOW REFRESH HISTORY LIMIT 20"] = Answer(["state"], [("FAILED",)])
    assert main(["mt", "history", "--context", file, "--jar", "a.jar"], connect=server.connect) == 0
    assert server.statements[3:] == ["ADD JAR 'a.jar'", use, "SHOW REFRESH HISTORY LIMIT 20"]
    assert capsys.readouterr().out == '{"state": "FAILED"}\n'
    (tmp_path / "tables").mkdir()
    server.answers["SELECT current_catalog(), current_schema()"] = Answer(
        ["catalog", "schema"], [("main", "sales")]
    )
    assert main(["plan", str(tmp_path / "tables"), "--context", file], connect=server.connect) == 0
    assert server.statements[6:8] == [use, "SELECT current_catalog(), current_schema()"]
    assert server.open_sessions == 0


def test_yaml_is_read_too(tmp_path: Path) -> None:
    found = read_context(write(tmp_path, YAML, "sales.yaml"))
    assert found.settings == (
        ("spark.sql.shuffle.partitions", "8"),
        ("hivevar:day", "2026-01-31"),
    )
    assert [each.sql for each in found.preparations] == [
        "CREATE OR REPLACE TEMPORARY VIEW `recent` AS SELECT * FROM clicks"
    ]


def test_an_error_names_the_entry(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = tidegate.ProgrammingError("no topic", sqlstate="42000", hint="Name one.")
    server.answers[STATEMENTS[5]] = Answer(error=refused)
    file = write(tmp_path, TOML)
    assert main(["--context", file, "-e", "one"], connect=server.connect) == 1
    assert capsys.readouterr().err == (
        f"{file}:25: tables.clicks: ERROR 42000 no topic\nHINT: Name one.\n"
    )
    assert "one" not in server.statements


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("[setting]\na = 1", "a.toml", ":1: setting is unknown: did you mean settings?"),
        ("[settings]\n\na = [1]", "a.toml", ":3: settings.a has to be a text, a number"),
        ("[client]\nformat = 'xml'", "a.toml", ":2: client.format has to be one of table, vert"),
        ("[tables.t]\ncolumn = 'a'", "a.toml", ":2: tables.t.column is unknown: did you mean colu"),
        ("[tables.t]\ncolumns = 'a INT'", "a.toml", ":1: tables.t.options has to have entries"),
        ("[functions]\nf = { jars = [] }", "a.toml", ":2: functions.f needs class"),
        (
            "[use]\ndatabase = 'x'",
            "a.toml",
            ":2: use.database is unknown: there are",
        ),
        ("[settings", "a.toml", "cannot read "),
        ("settings: [1]", "a.yaml", ":1: settings has to have entries with names"),
        ("a: b: c", "a.yml", "mapping values are not allowed here"),
        ("views:\n  v: {}", "a.yaml", ":2: views.v has to be a text"),
    ],
)
def test_what_cannot_work_is_said_with_its_line(
    tmp_path: Path, text: str, name: str, message: str
) -> None:
    with pytest.raises(UnreadableFileError) as wrong:
        read_context(write(tmp_path, text, name))
    assert message in str(wrong.value)
