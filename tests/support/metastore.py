"""A metastore in PostgreSQL, which several engines can open."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from tests.support.postgres import free_port, postgres_programs, running_postgres
from tidegate_server.engine.jvm.jars import Jar, fetch_jars
from tidegate_server.gateway.link.java import find_java

DRIVER = Jar("org.postgresql", "postgresql", "42.7.4")
_SHIPPED = Path(pyspark.__file__).parent / "jars"
_PROPERTIES = """\
javax.jdo.PersistenceManagerFactoryClass=org.datanucleus.api.jdo.JDOPersistenceManagerFactory
datanucleus.ConnectionURL={url}
datanucleus.ConnectionDriverName=org.postgresql.Driver
datanucleus.ConnectionUserName=tidegate
datanucleus.ConnectionPassword=none
datanucleus.identifierFactory=datanucleus1
datanucleus.schema.autoCreateAll=true
"""


@dataclass(frozen=True, slots=True)
class Metastore:
    """What an engine opens a metastore with."""

    driver: Path
    """A jar for ``engine.jars``."""
    settings: Mapping[str, str]
    """Settings of Spark."""

    @property
    def lines(self) -> str:
        """The settings as lines of a configuration file."""
        return "\n".join(f'"{key}" = "{value}"' for key, value in self.settings.items())


@contextmanager
def postgres_metastore(folder: Path) -> Iterator[Metastore]:
    """Start an empty metastore; yield what an engine opens it with."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    java = find_java().home
    [driver] = fetch_jars([DRIVER], str(java))
    port = free_port()
    url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
    with running_postgres(programs, port):
        _create_schema(url, driver, java, folder)
        hive = "spark.hadoop.hive.metastore"
        jdo = "spark.hadoop.javax.jdo.option"
        settings = {
            f"{jdo}.ConnectionURL": url,
            f"{jdo}.ConnectionDriverName": "org.postgresql.Driver",
            f"{jdo}.ConnectionUserName": "tidegate",
            f"{jdo}.ConnectionPassword": "none",
            f"{hive}.schema.verification": "false",
        }
        yield Metastore(driver, settings)


def _create_schema(url: str, driver: Path, java: Path, folder: Path) -> None:
    """Create the tables of the metastore, as Hive's schematool does."""
    [metastore] = _SHIPPED.glob("hive-metastore-*.jar")
    with zipfile.ZipFile(metastore) as jar:
        jar.extract("package.jdo", folder)
    properties = folder / "schema.properties"
    properties.write_text(_PROPERTIES.format(url=url))
    command = [str(java / "bin" / "java"), "-cp", f"{_SHIPPED}/*:{driver}"]
    command += ["org.datanucleus.store.schema.SchemaTool", "-create", "-api", "JDO"]
    command += ["-props", str(properties), str(folder / "package.jdo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
