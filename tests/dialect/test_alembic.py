"""Migrations with materialized tables: what ``alembic --sql`` prints, what autogenerate writes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import render_python_code
from alembic.operations.ops import UpgradeOps
from alembic.runtime.migration import MigrationContext

from tests.dialect.migrations import Migrations
from tidegate_sqlalchemy import CreateMaterializedTable, TidegateDialect
from tidegate_sqlalchemy.alembic import (
    CreateMaterializedTableOp,
    DefineMaterializedTableOp,
    DropMaterializedTableOp,
    RenameMaterializedTableOp,
    declare,
)

ORDERS = sa.table("orders", sa.column("ds"), sa.column("note"))


@pytest.fixture
def migrations(tmp_path: Path) -> Migrations:
    return Migrations(tmp_path / "migrations")


def test_versions_stand_in_delta(migrations: Migrations) -> None:
    migrations.write("one", "pass", "pass")
    migrations.write("two", "pass", "pass", after="one")
    printed = migrations.sql("upgrade", "head")
    assert (
        "CREATE TABLE alembic_version ( version_num VARCHAR(32) NOT NULL ) USING delta;" in printed
    )
    assert "INSERT INTO alembic_version (version_num) VALUES ('one');" in printed
    assert "UPDATE alembic_version SET version_num='two' WHERE" in printed
    assert "BEGIN" not in printed


def test_a_table_is_made_and_dropped(migrations: Migrations) -> None:
    migrations.write(
        "one",
        "op.create_materialized_table('daily', \"SELECT ds, '50%' AS a, x:y FROM t\", "
        "schema='sales', partitioned_by=['ds'], freshness=\"INTERVAL '1' HOUR\")",
        "op.drop_materialized_table('daily', schema='sales')",
    )
    assert (
        "CREATE MATERIALIZED TABLE sales.daily PARTITIONED BY (ds) FRESHNESS = INTERVAL '1' HOUR "
        "AS SELECT ds, '50%' AS a, x:y FROM t;"
    ) in migrations.sql("upgrade", "head")
    assert "DROP MATERIALIZED TABLE sales.daily;" in migrations.sql("downgrade", "one:base")


@pytest.mark.parametrize(
    ("operation", "statements"),
    [
        (
            """alter_materialized_table(
                'm', query='SELECT 1 AS a', freshness="INTERVAL '3' MINUTE", refresh_mode='FULL',
                refresh_trigger='ON UPDATE', immutable_where="ds < '2024'")""",
            [
                "ALTER MATERIALIZED TABLE m AS SELECT 1 AS a;",
                "ALTER MATERIALIZED TABLE m SET FRESHNESS = INTERVAL '3' MINUTE;",
                "ALTER MATERIALIZED TABLE m SET REFRESH_MODE = FULL;",
                "ALTER MATERIALIZED TABLE m SET REFRESH_TRIGGER = ON UPDATE;",
                "ALTER MATERIALIZED TABLE m SET IMMUTABLE WHERE (ds < '2024');",
            ],
        ),
        (
            "alter_materialized_table('m', schema='s', drop_immutable=True)",
            ["ALTER MATERIALIZED TABLE s.m DROP IMMUTABLE;"],
        ),
        (
            "rename_materialized_table('m', 'n', schema='s')",
            ["ALTER MATERIALIZED TABLE s.m RENAME TO n;"],
        ),
        (
            "drop_materialized_table('m', if_exists=True)",
            ["DROP MATERIALIZED TABLE IF EXISTS m;"],
        ),
        (
            "define_materialized_table(\"CREATE MATERIALIZED TABLE m AS SELECT '%' AS a\")",
            ["CREATE MATERIALIZED TABLE m AS SELECT '%' AS a;"],
        ),
        (
            "alter_column('t', 'a', new_column_name='b')",
            ["ALTER TABLE t RENAME COLUMN a TO b;"],
        ),
        (
            "alter_column('t', 'a', comment=\"it's\", type_=sa.BigInteger(), nullable=True)",
            [
                "ALTER TABLE t ALTER COLUMN a DROP NOT NULL;",
                "ALTER TABLE t ALTER COLUMN a TYPE BIGINT;",
                r"ALTER TABLE t ALTER COLUMN a COMMENT 'it\'s';",
            ],
        ),
        ("add_column('t', sa.Column('c', sa.Integer()))", ["ALTER TABLE t ADD COLUMN c INT;"]),
        ("drop_column('t', 'c')", ["ALTER TABLE t DROP COLUMN c;"]),
    ],
)
def test_operations_are_statements(
    migrations: Migrations, operation: str, statements: list[str]
) -> None:
    migrations.write("one", f"op.{operation}", "pass")
    printed = migrations.sql("upgrade", "head")
    assert [statement for statement in statements if statement not in printed] == []


def render(operation: Any) -> str:
    context = MigrationContext.configure(dialect=TidegateDialect(paramstyle="pyformat"))
    text = render_python_code(UpgradeOps([operation]), migration_context=context)
    return " ".join(text.split())


def test_what_is_generated_says_everything_and_can_be_undone() -> None:
    table = CreateMaterializedTable(
        "daily",
        sa.select(ORDERS.c.ds).where(ORDERS.c.note == "it's 5%"),
        schema="sales",
        comment="per day",
        options={"k": "v"},
        freshness=datetime.timedelta(hours=1),
    )
    created = CreateMaterializedTableOp(table)
    text = render(created)
    assert "op.create_materialized_table('daily'," in text
    assert r"WHERE orders.note = 'it\\'s 5%'" in text
    assert (
        "schema='sales', comment='per day', options={'k': 'v'}, freshness=\"INTERVAL '1' HOUR\")"
    ) in text
    assert "op.drop_materialized_table('daily', schema='sales')" in render(created.reverse())
    altered = CreateMaterializedTableOp(table.altering(), previous="CREATE OR ALTER …")
    assert "or_alter=True" in render(altered)
    assert "op.define_materialized_table('CREATE OR ALTER …')" in render(altered.reverse())
    widened = CreateMaterializedTableOp(table.altering(), "CREATE …", new_columns=True)
    undone = render(widened.reverse())
    assert "op.drop_materialized_table('daily', schema='sales') op.define_m" in undone
    dropped = DropMaterializedTableOp("m", definition="CREATE …")
    assert isinstance(dropped.reverse(), DefineMaterializedTableOp)
    with pytest.raises(ValueError, match="the definition of m is not known"):
        DropMaterializedTableOp("m").reverse()
    renamed = RenameMaterializedTableOp("a", "b", "s").reverse()
    assert (renamed.name, renamed.new_name, renamed.schema) == ("b", "a", "s")


def test_a_name_is_declared_once() -> None:
    metadata = sa.MetaData()
    declare(metadata, CreateMaterializedTable("m", "SELECT 1"))
    declare(metadata, CreateMaterializedTable("m", "SELECT 1", schema="s"))
    with pytest.raises(sa.exc.ArgumentError, match="m is already declared"):
        declare(metadata, CreateMaterializedTable("m", "SELECT 2"))
