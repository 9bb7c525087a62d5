"""A directory of definitions is compared with a server, and applied in order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidegate
from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli import main
from tidegate.cli.projects.directory import read_directory
from tidegate.cli.projects.plan import (
    Action,
    Plan,
    Step,
    as_json,
    as_markdown,
    as_text,
    changes_of,
    estimate_of,
)
from tidegate.cli.projects.statements import ProjectError

HEAD = "CREATE OR ALTER MATERIALIZED TABLE"
HERE = "SELECT current_catalog(), current_schema()"
CHANGES = ["object", "before", "after", "effect", "reason"]
NOT_FOUND = tidegate.ProgrammingError("[TABLE_OR_VIEW_NOT_FOUND] no b", sqlstate="42P01")


def write(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text)
    return str(folder)


def names(folder: Path) -> list[str]:
    return [".".join(each.name[1:]) for each in read_directory(str(folder), "Main", "Sales")]


def test_tables_come_after_those_that_they_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        a=f"-- a\n{HEAD} a AS SELECT * FROM x.`B` JOIN c USING (k);\n{HEAD} c AS SELECT k FROM raw",
        b=f"{HEAD} main.x.b COMMENT 'FROM a' AS /* FROM a */ SELECT k FROM sales.c, other",
    )
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "d.sql").write_text(f"{HEAD} D AS SELECT 1 AS k")
    assert names(tmp_path) == ["sales.d", "sales.c", "x.b", "sales.a"] or names(tmp_path) == [
        *("sales.c", "sales.d", "x.b", "sales.a")
    ]
    a = read_directory(str(tmp_path), "main", "sales")[-1]
    assert a.upstream == (("main", "x", "b"), ("main", "sales", "c"))
    assert a.place == "a.sql:2"


def test_a_backtick_in_a_name_is_doubled(tmp_path: Path) -> None:
    write(tmp_path, a=f"{HEAD} `a``b` AS SELECT 1 AS k", b=f"{HEAD} c AS SELECT k FROM `a``b`")
    [a, c] = read_directory(str(tmp_path), "main", "sales")
    assert a.name == ("main", "sales", "a`b")
    assert c.upstream == (a.name,)


def test_columns_named_like_tables_make_no_cycle(tmp_path: Path) -> None:
    write(
        tmp_path,
        orders=f"{HEAD} orders AS SELECT id, total FROM raw",
        total=f"{HEAD} total AS SELECT sum(total) AS total FROM orders",
    )
    assert names(tmp_path) == ["sales.orders", "sales.total"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD} a AS SELECT * FROM b; {HEAD} b AS SELECT * FROM a", "read each other: "),
        (f"{HEAD} a AS SELECT 1;\n{HEAD} Sales.A AS SELECT 2", "x.sql:2: main.sales.a is defined"),
        ("\nDROP TABLE a", "x.sql:2: expected CREATE OR ALTER"),
        ("CREATE MATERIALIZED TABLE a AS SELECT 1", "x.sql:1: expected CREATE OR ALTER"),
        (f"{HEAD} 'a' AS SELECT 1", "expected the name of a table"),
    ],
)
def test_what_cannot_be_a_project_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ProjectError, match=message.replace(".", r"\.")):
        read_directory(write(tmp_path, x=text), "main", "sales")


class Project:
    """A directory with three tables: ``a``, ``b`` that reads it, and ``c``."""

    def __init__(self, server: FakeServer, folder: Path) -> None:
        self.server = server
        self.folder = folder / "sales"
        self.folder.mkdir()
        self.texts = {
            "a": f"{HEAD} a AS SELECT 1 AS k",
            "b": f"{HEAD} b AS SELECT k FROM a",
            "c": f"{HEAD} c AS SELECT 2 AS k",
        }
        write(self.folder, **self.texts)
        server.answers[HERE] = Answer(["catalog", "schema"], [("main", "sales")])
        self.tables({"a": "sales", "b": "sales", "c": "sales", "old": "sales", "mine": None})
        for name in self.texts:
            self.explains(name, Answer(CHANGES, []))
            server.answers[f"SHOW LINEAGE `main`.`sales`.`{name}`"] = Answer(
                ["table", "source", "kind"],
                [("main.sales.b", "main.sales.a", ""), ("main.sales.mine", "main.sales.a", "")],
            )
        server.answers["SHOW LINEAGE `main`.`sales`.`old`"] = Answer(["table", "source", "kind"])

    def tables(self, owners: dict[str, str | None]) -> None:
        rows = [("main", "sales", name, owner) for name, owner in owners.items()]
        self.server.answers[
            "SELECT table_catalog, table_schema, table_name, get_json_object(options, "
            "'$[\\'materialized-table.project\\']') FROM information_schema.materialized_tables"
        ] = Answer(["table_catalog", "table_schema", "table_name", "project"], rows)

    def explains(self, name: str, answer: Answer) -> None:
        self.server.answers[f"EXPLAIN {self.texts[name]}"] = answer

    def change(self, name: str) -> None:
        rows = [
            ("COLUMN n", None, "BIGINT", "NEXT_REFRESH", ""),
            ("QUERY", "x", "y", "NEXT_REFRESH", ""),
            ("FRESHNESS", "INTERVAL '1' HOUR", "INTERVAL '2' HOUR", "NONE", ""),
            ("REFRESH", None, "FULL", "QUERY_CHANGED", "the query has changed"),
        ]
        self.explains(name, Answer(CHANGES, rows))

    def run(self, word: str, *arguments: str) -> int:
        return main([word, str(self.folder), *arguments], connect=self.server.connect)

    @property
    def changes_made(self) -> list[str]:
        return [text for text in self.server.statements if text.startswith(("CREATE", "DROP"))]


@pytest.fixture
def project(server: FakeServer, tmp_path: Path) -> Project:
    return Project(server, tmp_path)


def test_nothing_to_do(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.tables({"a": "sales", "b": "sales", "c": "sales"})
    assert project.run("plan", "--check") == 0
    assert capsys.readouterr().out == "No changes: 3 tables as defined.\n"
    assert project.run("apply", "--yes") == 0
    assert project.changes_made == []
    settings = project.server.options[0].settings
    assert settings == {"materialized-table.project": "sales"}


def test_a_plan_shows_what_would_change(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.change("a")
    project.explains("c", Answer(["plan"], [("== Physical Plan ==",)]))
    project.tables({"a": "sales", "b": "sales", "old": "sales"})
    assert project.run("plan", "--connections", "2") == 0
    assert project.run("plan", "--check") == 1
    text = capsys.readouterr().out
    assert "~ main.sales.a: altered  (a.sql:1)\n    COLUMN n added: BIGINT [NEXT_REFRESH]\n" in text
    assert "    QUERY changed [NEXT_REFRESH]\n    FRESHNESS changed from INTERVAL '1' HOUR" in text
    assert "    the next refresh is FULL: the query has changed\n" in text
    assert "    read by main.sales.mine\n" in text
    assert "+ main.sales.c: created  (c.sql:1)\n" in text
    assert "  main.sales.old: left, although the directory does not define it any more\n" in text
    assert project.run("plan", "--prune", "--format", "markdown") == 0
    assert "- **`main.sales.old`** dropped" in capsys.readouterr().out
    assert project.run("plan", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {step["table"]: step["action"] for step in found["steps"]} == {
        "main.sales.a": "ALTER",
        "main.sales.c": "CREATE",
        "main.sales.old": "LEAVE",
    }
    assert project.changes_made == []


def test_what_reads_a_changed_table_is_applied_after_it(project: Project) -> None:
    project.change("a")
    project.explains("b", Answer(error=NOT_FOUND))
    assert project.run("apply", "--yes", "--prune") == 0
    assert project.changes_made == [
        *(project.texts["a"], project.texts["b"]),
        "DROP MATERIALIZED TABLE IF EXISTS `main`.`sales`.`old`",
    ]


def test_a_rejected_definition_stops_everything(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.change("a")
    project.explains("c", Answer(error=NOT_FOUND))
    assert project.run("apply", "--yes") == 1
    out, err = capsys.readouterr()
    assert "! main.sales.c: rejected  (c.sql:1)\n    c.sql:1: ERROR 42P01 [TABLE_OR_VIEW" in out
    assert err == "Nothing was applied: change what is rejected first.\n"
    assert project.changes_made == []


def test_a_rejected_change_names_its_reason(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ("PARTITIONED BY", "nothing", "ds", "REJECTED", "[MT_EVOLUTION_PARTITIONING] no.")
    project.explains("a", Answer(CHANGES, [row]))
    assert project.run("plan") == 1
    assert "a.sql:1: [MT_EVOLUTION_PARTITIONING] no." in capsys.readouterr().out


def test_an_apply_that_fails_says_how_far_it_came(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "c"):
        project.change(name)
    project.server.answers[project.texts["b"]] = Answer(error=NOT_FOUND)
    assert project.run("apply", "--yes") == 1
    assert "were applied: the next apply continues here." in capsys.readouterr().err
    assert project.changes_made[-1] == project.texts["b"]


def test_only_the_plan_that_was_made_is_applied(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "plan.json")
    project.change("a")
    assert project.run("plan", "--out", file) == 0
    project.change("c")
    assert project.run("apply", "--plan", file) == 1
    assert "is the plan of another state" in capsys.readouterr().err
    assert project.changes_made == []
    project.explains("c", Answer(CHANGES, []))
    assert project.run("apply", "--plan", file) == 0
    assert project.changes_made == [project.texts["a"], project.texts["b"]]


def test_nobody_is_asked_where_nobody_answers(project: Project) -> None:
    with pytest.raises(SystemExit) as ended:
        project.run("apply")
    assert ended.value.code == 2


def test_a_file_with_another_statement_is_wrong_usage(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project.folder, d="SELECT 1")
    assert project.run("plan") == 2
    assert "d.sql:1: expected CREATE OR ALTER" in capsys.readouterr().err


def test_predictions_are_shown_and_make_no_other_plan() -> None:
    names = [*CHANGES, "predicted_seconds", "affected_keys"]

    def plan(*prediction: object) -> Plan:
        row = ("REFRESH", None, "INCREMENTAL", "KEYS", "few keys", *prediction)
        changes = changes_of(names, [row]) or ()
        name = ("main", "sales", "a")
        return Plan(
            project="p",
            steps=(
                Step(name=name, action=Action.ALTER, changes=changes),
                Step(name=name, action=Action.CREATE, estimate=str(prediction[0] or "")),
            ),
        )

    known, unknown = plan(12.34, 1200), plan(None, None)
    line = "the next refresh is INCREMENTAL (about 12 s, 1,200 keys): few keys"
    assert line in as_text(known)
    assert line in as_markdown(known)
    assert "the first refresh computes all rows: 12.34" in as_text(known)
    assert "the next refresh is INCREMENTAL: few keys" in as_text(unknown)
    assert '"predicted_seconds": 12.34' in json.dumps(as_json(known))
    assert known.fingerprint == unknown.fingerprint


@pytest.mark.parametrize(
    ("text", "estimate"),
    [
        (
            "Project, Statistics(sizeInBytes=3.2 MiB, rowCount=1.20E+5)\n",
            "about 3.2 MiB, 120,000 rows",
        ),
        ("Scan, Statistics(sizeInBytes=12.0 B)", "about 12.0 B"),
        ("Scan, Statistics(sizeInBytes=8.0 EiB)", ""),
        ("== Physical Plan ==", ""),
    ],
)
def test_what_spark_expects_is_read(text: str, estimate: str) -> None:
    assert estimate_of(text) == estimate
