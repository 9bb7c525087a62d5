"""The wheel, installed into environments that have nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.support.environments import ROOT, install, run, succeed
from tests.support.fixtures.server import running_server

pytestmark = pytest.mark.package

LARGE = ("pyspark", "py4j", "pyarrow", "numpy", "pandas")


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin directory of an environment with the driver alone."""
    return install(tmp_path_factory.mktemp("environment"), wheel)


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        roots = {name.split("/")[0] for name in archive.namelist()}
    (metadata,) = (root for root in roots if root.endswith(".dist-info"))
    assert roots == {"tidegate", "tidegate_server", "tidegate_sqlalchemy", metadata}


def test_the_wheel_says_that_it_is_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        typed = {name for name in archive.namelist() if name.endswith("py.typed")}
    packages = ("tidegate", "tidegate_server", "tidegate_sqlalchemy")
    assert typed == {f"{package}/py.typed" for package in packages}


def test_the_wheel_brings_the_demo_s_statements(wheel: Path) -> None:
    packed = {
        path.relative_to(ROOT / "server").as_posix()
        for path in (ROOT / "server" / "tidegate_server").rglob("*.sql")
    }
    with zipfile.ZipFile(wheel) as archive:
        assert packed <= set(archive.namelist())


def test_the_wheel_brings_the_dbt_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("tidegate/dbt/")}
    files = ("dbt_project.yml", "macros/materialized_table.sql")
    assert {f"tidegate/dbt/{file}" for file in files} <= packed


def test_the_driver_needs_thrift_and_pure_sasl_only(environment: Path) -> None:
    listed = succeed(environment / "python", "-m", "pip", "list", "--format=freeze")
    names = {line.split("==")[0].lower().replace("_", "-") for line in listed.splitlines()}
    assert names - {"pip", "setuptools", "six"} == {"tidegate", "thrift", "pure-sasl"}


def test_the_driver_alone_is_a_db_api_module(environment: Path) -> None:
    program = "import tidegate; print(tidegate.apilevel, tidegate.threadsafety > 0)"
    assert succeed(environment / "python", "-W", "error", "-c", program).split() == ["2.0", "True"]


def test_the_driver_alone_says_when_nobody_listens(environment: Path) -> None:
    program = (
        "import tidegate\n"
        "try:\n"
        "    tidegate.connect(host='127.0.0.1', port=1)\n"
        "except tidegate.OperationalError as problem:\n"
        "    print('refused', problem)\n"
    )
    assert succeed(environment / "python", "-c", program).startswith("refused")


def test_the_shell_s_help_needs_no_extra(environment: Path) -> None:
    assert "jdbc:hive2://" in succeed(environment / "tidegate", "--help")


def test_the_server_names_the_missing_extra_in_one_sentence(environment: Path) -> None:
    done = run(environment / "tidegate-server")
    assert done.returncode == 2
    assert "pip install 'tidegate[server]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_server_s_help_needs_no_extra(environment: Path) -> None:
    assert "--demo" in succeed(environment / "tidegate-server", "--help")


def test_with_the_sqlalchemy_extra_urls_are_understood(wheel: Path, tmp_path: Path) -> None:
    binaries = install(tmp_path, f"{wheel}[sqlalchemy]")
    program = (
        "import sqlalchemy as sa\n"
        "engine = sa.create_engine('tidegate://someone@127.0.0.1:1/shop')\n"
        "table = sa.table('orders', sa.column('id'))\n"
        "print(sa.select(table).limit(3).compile(engine))\n"
    )
    assert "FROM orders" in succeed(binaries / "python", "-W", "error", "-c", program)


@pytest.mark.timeout(900)
def test_with_the_server_extra_the_whole_server_runs(wheel: Path, tmp_path: Path) -> None:
    binaries = install(tmp_path / "environment", f"{wheel}[server]", linked=LARGE)
    with (
        running_server(tmp_path / "server", python=str(binaries / "python")) as server,
        server.connect() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SHOW MATERIALIZED TABLES")
        assert cursor.fetchall() == []
        cursor.execute("SELECT count(*) FROM range(1000)")
        assert [tuple(row) for row in cursor.fetchall()] == [(1000,)]
