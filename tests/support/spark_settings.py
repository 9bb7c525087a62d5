"""Settings of Spark for tests on little data."""

from __future__ import annotations

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for tables of a handful of rows: one task per job, and no code to compile."""

SHORT_LIVED = {
    **SMALL,
    "spark.driver.extraJavaOptions": "-XX:Tier4InvocationThreshold=40000 "
    "-XX:Tier4MinInvocationThreshold=5000 -XX:Tier4CompileThreshold=120000 "
    "-XX:Tier4BackEdgeThreshold=200000 -Ddelta.log.cacheSize=20",
}
"""Options for a Spark that lives for minutes: Java optimizes only what is called very often, which
takes a fifth less of the processors than its defaults, made for processes that live for days. And
Delta remembers few tables, of which each test makes some of its own."""

COMPILE_ONCE = "-XX:TieredStopAtLevel=1"
"""For a JVM that lives for seconds: Java compiles once, without profiling."""

_CODE = "-XX:ReservedCodeCacheSize=240m"
"""Java's default when it compiles more than once. In the 48 MiB that it reserves otherwise, Spark's
code has no room: Java then discards code and compiles it again, a quarter of all work."""

BRIEF = {
    **SMALL,
    "spark.driver.extraJavaOptions": f"{COMPILE_ONCE} {_CODE} -XX:MetaspaceSize=300m "
    "-Ddelta.log.cacheSize=20",
}
"""Options for a Spark that serves a few dozen statements, which take a third less of the processors
until the first table is refreshed; over hundreds of statements they would take more."""

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
