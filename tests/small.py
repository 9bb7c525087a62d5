"""Settings of Spark for tests on little data."""

from __future__ import annotations

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for tables of a handful of rows: one task per job, and no code to compile."""

IN_MEMORY = {
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:tests;create=true",
}
"""A metastore that goes with its process."""
