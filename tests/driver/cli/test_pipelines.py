"""Projects of Spark's declarative pipelines become definitions of materialized tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli import main
from tidegate.cli.projects.directory import Definition, define
from tidegate.cli.projects.sources import find_project
from tidegate.cli.projects.statements import ProjectError

SPECIFICATION = """\
name: sales
storage: file:///var/checkpoints
database: shop
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "8"
"""
HEAD = "CREATE OR ALTER MATERIALIZED TABLE"


def pipeline(folder: Path, *, specification: str = SPECIFICATION, **files: str) -> Path:
    (folder / "spark-pipeline.yml").write_text(specification)
    (folder / "transformations" / "deep").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "transformations" / f"{name}.sql").write_text(text)
    return folder


def read(folder: Path) -> tuple[Definition, ...]:
    return define(find_project(str(folder)).statements(), "main", "shop")


def translated(folder: Path, text: str) -> str:
    [found] = read(pipeline(folder, a=text))
    return found.part.sql


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE MATERIALIZED VIEW a AS SELECT 1 AS k", f"{HEAD} a AS SELECT 1 AS k"),
        (
            "create materialized view if not exists x.a (k COMMENT 'AS')\nas select 1 as k",
            f"{HEAD} x.a (k COMMENT 'AS')\nas select 1 as k",
        ),
        (
            "CREATE MATERIALIZED VIEW a COMMENT 'USING' PARTITIONED BY (k) AS SELECT 1 AS k",
            f"{HEAD} a COMMENT 'USING' PARTITIONED BY (k) AS SELECT 1 AS k",
        ),
        (
            "CREATE STREAMING TABLE a AS SELECT * FROM STREAM read_files('/in', format => 'json')",
            f"{HEAD} a AS SELECT * FROM STREAM read_files('/in', format => 'json')",
        ),
        (f"{HEAD} a\nFRESHNESS = INTERVAL '1' DAY AS SELECT 1 AS k", None),
    ],
)
def test_a_definition_is_translated(tmp_path: Path, text: str, expected: str | None) -> None:
    assert translated(tmp_path, text) == (expected or text)


def test_lines_remain_those_of_the_file(tmp_path: Path) -> None:
    text = "CREATE\nMATERIALIZED VIEW\na AS\nSELECT 1 AS k"
    assert translated(tmp_path, text).splitlines()[3] == "SELECT 1 AS k"


def test_temporary_views_become_expressions(tmp_path: Path) -> None:
    pipeline(
        tmp_path,
        views="CREATE TEMPORARY VIEW v AS SELECT * FROM raw -- all\n;"
        "CREATE OR REPLACE TEMP VIEW w (a, b) AS SELECT x, y FROM v",
        a="CREATE MATERIALIZED VIEW a AS SELECT a FROM W",
        b="CREATE MATERIALIZED VIEW b AS WITH c AS (SELECT 1 AS k) SELECT k FROM c, v",
        c="CREATE MATERIALIZED VIEW c AS SELECT v FROM other.v",
    )
    found = {each.name[2]: each.part.sql for each in read(tmp_path)}
    assert found["a"] == (
        f"{HEAD} a AS WITH `v` AS (SELECT * FROM raw -- all\n), "
        "`w` (a, b) AS (SELECT x, y FROM v\n) SELECT a FROM W"
    )
    assert found["b"].startswith(f"{HEAD} b AS WITH `v` AS (SELECT * FROM raw -- all")
    assert found["b"].endswith("), c AS (SELECT 1 AS k) SELECT k FROM c, v")
    assert "raw" in found["c"]  # a column may have the name of a view; it then does no harm


def test_tables_come_after_those_that_they_read(tmp_path: Path) -> None:
    pipeline(
        tmp_path,
        a="CREATE MATERIALIZED VIEW daily AS SELECT * FROM v; CREATE TEMP VIEW v AS TABLE orders",
        b="CREATE MATERIALIZED VIEW shop.orders AS SELECT * FROM raw",
    )
    assert [each.name[2] for each in read(tmp_path)] == ["orders", "daily"]
    assert read(tmp_path)[1].upstream == (("main", "shop", "orders"),)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("CREATE FLOW f AS INSERT INTO t SELECT 1", "a.sql:1", "becomes a job"),
        ("CREATE STREAMING TABLE t", "a.sql:1", "without a query"),
        ("CREATE STREAMING TABLE t AS SELECT\n* FROM STREAM orders", "a.sql:2", "follows"),
        ("CREATE STREAMING TABLE t AS SELECT * FROM STREAM(x.orders)", "a.sql:1", "follows"),
        ("CREATE STREAMING TABLE t AS SELECT * FROM orders", "a.sql:1", "has to read a STREAM"),
        ("CREATE MATERIALIZED VIEW t AS SELECT * FROM STREAM o", "a.sql:1", "only a streaming"),
        ("CREATE MATERIALIZED VIEW t", "a.sql:1", "expected AS"),
        ("CREATE MATERIALIZED VIEW t\nUSING delta AS SELECT 1", "a.sql:2", "USING cannot"),
        ("CREATE MATERIALIZED VIEW t TBLPROPERTIES ('a' = 'b') AS SELECT 1", "a.sql:1", "WITH ("),
        ("CREATE MATERIALIZED VIEW t CLUSTER BY (a) AS SELECT 1", "a.sql:1", "DISTRIBUTED BY"),
        ("CREATE TEMP VIEW v COMMENT 'x' AS SELECT 1", "a.sql:1", "COMMENT of a temporary view"),
        ("CREATE TEMP VIEW x.v AS SELECT 1", "a.sql:1", "without a schema"),
        ("CREATE TEMP VIEW v (a COMMENT 'x') AS SELECT 1", "a.sql:1", "only have names"),
        ("CREATE TEMP VIEW v AS SELECT 1;\nCREATE TEMP VIEW V AS SELECT 2", "a.sql:2", "exists"),
        ("SET a = b", "a.sql:1", "under configuration"),
        ("\nSELECT 1", "a.sql:2", "expected a definition"),
    ],
)
def test_what_has_no_counterpart_is_rejected(
    tmp_path: Path, text: str, place: str, words: str
) -> None:
    with pytest.raises(ProjectError) as caught:
        read(pipeline(tmp_path, a=text))
    assert str(caught.value).startswith(f"transformations/{place}: ")
    assert words in str(caught.value)


def test_python_is_rejected(tmp_path: Path) -> None:
    pipeline(tmp_path, a="CREATE MATERIALIZED VIEW a AS SELECT 1 AS k")
    (tmp_path / "transformations" / "deep" / "b.py").write_text("from pyspark import pipelines")
    with pytest.raises(ProjectError, match=r"transformations/deep/b\.py:1: .*Python"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: sales\n", "", "name is missing"),
        ("database: shop", "bucket: shop", ":3: a pipeline has no field bucket"),
        ("database: shop", "database: [a]", ":3: database has to be a text"),
        ('"8"', "8", "configuration has to be settings"),
        ("transformations/**", "a/**/*.sql", "no pattern"),
        ("include", "exclude", "has to be glob"),
        (SPECIFICATION, "- a", "expected the fields"),
        (SPECIFICATION, "a: [", "cannot read"),
        (SPECIFICATION, "name: a\nlibraries: []", ":2: libraries"),
    ],
)
def test_a_wrong_file_is_rejected(tmp_path: Path, old: str, new: str, words: str) -> None:
    pipeline(tmp_path, specification=SPECIFICATION.replace(old, new))
    with pytest.raises(ProjectError) as caught:
        find_project(str(tmp_path))
    assert words in str(caught.value)


def test_no_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="match no file"):
        read(pipeline(tmp_path))


def test_its_file_configures_the_session(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline(tmp_path, a="CREATE MATERIALIZED VIEW a AS SELECT 1 AS k")
    server.answers["SELECT current_catalog(), current_schema()"] = Answer(
        ["a", "b"], [("main", "shop")]
    )
    server.answers[f"EXPLAIN {HEAD} a AS SELECT 1 AS k"] = Answer(["plan"], [("x",)])
    assert main(["plan", str(tmp_path)], connect=server.connect) == 0
    output = capsys.readouterr()
    assert "+ main.shop.a: created  (transformations/a.sql:1)" in output.out
    assert "storage of the pipeline is not used" in output.err
    [first, *_] = server.options
    assert first.schema == "shop"
    assert first.settings["spark.sql.shuffle.partitions"] == "8"
    assert first.settings["materialized-table.project"] == "sales"
    assert main(["plan", str(tmp_path), "-d", "other"], connect=server.connect) == 0
    assert server.options[-1].schema == "other"


def test_two_kinds_of_project_are_a_mistake(tmp_path: Path) -> None:
    pipeline(tmp_path)
    (tmp_path / "dbt_project.yml").write_text("name: shop")
    with pytest.raises(ProjectError, match="both"):
        find_project(str(tmp_path))
