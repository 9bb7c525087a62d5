"""The archive of Java classes is found again by what it fits, and used by the JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from tidegate_server.engine.jvm.jars import resolve_jars
from tidegate_server.engine.jvm.session import class_archive


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of some Java."""
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.15"\n', "utf-8")
    return tmp_path


def test_another_java_and_other_jars_have_another_archive(home: Path) -> None:
    archive = class_archive(str(home), [Path("/jars/delta.jar")])
    assert class_archive(str(home), [Path("/jars/delta.jar")]) == archive
    assert class_archive(str(home), [Path("/jars/other.jar")]) != archive
    (home / "release").write_text('JAVA_VERSION="21.0.2"\n', "utf-8")
    assert class_archive(str(home), [Path("/jars/delta.jar")]) != archive


@pytest.mark.spark
def test_the_jvm_reads_the_archive_although_it_has_further_jars(spark_root: SparkSession) -> None:
    archive = class_archive("", resolve_jars())
    if not archive.exists():
        pytest.skip("there is no archive: python -m tidegate_server.engine.jvm.class_archive")
    gateway: Any = spark_root.sparkContext._gateway
    class_path = gateway.jvm.java.lang.System.getProperty("java.class.path").split(":")
    assert "iceberg-spark-runtime" in class_path[-2]
    assert Path(class_path[-1]).name.startswith("classes-")  # with Delta's log store
    mapped = {mapping.path for mapping in psutil.Process(gateway.proc.pid).memory_maps()}
    assert str(archive) in mapped


@pytest.mark.spark
def test_java_keeps_its_temporary_files_where_the_engine_deletes_them(
    spark_root: SparkSession,
) -> None:
    system: Any = spark_root.sparkContext._gateway.jvm.java.lang.System
    assert system.getProperty("java.io.tmpdir") == spark_root.conf.get("spark.local.dir")
