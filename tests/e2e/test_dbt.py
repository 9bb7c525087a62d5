"""The dbt package, used by an ordinary user, by dbt-spark in a separate environment.

``TIDEGATE_DBT`` names a dbt that is there; ``bin/test --full`` installs one, which is some 60 MB.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import uuid
import venv
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.fixtures.server import Server, last_rows
from tests.support.full_run import FULL
from tidegate.dbt import DIRECTORY

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_MAIN = "import sys; from tidegate.cli import main; sys.exit(main(sys.argv[1:]))"
_ROOT = Path(__file__).parents[2]
_MODEL = "SELECT ds, {} AS note{} FROM {{{{ ref('orders') }}}} GROUP BY ds"
MODEL = _MODEL.format("count(*) AS n, 'it''s 5%'", "")
APPENDED = _MODEL.format("count(*) AS n, 'it''s 5%'", ", sum(amount) AS total")
SUMMING = _MODEL.format("sum(amount) AS total, 'it''s 5%'", "")


@pytest.fixture(scope="session")
def dbt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dbt program."""
    if given := os.environ.get("TIDEGATE_DBT"):
        return Path(given)
    if not FULL:
        pytest.skip("dbt is installed by bin/test --full, or named in TIDEGATE_DBT")
    folder = tmp_path_factory.mktemp("dbt")
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *_wanted_by_the_page()], check=True)
    return folder / "bin" / "dbt"


def _wanted_by_the_page() -> list[str]:
    """Return what the manual says to install, with this repository instead of its release."""
    page = (_ROOT / "docs" / "dbt.md").read_text("utf-8")
    line = next(line for line in page.splitlines() if line.startswith("pip install "))
    wanted = shlex.split(line)[2:]
    assert "tidegate" in wanted
    return [str(_ROOT) if each == "tidegate" else each for each in wanted]


