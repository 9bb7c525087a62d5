"""Materialized table statements are written as the server reads them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from tidegate_sqlalchemy import (
    AlterMaterializedTableQuery,
    ConvertMaterializedTable,
    CreateMaterializedTable,
    DiscardHeldVersion,
    DropMaterializedTable,
    PublishHeldVersion,
    RefreshMaterializedTable,
    RenameMaterializedTable,
    ResumeMaterializedTable,
    RollbackMaterializedTable,
    RollbackMaterializedTableDefinition,
    SetMaterializedTableExecuteAs,
    SetMaterializedTableFreshness,
    SetMaterializedTableImmutable,
    SetMaterializedTableRefreshMode,
    SetMaterializedTableRefreshTrigger,
    SuspendMaterializedTable,
    SwapMaterializedTables,
    TidegateDialect,
)

DIALECT = TidegateDialect(paramstyle="pyformat")
ORDERS = sa.table("orders", sa.column("ds"), sa.column("amount"))


def ddl(element: Any) -> str:
    return " ".join(str(element.compile(dialect=DIALECT)).split())


def test_a_create_has_its_clauses_in_the_fixed_order() -> None:
    query = sa.select(ORDERS.c.ds, sa.func.sum(ORDERS.c.amount).label("total")).group_by(
        ORDERS.c.ds
    )
    element = CreateMaterializedTable(
        "daily",
        query.where(ORDERS.c.amount > 0),
        schema="sales",
        comment="per day",
        partitioned_by=["ds"],
        options={"partition.fields.ds.date-formatter": "yyyy-MM-dd"},
        freshness=datetime.timedelta(hours=1),
        refresh_mode="FULL",
        refresh_trigger="ON UPDATE",
        immutable_where="ds < '2024'",
        backfill_from="sales.old",
    )
    assert ddl(element) == (
        "CREATE MATERIALIZED TABLE sales.daily COMMENT 'per day' PARTITIONED BY (ds) "
        "WITH ('partition.fields.ds.date-formatter' = 'yyyy-MM-dd') "
        "FRESHNESS = INTERVAL '1' HOUR REFRESH_MODE = FULL REFRESH_TRIGGER = ON UPDATE "
        "IMMUTABLE WHERE (ds < '2024') BACKFILL FROM sales.old "
        "AS SELECT orders.ds, sum(orders.amount) AS total FROM orders "
        "WHERE orders.amount > 0 GROUP BY orders.ds"
    )


def test_a_query_may_be_text() -> None:
    element = CreateMaterializedTable("m", "SELECT '50%' AS a, x:y FROM t", or_alter=True)
    assert ddl(element) == "CREATE OR ALTER MATERIALIZED TABLE m AS SELECT '50%%' AS a, x:y FROM t"


def test_columns_or_a_primary_key_follow_the_name() -> None:
    named = CreateMaterializedTable("m", "SELECT 1", columns=["b", "a"], if_not_exists=True)
    assert ddl(named).startswith("CREATE MATERIALIZED TABLE IF NOT EXISTS m (b, a) AS")
    keyed = CreateMaterializedTable("m", "SELECT 1", primary_key=["ds", "hh"])
    assert ddl(keyed).startswith(
        "CREATE MATERIALIZED TABLE m (PRIMARY KEY (ds, hh) NOT ENFORCED) AS"
    )


def test_columns_and_a_primary_key_exclude_each_other() -> None:
    with pytest.raises(sa.exc.ArgumentError):
        CreateMaterializedTable("m", "SELECT 1", columns=["a"], primary_key=["a"])


@pytest.mark.parametrize(
    ("freshness", "literal"),
    [
        (datetime.timedelta(days=1), "INTERVAL '1' DAY"),
        (datetime.timedelta(hours=36), "INTERVAL '36' HOUR"),
        (datetime.timedelta(minutes=3), "INTERVAL '3' MINUTE"),
        (datetime.timedelta(seconds=90), "INTERVAL '90' SECOND"),
        ("INTERVAL '1' WEEK", "INTERVAL '1' WEEK"),
    ],
)
def test_freshness_is_written_in_the_largest_unit_that_fits(freshness: Any, literal: str) -> None:
    element = SetMaterializedTableFreshness("m", freshness)
    assert ddl(element) == f"ALTER MATERIALIZED TABLE m SET FRESHNESS = {literal}"


@pytest.mark.parametrize("seconds", [0, -1, 0.5])
def test_freshness_must_be_whole_positive_seconds(seconds: float) -> None:
    element = SetMaterializedTableFreshness("m", datetime.timedelta(seconds=seconds))
    with pytest.raises(sa.exc.ArgumentError):
        ddl(element)


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (DropMaterializedTable("m"), "DROP MATERIALIZED TABLE m"),
        (
            DropMaterializedTable("m", schema="s", if_exists=True),
            "DROP MATERIALIZED TABLE IF EXISTS s.m",
        ),
        (SuspendMaterializedTable("m"), "ALTER MATERIALIZED TABLE m SUSPEND"),
        (ResumeMaterializedTable("m"), "ALTER MATERIALIZED TABLE m RESUME"),
        (
            ResumeMaterializedTable("m", options={"k": "it's"}),
            r"ALTER MATERIALIZED TABLE m RESUME WITH ('k' = 'it\'s')",
        ),
        (RefreshMaterializedTable("m"), "ALTER MATERIALIZED TABLE m REFRESH"),
        (
            RefreshMaterializedTable("m", partition={"ds": "2024-01-01", "hh": 3}, cascade=True),
            "ALTER MATERIALIZED TABLE m REFRESH PARTITION (ds = '2024-01-01', hh = '3') CASCADE",
        ),
        (
            RefreshMaterializedTable("m", partition_from={"ds": "1"}, partition_to={"ds": "3"}),
            "ALTER MATERIALIZED TABLE m REFRESH PARTITION FROM (ds = '1') TO (ds = '3')",
        ),
        (
            RefreshMaterializedTable("m", cascade="UPSTREAM"),
            "ALTER MATERIALIZED TABLE m REFRESH CASCADE UPSTREAM",
        ),
        (
            SetMaterializedTableRefreshMode("m", "CONTINUOUS"),
            "ALTER MATERIALIZED TABLE m SET REFRESH_MODE = CONTINUOUS",
        ),
        (
            SetMaterializedTableRefreshTrigger("m", "ON SCHEDULE"),
            "ALTER MATERIALIZED TABLE m SET REFRESH_TRIGGER = ON SCHEDULE",
        ),
        (
            SetMaterializedTableImmutable("m", "ds LIKE '2024%'"),
            "ALTER MATERIALIZED TABLE m SET IMMUTABLE WHERE (ds LIKE '2024%%')",
        ),
        (SetMaterializedTableImmutable("m", None), "ALTER MATERIALIZED TABLE m DROP IMMUTABLE"),
        (
            AlterMaterializedTableQuery("m", sa.select(ORDERS.c.ds)),
            "ALTER MATERIALIZED TABLE m AS SELECT orders.ds FROM orders",
        ),
        (RenameMaterializedTable("m", "N"), "ALTER MATERIALIZED TABLE m RENAME TO `N`"),
        (SuspendMaterializedTable("m", cascade=True), "ALTER MATERIALIZED TABLE m SUSPEND CASCADE"),
        (
            ResumeMaterializedTable("m", options={"k": "v"}, cascade=True),
            "ALTER MATERIALIZED TABLE m RESUME WITH ('k' = 'v') CASCADE",
        ),
        (SwapMaterializedTables("m", "N"), "ALTER MATERIALIZED TABLE m SWAP WITH `N`"),
        (
            SwapMaterializedTables("m", "n", schema="s"),
            "ALTER MATERIALIZED TABLE s.m SWAP WITH s.n",
        ),
        (
            SetMaterializedTableExecuteAs("m", "o'neil"),
            r"ALTER MATERIALIZED TABLE m SET EXECUTE AS USER 'o\'neil'",
        ),
        (
            SetMaterializedTableExecuteAs("m", None, schema="s"),
            "ALTER MATERIALIZED TABLE s.m SET EXECUTE AS OWNER",
        ),
        (
            RollbackMaterializedTable("m", 3),
            "ALTER MATERIALIZED TABLE m ROLLBACK TO VERSION 3",
        ),
        (
            RollbackMaterializedTable("m", 3, "BOTH", schema="s"),
            "ALTER MATERIALIZED TABLE s.m ROLLBACK TO VERSION 3 BOTH",
        ),
        (
            RollbackMaterializedTableDefinition("m"),
            "ALTER MATERIALIZED TABLE m ROLLBACK DEFINITION",
        ),
        (
            RollbackMaterializedTableDefinition("m", 3, schema="s"),
            "ALTER MATERIALIZED TABLE s.m ROLLBACK DEFINITION TO VERSION 3",
        ),
        (PublishHeldVersion("m"), "ALTER MATERIALIZED TABLE m PUBLISH HELD VERSION"),
        (
            DiscardHeldVersion("m", schema="s"),
            "ALTER MATERIALIZED TABLE s.m DISCARD HELD VERSION",
        ),
        (ConvertMaterializedTable("m"), "ALTER MATERIALIZED TABLE m CONVERT TO TABLE"),
    ],
)
def test_a_statement_is_written(element: Any, text: str) -> None:
    assert ddl(element) == text


def test_half_a_partition_range_is_refused() -> None:
    with pytest.raises(sa.exc.ArgumentError):
        RefreshMaterializedTable("m", partition_from={"ds": "1"})
    with pytest.raises(sa.exc.ArgumentError):
        RefreshMaterializedTable(
            "m", partition={"ds": "1"}, partition_from={"ds": "1"}, partition_to={"ds": "2"}
        )
