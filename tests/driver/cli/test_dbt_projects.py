"""Compiled dbt projects become definitions of materialized tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.driver.cli.fakes import Answer, FakeServer
from tidegate.cli import main
from tidegate.cli.projects.directory import define
from tidegate.cli.projects.sources import find_project
from tidegate.cli.projects.statements import ProjectError

HEAD = "CREATE OR ALTER MATERIALIZED TABLE"


def model(name: str, code: str | None = "SELECT 1 AS k", **more: Any) -> dict[str, Any]:
    config = {
        "materialized": "materialized_table",
        "on_configuration_change": "apply",
        "pre-hook": [],
        "post-hook": [],
        "grants": {},
        "persist_docs": {},
        "contract": {"enforced": False},
    }
    return {
        "resource_type": "model",
        "name": name,
        "alias": name,
        "schema": "shop",
        "language": "sql",
        "original_file_path": f"models/{name}.sql",
        "raw_code": f"-- {name}",
        "compiled_code": code,
        **more,
        "config": {**config, **more.get("config", {})},
    }


def project(folder: Path, *models: dict[str, Any], target: str = "target") -> Path:
    (folder / "dbt_project.yml").write_text(
        f"name: shop\n{'' if target == 'target' else f'target-path: {target}'}"
    )
    (folder / target).mkdir()
    nodes = {f"model.shop.{each['name']}": each for each in models}
    (folder / target / "manifest.json").write_text(json.dumps({"nodes": nodes}))
    return folder


def statements(folder: Path) -> list[str]:
    found = find_project(str(folder)).statements()
    return [each.part.sql for each in define(found, "spark_catalog", "default")]


def refusal(folder: Path) -> str:
    with pytest.raises(ProjectError) as caught:
        statements(folder)
    return str(caught.value)


def test_configs_are_clauses(tmp_path: Path) -> None:
    daily = model(
        "daily",
        "\nSELECT ds, total FROM shop.orders;\n",
        alias="daily totals",
        description="It's daily",
        config={
            "freshness_interval": "INTERVAL '1' HOUR",
            "refresh_mode": "FULL",
            "refresh_trigger": "ON SCHEDULE",
            "partition_by": ["ds"],
            "primary_key": "ds",
            "options": {"materialized-table.refresh.retries": 3},
            "execute_as": "ada",
            "immutable_where": "ds < '2020'",
            "persist_docs": {"relation": True},
        },
    )
    [found] = statements(project(tmp_path, daily))
    assert found == (
        f"{HEAD} `shop`.`daily totals`\n(PRIMARY KEY (ds) NOT ENFORCED)\n"
        "COMMENT 'It\\'s daily'\nPARTITIONED BY (ds)\n"
        "WITH ('materialized-table.refresh.retries' = '3')\n"
        "FRESHNESS = INTERVAL '1' HOUR\nREFRESH_MODE = FULL\nREFRESH_TRIGGER = ON SCHEDULE\n"
        "EXECUTE AS USER 'ada'\nIMMUTABLE WHERE (ds < '2020')\n"
        "AS SELECT ds, total FROM shop.orders"
    )


def test_models_come_after_those_that_they_read(tmp_path: Path) -> None:
    project(tmp_path, model("a", "SELECT * FROM shop.b"), model("b"), target="build")
    assert [each.split("`")[3] for each in statements(tmp_path)] == ["b", "a"]


def test_other_models_are_left_to_dbt(tmp_path: Path) -> None:
    view = {"config": {"materialized": "view"}}
    ephemeral = {"config": {"materialized": "ephemeral"}}
    project(tmp_path, model("a", **view), model("b", **view), model("c", **ephemeral), model("d"))
    found = find_project(str(tmp_path))
    assert found.name == "shop"
    assert found.notes == ("2 models are left to dbt: their materialization is view.",)
    assert len(statements(tmp_path)) == 1


def test_the_compiled_file_may_have_the_query(tmp_path: Path) -> None:
    project(tmp_path, model("a", None, compiled_path="target/compiled/a.sql"))
    (tmp_path / "target" / "compiled").mkdir()
    assert "was not compiled" in refusal(tmp_path)
    (tmp_path / "target" / "compiled" / "a.sql").write_text("SELECT 2 AS k")
    assert statements(tmp_path) == [f"{HEAD} `shop`.`a`\nAS SELECT 2 AS k"]


def test_a_model_that_changed_since_is_rejected(tmp_path: Path) -> None:
    project(tmp_path, model("a"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.sql").write_text("-- a\n")
    assert len(statements(tmp_path)) == 1
    (tmp_path / "models" / "a.sql").write_text("-- changed")
    assert refusal(tmp_path).startswith("models/a.sql:1: the model was changed")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"language": "python"}, "Python"),
        ({"config": {"on_configuration_change": "fail"}}, "on_configuration_change"),
        ({"config": {"post-hook": [{"sql": "GRANT"}]}}, "run the statement of the hook"),
        ({"config": {"grants": {"select": ["bob"]}}}, "run GRANT yourself"),
        ({"config": {"contract": {"enforced": True}}}, "contract"),
        (
            {
                "config": {"persist_docs": {"columns": True}},
                "columns": {"k": {"name": "k", "description": "a key"}},
            },
            "persist_docs of columns",
        ),
        ({"code": "SELECT 1; SELECT 2"}, "one query"),
        ({"code": ""}, "was not compiled"),
    ],
)
def test_what_has_no_counterpart_is_rejected(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    project(tmp_path, model("a", more.pop("code", "SELECT 1 AS k"), **more))
    assert refusal(tmp_path).startswith("models/a.sql:1: ")
    assert words in refusal(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"nodes": {"a": {}}}', '{"nodes": 1}'])
def test_another_manifest_is_rejected(tmp_path: Path, content: str) -> None:
    project(tmp_path)
    (tmp_path / "target" / "manifest.json").write_text(content)
    assert "no manifest of dbt" in refusal(tmp_path)


def test_a_project_has_to_be_compiled(tmp_path: Path) -> None:
    (tmp_path / "dbt_project.yml").write_text("name: shop")
    assert "run dbt compile" in refusal(tmp_path)
    (tmp_path / "dbt_project.yml").write_text("profile: shop")
    assert "name is missing" in refusal(tmp_path)


def test_tables_have_no_project_unless_it_is_named(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path)
    server.answers["SELECT current_catalog(), current_schema()"] = Answer(
        ["a", "b"], [("main", "shop")]
    )
    for more, name in (([], None), (["--project", "shop", "--prune"], "shop")):
        assert main(["plan", str(tmp_path), *more], connect=server.connect) == 0
        assert server.options[-1].settings.get("materialized-table.project") == name
    with pytest.raises(SystemExit):
        main(["plan", str(tmp_path), "--prune"], connect=server.connect)
    assert "needs --project NAME" in capsys.readouterr().err
