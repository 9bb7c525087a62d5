"""Migrations by Alembic against a real server: up, down, and written by comparing."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.dialect.migrations import Migrations
from tests.support.fixtures.server import Server
from tests.support.full_run import FULL
from tidegate_sqlalchemy import CreateMaterializedTable
from tidegate_sqlalchemy.alembic import declare

pytestmark = [pytest.mark.spark, pytest.mark.thorough(7)]


@pytest.fixture
def engine(server: Server) -> Iterator[sa.Engine]:
    """Connections whose default schema is a new one."""
    url = f"tidegate://ada@{server.host}:{server.port}"
    schema = f"al_{uuid.uuid4().hex[:8]}"
    root = sa.create_engine(f"{url}/default")
    with root.connect() as connection:
        connection.execute(sa.schema.CreateSchema(schema))
    engine = sa.create_engine(f"{url}/{schema}")
    yield engine
    with engine.connect() as connection:
        for (name,) in connection.exec_driver_sql("SHOW MATERIALIZED TABLES").all():
            connection.exec_driver_sql(f"DROP MATERIALIZED TABLE {name}")
    engine.dispose()
    with root.connect() as connection:
        connection.execute(sa.schema.DropSchema(schema, cascade=True))
    root.dispose()


def model(*tables: CreateMaterializedTable) -> sa.MetaData:
    """Return a MetaData with the table ``orders`` and materialized tables."""
    metadata = sa.MetaData()
    columns = (sa.Column("ds", sa.String), sa.Column("amount", sa.BigInteger))
    sa.Table("orders", metadata, *columns, tidegate_using="delta")
    for table in tables:
        declare(metadata, table)
    return metadata


def daily(query: str, hours: int = 1) -> CreateMaterializedTable:
    return CreateMaterializedTable("daily", query, freshness=datetime.timedelta(hours=hours))


def definition(engine: sa.Engine) -> str:
    with engine.connect() as connection:
        shown = connection.exec_driver_sql("SHOW CREATE MATERIALIZED TABLE daily").scalar()
    return " ".join(str(shown).split())


def tables(engine: sa.Engine) -> list[str]:
    return sorted(set(sa.inspect(engine).get_table_names()) - {"alembic_version"})


def test_migrations_follow_the_declarations_and_lead_back(
    engine: sa.Engine, tmp_path: Path
) -> None:
    migrations = Migrations(tmp_path / "migrations", engine)
    counting = daily("SELECT ds, count(*) AS n, 'a:b 5%' AS note FROM orders GROUP BY ds")
    written = migrations.generate("one", model(counting))
    assert written.index("op.create_table('orders'") < written.index("op.create_materialized_table")
    migrations.upgrade()
    assert tables(engine) == ["daily", "orders"]

    # What is there already makes no migration, in whatever words it is declared.
    same = daily("select ds, COUNT(*) AS n,  'a:b 5%' AS note from orders group by ds")
    assert "pass" in migrations.generate("two", model(same))
    migrations.upgrade()

    summing = (
        "SELECT ds, count(*) AS n, 'a:b 5%' AS note, sum(amount) AS total FROM orders GROUP BY ds"
    )
    written = migrations.generate("three", model(daily(summing, hours=2)))
    assert "or_alter=True" in written
    downgrade = written.partition("def downgrade")[2]
    assert downgrade.index("op.drop_m") < downgrade.index("op.define_materialized_table")
    migrations.upgrade()
    assert "INTERVAL '2' HOUR" in definition(engine)
    assert "total" in definition(engine)

    last = "three"
    if FULL:
        last = "later"
        written = migrations.generate(last, model(daily(summing, hours=3)))
        assert "op.drop_materialized_table" not in written
        migrations.upgrade()
        migrations.downgrade("three")
        assert "INTERVAL '2' HOUR" in definition(engine)
        migrations.upgrade()

    other = CreateMaterializedTable("other", "SELECT 1 AS a")
    written = migrations.generate("four", model(other))
    assert "op.drop_materialized_table('daily')" in written
    migrations.upgrade()
    assert tables(engine) == ["orders", "other"]

    migrations.downgrade(last)
    assert tables(engine) == ["daily", "orders"]
    assert "total" in definition(engine)
    migrations.downgrade("base")
    assert tables(engine) == []


def test_what_no_alter_can_do_makes_the_table_anew(engine: sa.Engine, tmp_path: Path) -> None:
    migrations = Migrations(tmp_path / "migrations", engine)
    migrations.generate("one", model(daily("SELECT ds, amount FROM orders")))
    migrations.upgrade()
    written = migrations.generate("two", model(daily("SELECT ds FROM orders")))
    assert "or_alter" not in written
    migrations.upgrade()
    assert "amount" not in definition(engine)
    migrations.downgrade("one")
    assert "amount" in definition(engine)


def test_undeclared_materialized_tables_are_left_alone(engine: sa.Engine, tmp_path: Path) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (ds STRING, amount BIGINT) USING delta")
        connection.exec_driver_sql("CREATE MATERIALIZED TABLE daily AS SELECT ds FROM orders")
    migrations = Migrations(tmp_path / "migrations", engine)
    assert "pass" in migrations.generate("one", model())
