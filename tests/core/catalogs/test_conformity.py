"""The conformity suite: the examples keep its rules, and it notices who breaks them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.plugins import EXAMPLES
from tidegate_server.catalog_conformity import main
from tidegate_server.core.catalogs.base import CatalogTable, PythonCatalogType
from tidegate_server.core.catalogs.conformity import Outcome, Trial, check
from tidegate_server.core.plugins import find_plugin


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in EXAMPLES.iterdir():
        monkeypatch.syspath_prepend(str(folder))


def test_the_directory_keeps_all_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tidegate_directory_catalog:DirectoryType", "--option", f"path={tmp_path}"]
    for more in ([], ["--option", "default-format=delta"]):
        assert main([*arguments, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == "No rule is broken."
        assert [line.split()[0] for line in lines].count("holds") == 18
    assert [each.name for each in tmp_path.iterdir()] == [".lock"]


def test_the_register_keeps_the_rules_of_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "register.db"
    with closing(sqlite3.connect(file)) as register:
        doc = find_plugin("tidegate_register_catalog:__doc__", "")
        register.executescript(";".join(f"CREATE{each}" for each in _statements(doc)))
        register.execute(
            "INSERT INTO datasets VALUES ('s', 't', 'csv', '/data/t', '{\"a\": \"b\"}', 'c', '1')"
        )
        register.execute("INSERT INTO fields VALUES ('s', 't', 1, 'id', 'int')")
        register.commit()
    arguments = ["tidegate_register_catalog:RegisterType", "--option", f"database={file}"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.count("not offered") == 9
    assert "holds        a table that does not change keeps its version" in out


def _statements(doc: str) -> list[str]:
    """Return the statements in the description of the register, without their first word."""
    return [each.split("::")[0].rsplit(")", 1)[0] + ")" for each in doc.split("CREATE")[1:]]


def test_wrong_arguments_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, reason in (
        (["no_such_module:X"], "cannot be loaded"),
        (["json:JSONDecoder"], "no PythonCatalogType"),
        (["tidegate_directory_catalog:DirectoryType"], "path is missing"),
    ):
        with pytest.raises(SystemExit, match=reason):
            main(arguments)
    with pytest.raises(SystemExit):
        main(["x", "--option", "path"])
    assert "is not KEY=VALUE" in capsys.readouterr().err


Broken = Callable[..., Any]


@pytest.mark.parametrize(
    ("method", "broken", "rule"),
    [
        ("schemas", lambda self: ["s", "s"], "schemas are listed once"),
        ("tables", lambda self, schema: ["t"], "a missing schema has no tables"),
        ("get_table", lambda self, schema, name: CatalogTable(), "a missing table is None"),
        ("alter_table", lambda self, schema, name, table: None, "a table is altered"),
        ("drop_table", lambda self, schema, name: None, "a table is dropped once"),
        ("create_schema", lambda self, name, properties: None, "a schema is created"),
        ("version", lambda self, schema, name: object(), "keeps its version"),
    ],
)
def test_who_breaks_a_rule_is_told(method: str, broken: Broken, rule: str, tmp_path: Path) -> None:
    found = find_plugin("tidegate_directory_catalog:DirectoryType", "")()
    root = tmp_path / "root"
    scratch = tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    catalog = found.open({"path": str(root)})
    catalog.create_schema("s", {})
    catalog.create_table("s", "t", CatalogTable())

    class Breaking(type(catalog)):  # type: ignore[misc]
        """A catalog with one other method."""

    setattr(Breaking, method, broken)
    kind = _opening(found, lambda options: Breaking(root, "parquet"))
    findings = list(check(Trial(kind, {}, scratch)))
    told = [each for each in findings if each.outcome is Outcome.BROKEN]
    assert any(rule in each.rule for each in told), findings
    assert all(each.reason for each in told)


def _opening(kind: PythonCatalogType, opens: Callable[[Mapping[str, str]], Any]) -> Any:
    """Return a type that opens other catalogs."""

    class Opening:
        name, description, options = kind.name, kind.description, kind.options

        def open(self, options: Mapping[str, str]) -> Any:
            return opens(options)

    return Opening()


def test_the_example_of_the_manual_keeps_all_rules(tmp_path: Path) -> None:
    page = EXAMPLES.parents[1] / "docs" / "writing-catalogs.md"
    [code] = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {"__name__": "measurements"}
    exec(compile(code, page.name, "exec", dont_inherit=True), names)
    (tmp_path / "s" / "t").mkdir(parents=True)
    trial = Trial(names["FolderType"](), {"path": str(tmp_path)}, tmp_path)
    findings = list(check(trial))
    assert all(each.outcome is not Outcome.BROKEN for each in findings), findings
    assert trial.catalog.get_table("s", "t") is not None
