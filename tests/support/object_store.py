"""S3 as moto's server has it, in an environment of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from tests.support.environments import install
from tests.support.postgres import free_port
from tests.support.waiting import wait_until_listening
from tidegate_server.engine.jvm.jars import Jar, fetch_jars

ACCESS_KEY, SECRET_KEY = "AKIA-of-the-tests", "hush-of-the-store"
JARS: Final = (
    Jar("org.apache.hadoop", "hadoop-aws", "3.4.2"),  # that of Hadoop in PySpark
    Jar("software.amazon.awssdk", "bundle", "2.29.52"),
)
_BUCKET: Final = "lake"
_SECONDS: Final = 60
_PROGRAM: Final = "import sys; from moto.server import main; main(sys.argv[1:])"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A server with one bucket."""

    endpoint: str

    @property
    def settings(self) -> dict[str, str]:
        """Settings of Spark for a warehouse in the bucket."""
        return {
            "spark.sql.warehouse.dir": f"s3a://{_BUCKET}/warehouse",
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        }

    @property
    def jars(self) -> list[str]:
        """The jars that Spark needs."""
        return [str(jar) for jar in fetch_jars(JARS)]

    def configuration(self) -> str:
        """Return sections of the configuration for a warehouse in the bucket."""
        jars = json.dumps(self.jars)
        lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in self.settings.items()]
        return "\n".join(["[engine]", f"jars = {jars}", "[engine.settings]", *lines])

    def objects(self) -> set[str]:
        """Return the keys of all objects. The server lists at most a thousand."""
        with urlopen(f"{self.endpoint}/{_BUCKET}?list-type=2") as answer:
            return set(re.findall(r"<Key>(.*?)</Key>", answer.read().decode()))


@contextmanager
def running_object_store(folder: Path) -> Iterator[ObjectStore]:
    """Install and start a server whose objects end with it."""
    programs = install(folder / "moto", "moto[server]==5.*")
    port = free_port()
    command = [str(programs / "python"), "-I", "-c", _PROGRAM, "-p", str(port)]
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until_listening(process, port, _SECONDS)
        store = ObjectStore(f"http://127.0.0.1:{port}")
        with urlopen(Request(f"{store.endpoint}/{_BUCKET}", method="PUT")):
            pass
        yield store
    finally:
        process.kill()
        process.wait()