class Project:
    """A dbt project with a seed ``orders`` and the model ``daily``."""

    def __init__(self, dbt: Path, folder: Path, server: Server, user: str) -> None:
        self._dbt = dbt
        self._folder = folder
        self._server = ["-u", server.url, "-n", user]
        self.schema = f"dbt_{uuid.uuid4().hex[:8]}"
        outputs = {
            "type": "spark",
            "method": "thrift",
            "host": server.host,
            "port": server.port,
            "schema": self.schema,
            "threads": 1,
            "user": user,
        }
        profiles = {"shop": {"target": "dev", "outputs": {"dev": outputs}}}
        self.write("profiles.yml", json.dumps(profiles))
        self.write(
            "dbt_project.yml",
            json.dumps({"name": "shop", "profile": "shop", "seeds": {"+file_format": "delta"}}),
        )
        self.write("packages.yml", json.dumps({"packages": [{"local": str(DIRECTORY)}]}))
        self.write("seeds/orders.csv", "ds,amount\n2024-01-01,5\n2024-01-01,7\n2024-01-02,1\n")
        self.run("deps")

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def read(self, name: str) -> str:
        """Return the text of a file of the project."""
        return (self._folder / name).read_text("utf-8")

    def model(self, sql: str, **config: object) -> None:
        """Write the model."""
        given = {"materialized": "materialized_table", "freshness_interval": "INTERVAL '1' DAY"}
        said = ", ".join(f"{key}={value!r}" for key, value in (given | config).items())
        self.write("models/daily.sql", f"{{{{ config({said}) }}}}\n{sql}\n")

    def tidegate(self, word: str, *arguments: str) -> tuple[int, str]:
        """Run ``tidegate plan`` or ``apply`` on the project; return its status and output."""
        done = subprocess.run(
            [sys.executable, "-c", _MAIN, word, str(self._folder), *arguments, *self._server],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def run(self, *arguments: str, fails: bool = False) -> str:
        """Run dbt and return its output."""
        done = subprocess.run(
            [str(self._dbt), "--no-use-colors", *arguments, "--profiles-dir", "."],
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self._folder), "DO_NOT_TRACK": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, printed
        return printed


@pytest.fixture
def project(
    request: pytest.FixtureRequest, dbt: Path, guarded_server: Server, tmp_path: Path
) -> Iterator[Project]:
    """A project in a new schema, of the user that is its parameter."""
    user = getattr(request, "param", "dbt")
    project = Project(dbt, tmp_path / "shop", guarded_server, user)
    yield project
    with closing(guarded_server.connect(user=user)) as connection, connection.cursor() as cursor:
        last_rows(
            cursor,
            f"DROP MATERIALIZED TABLE IF EXISTS {project.schema}.daily",
            f"DROP SCHEMA IF EXISTS {project.schema} CASCADE",
        )


def test_a_model_is_made_altered_and_left_alone(project: Project, guarded_server: Server) -> None:
    with closing(guarded_server.connect(user="dbt")) as connection, connection.cursor() as cursor:
        table = f"{project.schema}.daily"
        rows = f"SELECT * FROM {table} ORDER BY ds"
        versions = f"SHOW VERSIONS {table} DEFINITION"
        project.run("seed")
        project.model(MODEL)
        project.run("run")
        first = [("2024-01-01", 2, "it's 5%"), ("2024-01-02", 1, "it's 5%")]
        assert [(str(ds), n, note) for ds, n, note in last_rows(cursor, rows)] == first

        # The same model changes nothing; the run brings new rows in.
        last_rows(cursor, f"INSERT INTO {project.schema}.orders SELECT DATE '2024-01-03', 2")
        assert "NONE" in project.run("run")
        assert len(last_rows(cursor, rows)) == 3
        assert len(last_rows(cursor, versions)) == 1

        # Nor is a seed that was dropped and created again another definition.
        project.run("seed", "--full-refresh")
        project.model(MODEL, on_configuration_change="fail")
        project.run("run")
        assert [(str(ds), n, note) for ds, n, note in last_rows(cursor, rows)] == first
        assert len(last_rows(cursor, versions)) == 1
        last_rows(cursor, f"INSERT INTO {project.schema}.orders SELECT DATE '2024-01-03', 2")

        project.model(APPENDED, on_configuration_change="continue")
        told = project.run("run")
        assert "differs from its model in" in told
        assert "QUERY" in told
        project.model(APPENDED, on_configuration_change="fail")
        assert "on_configuration_change is fail" in project.run("run", fails=True)
        assert len(last_rows(cursor, versions)) == 1

        project.model(APPENDED)
        project.run("run")
        assert [row[3] for row in last_rows(cursor, rows)] == [12, 1, 2]

        # Changes that no ALTER can make are reported, and made with --full-refresh.
        project.model(SUMMING)
        assert "MT_EVOLUTION_UNSUPPORTED" in project.run("run", fails=True)
        project.run("run", "--full-refresh")
        assert [row[1] for row in last_rows(cursor, rows)] == [12, 1, 2]


def test_a_compiled_project_is_the_same_as_its_run(project: Project) -> None:
    project.run("seed")
    config = {"partition_by": ["ds"], "options": {"materialized-table.refresh.retries": "2"}}
    project.model(MODEL, **config)
    project.write("models/seen.sql", "SELECT * FROM {{ ref('orders') }}")
    project.run("run")
    status, told = project.tidegate("plan", "--check")
    assert status == 0, told
    assert "No changes: 1 table as defined." in told
    assert "1 model is left to dbt: its materialization is view." in told

    project.model(APPENDED, **config)
    status, told = project.tidegate("plan")
    assert (status, "run dbt compile" in told) == (2, True)
    project.run("compile")
    status, told = project.tidegate("apply", "--yes")
    assert status == 0, told
    assert "COLUMN total added" in told
    assert "NONE" in project.run("run")


SCHEMA_FILE = """
models:
  - name: daily
    description: "One row a day; it's \\"the\\" number"
    columns:
      - {{name: DS, description: 'day \\ of the orders'}}
      - {{name: n, description: "{}"}}
      - {{name: gone, description: no such column}}
"""
KEYED = (
    "WITH days AS (SELECT coalesce(ds, DATE'1970-01-01') AS ds FROM {{ ref('orders') }})\n"
    "SELECT ds, count(*) AS n FROM days GROUP BY ds -- by day"
)


@pytest.mark.parametrize("project", ["root"], indirect=True)  # others set no EXECUTE AS
def test_key_docs_user_and_immutable_rows_are_as_the_model_says(
    project: Project, guarded_server: Server
) -> None:
    with closing(guarded_server.connect(user="root")) as connection, connection.cursor() as cursor:
        table = f"{project.schema}.daily"
        config = {
            "primary_key": "ds",
            "execute_as": "e'tl",
            "immutable_where": "ds < DATE'2024-01-02'",
            "persist_docs": {"relation": True, "columns": True},
        }
        project.model(KEYED, **config)
        project.write("models/daily.yml", SCHEMA_FILE.format("how many"))
        project.run("seed")
        cursor.execute(f"GRANT SELECT ON SCHEMA {project.schema} TO USER `e'tl`")
        project.run("run")
        facts = {row[0]: row[1:] for row in last_rows(cursor, f"DESCRIBE EXTENDED {table}")}
        assert facts["ds"] == ("date", "day \\ of the orders")
        assert facts["n"] == ("bigint", "how many")
        assert facts["comment"][0] == 'One row a day; it\'s "the" number'
        assert "ds" in facts["primary_key"][0]
        assert (facts["execute_as"][0], facts["immutable"][0]) == (
            "e'tl",
            "ds < DATE'2024-01-02'",
        )

        late = "DATE'2024-01-01', 9), (DATE'2024-01-02', 9"
        last_rows(cursor, f"INSERT INTO {project.schema}.orders VALUES ({late})")
        assert "NONE" in project.run("run")
        rows = last_rows(cursor, f"SELECT n FROM {table} ORDER BY ds")
        assert rows == [(2,), (2,)]

        project.write("models/daily.yml", SCHEMA_FILE.format("orders a day"))
        project.model(KEYED, **config, on_configuration_change="continue")
        assert "COMMENT of column n" in project.run("run")
        project.model(KEYED, **config)
        project.run("run")
        described = {row[0]: row[2] for row in last_rows(cursor, f"DESCRIBE {table}")}
        assert described["n"] == "orders a day"
        assert last_rows(cursor, f"SELECT n FROM {table} ORDER BY ds") == rows
        assert len(last_rows(cursor, f"SHOW VERSIONS {table} DEFINITION")) == 1


def test_the_docs_list_seeds_and_materialized_tables_with_owner_and_columns(
    project: Project,
) -> None:
    project.run("seed")
    project.model(MODEL)
    project.run("run")
    project.run("docs", "generate")
    catalog = json.loads(project.read("target/catalog.json"))
    found = {**catalog["nodes"], **catalog["sources"]}
    tables = {node["metadata"]["name"]: node for node in found.values()}
    assert sorted(tables) == ["daily", "orders"]
    assert {name: sorted(node["columns"]) for name, node in tables.items()} == {
        "daily": ["ds", "n", "note"],
        "orders": ["amount", "ds"],
    }
    assert {node["metadata"]["owner"] for node in tables.values()} == {"dbt"}


def test_a_model_that_was_a_table_or_a_view_becomes_a_materialized_one(
    project: Project, guarded_server: Server
) -> None:
    project.run("seed")
    for before in ("view", "table"):
        project.model(MODEL, materialized=before, file_format="delta")
        project.run("run")
        project.model(MODEL, partition_by="ds", refresh_mode="FULL")
        project.run("run")
        with (
            closing(guarded_server.connect(user="dbt")) as connection,
            connection.cursor() as cursor,
        ):
            shown = last_rows(cursor, f"SHOW CREATE MATERIALIZED TABLE {project.schema}.daily")
            assert "PARTITIONED BY (ds)" in str(shown[0][0]).replace("`", "")
            last_rows(cursor, f"DROP MATERIALIZED TABLE {project.schema}.daily")
