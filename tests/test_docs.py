"""The documentation keeps up with the code: its SQL parses, its links lead somewhere, no
configuration key is missing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.gateway.command.fakes import Column, Schema, World, analysis
from tests.support.errors_page import page as errors_page
from tests.support.reasons_page import page as reasons_page
from tidegate.cli.split import split
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import EngineTargetSection
from tidegate_server.core.messages.answers import Analysis, TableDefinitionFound
from tidegate_server.core.sql.parse import parse
from tidegate_server.gateway.demo.__main__ import INVITATION
from tidegate_server.gateway.demo.__main__ import main as demo_main
from tidegate_server.gateway.information_schema.tables import SCHEMAS
from tidegate_server.gateway.options import check_option

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("bench/*.md")])
_FENCE = re.compile(r"^```(\w*)(?: run)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RUN = re.compile(r"^```sql run\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_TRIED = re.compile(r"^\s+((?:SELECT|SHOW|DESCRIBE|ALTER)\b[^;]*);", re.MULTILINE)


def _blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in _FENCE.findall(page.read_text("utf-8")) if kind == language]


def _statements(page: Path) -> Iterator[str]:
    for block in _blocks(page, "sql"):
        yield from (part.sql for part in split(block) if part.sql)


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys(kind, f"{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize(
    ("page", "statement"),
    [
        pytest.param(page, statement, id=f"{page.name}-{number}")
        for page in PAGES
        for number, statement in enumerate(_statements(page))
    ],
)
def test_sql_of_the_documentation_parses(page: Path, statement: str) -> None:
    parse(statement)


class _Orders(dict[str, Analysis]):
    """Every query of a page reads ``orders`` and produces its columns."""

    def get(self, key: str, default: object = None) -> Analysis:  # type: ignore[override]
        columns = (
            Column(name="id", type="bigint", nullable=False),
            Column(name="customer", type="string"),
            Column(name="amount", type="decimal(10,2)"),
            Column(name="ds", type="string"),
            Column(name="ts", type="timestamp"),
        )
        return analysis(Schema(columns), "orders")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if _RUN.search(page.read_text("utf-8"))], ids=lambda p: p.name
)
def test_examples_marked_to_run_are_carried_out(page: Path) -> None:
    world = World()
    world.engine.analyses = _Orders()
    definition = "(id INT, ts TIMESTAMP, celsius DOUBLE) WITH ('connector' = 'datagen')"
    readings = TableDefinitionFound(connector="datagen", definition=definition)
    world.engine.definitions["readings",] = readings
    for block in _RUN.findall(page.read_text("utf-8")):
        for part in split(block):
            if part.sql:
                world.execute(part.sql)
    assert world.catalog.tables() == ()


def test_every_page_of_a_statement_is_in_the_index() -> None:
    index = (ROOT / "docs" / "statements.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs" / "statements").glob("*.md")}
    assert {page for page in pages if f"(statements/{page})" not in index} == set()


def test_every_column_of_the_system_tables_is_documented() -> None:
    page = (ROOT / "docs" / "system-tables.md").read_text("utf-8")
    shown = (ROOT / "docs" / "statements" / "show.md").read_text("utf-8")
    for name, schema in SCHEMAS.items():
        _, heading, section = page.partition(f"\n## {name}\n")
        assert heading, name
        told = page.split("\n## ")[0] + section.split("\n## ")[0]
        told += shown if name == "materialized_table_lag" else ""
        assert {column for column in schema.names if f"`{column}`" not in told} == set(), name


def test_every_fact_of_describe_extended_is_documented() -> None:
    page = (ROOT / "docs" / "statements" / "describe.md").read_text("utf-8")
    world = World()
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    facts = [str(row[0]) for row in world.rows("DESCRIBE EXTENDED m")]
    facts = facts[facts.index("# Materialized Table Information") + 1 :]
    assert len(facts) > 20
    assert {fact for fact in facts if f"`{fact}`" not in page} == set()


def test_every_column_of_show_is_documented() -> None:
    page = (ROOT / "docs" / "statements" / "show.md").read_text("utf-8")
    world = World()
    world.execute("CREATE MATERIALIZED TABLE m AS SELECT * FROM t1")
    for show in ("MATERIALIZED TABLES EXTENDED", "LINEAGE m COLUMNS", "LAG", "VERSIONS m"):
        names = set(world.execute(f"SHOW {show}").schema.names()) - {"name"}
        assert {name for name in names if f"`{name}`" not in page} == set()


def test_files_that_the_architecture_cites_are_there() -> None:
    cited = re.findall(
        r"`((?:gateway|engine|core)/[\w/]+(?:\.py|/))`",
        (ROOT / "ARCHITECTURE.md").read_text("utf-8"),
    )
    assert len(cited) > 50
    assert not [path for path in cited if not (ROOT / "server" / "tidegate_server" / path).exists()]


def test_the_page_of_errors_is_written_from_their_table() -> None:
    written = (ROOT / "docs" / "errors.md").read_text("utf-8")
    assert written == errors_page(), "run: python -m tests.support.errors_page > docs/errors.md"


def test_the_page_of_reasons_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reasons.md").read_text("utf-8")
    assert written == reasons_page(), "run: python -m tests.support.reasons_page > docs/reasons.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text("utf-8"))
    missing = []
    for link, image in _LINK.findall(text):
        target, _, anchor = (link or image).partition("#")
        if re.match(r"\w+:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in _anchors(file)):
            missing.append(link or image)
    assert not missing


def _anchors(page: Path) -> set[str]:
    """Return the anchors GitHub makes of a page's headings."""
    headings = _HEADING.findall(page.read_text("utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_every_configuration_key_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    keys, _, _ = page.partition("## Options of materialized tables")
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.+?) \|", keys, re.MULTILINE))
    begin = "engines.NAME."
    engines = {key.removeprefix(begin): rows.pop(key) for key in [*rows] if key.startswith(begin)}
    assert set(engines) == set(EngineTargetSection.model_fields)
    for key, shown in engines.items():
        if value := getattr(EngineTargetSection(master="local"), key, None):
            assert shown in ("required", _default_text(value)), key
    assert set(rows) == set(_keys(Config)) - {"engines"}
    for key, shown in rows.items():
        value: Any = Config()
        for part in key.split("."):
            value = getattr(value, part)
        assert shown.startswith(_default_text(value)), key


def _default_text(value: Any) -> str:
    if value in ("", {}):
        return "(empty)"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_the_configuration_example_is_accepted() -> None:
    example, _ = _blocks(ROOT / "docs" / "configuration.md", "toml")
    config = Config(**tomllib.loads(example))
    assert config.engine.settings == {"spark.sql.shuffle.partitions": "8"}


def test_documented_options_exist_and_take_their_defaults() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    rows = re.findall(r"^\| `((?:materialized-table|execution)[\w.-]+)` \| `(.+?)` \|", page, re.M)
    assert len(rows) >= 12
    for option, default in rows:
        check_option(option, default)


def test_the_walkthrough_page_shows_statements_of_the_script() -> None:
    script = (ROOT / "examples" / "walkthrough.sql").read_text("utf-8")
    run = {part.sql for part in split(script)}
    assert set(_statements(ROOT / "docs" / "walkthrough.md")) <= run


def test_statements_the_demo_recommends_parse() -> None:
    tried = _TRIED.findall(INVITATION)
    assert len(tried) >= 5
    for statement in tried:
        parse(statement)


def test_options_of_the_demo_are_documented(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo_main(["--help"])
    offered = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    page = (ROOT / "docs" / "demo.md").read_text("utf-8")
    assert {option for option in offered if f"`{option}" not in page} <= {"--help"}


@pytest.mark.spark
def test_the_quickstart_runs_from_its_first_statement_to_its_last(server: Any) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        answered = None
        for statement in _statements(ROOT / "docs" / "quickstart.md"):
            cursor.execute(statement)
            if statement.startswith("SELECT * FROM quickstart.revenue"):
                answered = [tuple(str(value) for value in row) for row in cursor.fetchall()]
    assert answered == _rows_shown(ROOT / "docs" / "quickstart.md")


def _rows_shown(page: Path) -> list[tuple[str, ...]]:
    """Return the body of the first table of a page."""
    lines = re.findall(r"^\|(.+)\|$", page.read_text("utf-8"), re.MULTILINE)
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines[2:]]


def test_each_test_that_a_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "flip-24.md").read_text())
    assert len(named) > 30
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text(), (file, name)
