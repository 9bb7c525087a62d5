"""Settings of Spark for tests on little data."""

from __future__ import annotations

from tests.support.full_run import FULL

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for tables of a handful of rows: one task per job, and no code to compile."""

COMPILE_ONCE = "-XX:TieredStopAtLevel=1"
"""For a JVM that lives for seconds or minutes: Java compiles once, without profiling."""

_ROOM = "-XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=300m"
"""The first is Java's default when it compiles more than once. In the 48 MiB that it reserves
otherwise, Spark's code has no room: Java discards code and compiles it again, a quarter of all
work."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

SHORT_LIVED = {} if FULL else {_JAVA_OPTIONS: f"{COMPILE_ONCE} {_ROOM}"}
"""Options for a Spark that lives for minutes: to optimize code takes a quarter of the processors,
more than it gains. In a full run, which takes hours, it is worth it."""

BRIEF = {
    **SMALL,
    _JAVA_OPTIONS: " ".join([*SHORT_LIVED.values(), "-Ddelta.log.cacheSize=20"]),
}
"""Options for a Spark with the tables of tests, of which Delta remembers few: each test makes some
of its own."""

IN_MEMORY = {
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:tests;create=true",
}
"""A metastore in memory, which ends with its process."""

WITHOUT_FORKS = {
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
}
"""Each commit to a local directory otherwise starts four processes to ask for symbolic links, which
cost more than the commit. These stores hold off writers of the same process only."""
