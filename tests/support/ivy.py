"""Jars from Maven Central, fetched with the Ivy that PySpark brings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import quoteattr

import pyspark

from tidegate_server.engine.jvm.jars import cache_dir
from tidegate_server.gateway.link.java import find_java

SHIPPED: Final = Path(pyspark.__file__).parent / "jars"
"""The jars of PySpark."""
_SECONDS: Final = 600


class Jar(NamedTuple):
    """A jar of Maven Central."""

    organisation: str
    name: str
    revision: str
    classifier: str = ""

    @property
    def file(self) -> str:
        """Its name."""
        return f"{self.name}-{self.revision}{'-' + self.classifier if self.classifier else ''}.jar"


def fetched(folder: str, jars: Sequence[Jar]) -> list[Path]:
    """Return the jars in a folder of the cache, without what they depend on; fetches what lacks."""
    place = cache_dir() / folder
    wanted = [place / jar.file for jar in jars]
    if all(each.exists() for each in wanted):
        return wanted
    place.mkdir(parents=True, exist_ok=True)
    modules = dict.fromkeys(jar[:3] for jar in jars)
    listed = "".join(
        f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} "
        f'rev={quoteattr(revision)} transitive="false">'
        f"{''.join(_artifact(jar) for jar in jars if jar.name == name)}</dependency>"
        for organisation, name, revision in modules
    )
    module = place / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tidegate" module="tests"/>'
        f"<dependencies>{listed}</dependencies></ivy-module>"
    )
    java = str(find_java().home / "bin" / "java")
    ivy = [java, "-cp", f"{SHIPPED}/*", "org.apache.ivy.Main"]
    ivy += ["-cache", str(place / "ivy"), "-ivy", str(module)]
    if settings := os.environ.get("TIDEGATE_IVY_SETTINGS"):
        ivy += ["-settings", settings]
    ivy += ["-retrieve", str(place / "[artifact]-[revision](-[classifier]).[ext]")]
    subprocess.run(ivy, check=True, capture_output=True, timeout=_SECONDS)
    missing = [each.name for each in wanted if not each.exists()]
    assert not missing, missing
    return wanted


def _artifact(jar: Jar) -> str:
    of = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return f'<artifact name={quoteattr(jar.name)} type="jar" ext="jar"{of}/>'
