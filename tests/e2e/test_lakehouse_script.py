"""A script in Flink's SQL, from the catalog to the layers of a lakehouse, runs as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate
from tests.support.fixtures.server import Server, run_as, running_job
from tests.support.waiting import wait_until
from tidegate.cli.split import split

pytestmark = [pytest.mark.spark, pytest.mark.thorough(4)]

SCRIPT = Path(__file__).parents[1] / "sql" / "fixtures" / "lakehouse.sql"


def _statements() -> list[str]:
    """Return the script's statements, with another schema than the default one."""
    text = SCRIPT.read_text("utf-8").replace("`default`", "`layers`")
    return [part.sql for part in split(text) if part.sql]


def test_the_layers_are_built_and_refreshed(server: Server) -> None:
    run_as(
        server,
        "lena",
        "CREATE CATALOG lake WITH ('type' = 'tidegate')",
        "CREATE SCHEMA lake.layers",
        "USE lake.layers",
        "SET 'sql.dialect' = 'flink'",
        "SET 'execution.checkpointing.interval' = '1 s'",
        *_statements(),
    )
    for table in ("ods_user_log", "ods_dim_product"):
        count = f"SELECT count(*) > 5 FROM lake.layers.{table}"
        wait_until(lambda count=count: run_as(server, "lena", count) == [(True,)], table, 120)
    job = running_job(server, "lena")
    # The same rows for the lower and the upper layer.
    run_as(server, "lena", f"STOP JOB '{job}'", "USE CATALOG lake", "USE lake.layers")
    refresh = "ALTER MATERIALIZED TABLE lake.layers.{} REFRESH FULL"
    layers = ("dwd_user_log_product", "dws_overall")
    run_as(server, "lena", *(refresh.format(table) for table in layers))
    joined = (
        "SELECT count(*) FROM lake.layers.ods_user_log JOIN lake.layers.ods_dim_product "
        "USING (item_id)"
    )
    total = "SELECT coalesce(sum(pv), 0) FROM lake.layers.dws_overall WHERE hh = 'day'"
    assert run_as(server, "lena", joined) == run_as(server, "lena", total)
    # One table, whatever the catalog is called.
    assert run_as(server, "lena", "SHOW MATERIALIZED TABLES IN lake.layers") == run_as(
        server, "lena", "SHOW MATERIALIZED TABLES IN spark_catalog.layers"
    )


def test_clients_see_the_tables_under_the_alias(server: Server) -> None:
    with tidegate.connect(host=server.host, port=server.port, user="lena") as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW CATALOGS")
        assert ("lake",) in cursor.fetchall()
    with tidegate.connect(
        host=server.host, port=server.port, user="lena", schema="lake.layers"
    ) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT current_catalog(), current_schema(), count(*) FROM ods_user_log")
        [(catalog, schema, count)] = cursor.fetchall()
        assert (catalog, schema) == ("spark_catalog", "layers")
        assert count > 0
