"""Settings of Spark for tests on little data."""

from __future__ import annotations

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for tables of a handful of rows: one task per job, and no code to compile."""

COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's own, for millions of rows and for tests of the code that it generates."""

COMPILE_ONCE = "-XX:TieredStopAtLevel=1"
"""For a JVM that lives for seconds: Java compiles once, without profiling."""

_ROOM = "-XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=300m"
"""The first is Java's default when it compiles more than once. In the 48 MiB that it reserves
otherwise, Spark's code has no room: Java discards code and compiles it again, a quarter of all
work."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

OPTIMIZED_LATE = {
    _JAVA_OPTIONS: "-XX:Tier4InvocationThreshold=40000 -XX:Tier4MinInvocationThreshold=5000 "
    "-XX:Tier4CompileThreshold=120000 -XX:Tier4BackEdgeThreshold=200000"
}
"""Java optimizes only what is called very often, which takes a fifth less of the processors than
its defaults, made for processes that live for days."""

_FEW_TABLES = "-Ddelta.log.cacheSize=20"
"""Delta caches few tables, because each test creates new ones."""

LONG_LIVED = {**SMALL, _JAVA_OPTIONS: f"{OPTIMIZED_LATE[_JAVA_OPTIONS]} {_FEW_TABLES}"}
"""Options for a Spark that hundreds of tests share."""

BRIEF = {**SMALL, _JAVA_OPTIONS: f"{COMPILE_ONCE} {_ROOM} {_FEW_TABLES}"}
"""Options for a Spark that serves a few dozen statements, which take a third less of the processors
until the first table is refreshed."""

IN_MEMORY = {
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:tests;create=true",
}
"""A metastore in memory, which ends with its process."""

WITHOUT_FORKS = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
}
"""Each checksum in a local directory otherwise starts four processes to ask for symbolic links,
which cost more than the file. This class holds off writers of the same process only."""
