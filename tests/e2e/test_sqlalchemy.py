"""The SQLAlchemy dialect against a real server."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa

from tidegate_sqlalchemy import (
    ARRAY,
    STRUCT,
    CreateMaterializedTable,
    DropMaterializedTable,
    MaterializedTable,
    RefreshMaterializedTable,
    ResumeMaterializedTable,
    SetMaterializedTableFreshness,
    SuspendMaterializedTable,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def engine(server: Any) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"tidegate://ada@{server.host}:{server.port}/default")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def schema(engine: sa.Engine) -> Iterator[str]:
    name = f"sa_{uuid.uuid4().hex[:8]}"
    with engine.connect() as connection:
        connection.execute(sa.schema.CreateSchema(name))
        yield name
        connection.execute(sa.schema.DropSchema(name, cascade=True))


@pytest.fixture(scope="module")
def orders(engine: sa.Engine, schema: str) -> sa.Table:
    table = sa.Table(
        "orders",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, nullable=False),
        sa.Column("ds", sa.String, comment="it's the day"),
        sa.Column("amount", sa.Numeric(12, 2)),
        sa.Column("at", sa.DateTime),
        sa.Column("tags", ARRAY(sa.String)),
        sa.Column("place", STRUCT(("x", sa.Integer), ("y", sa.Integer))),
        schema=schema,
        comment="one row per order, 5% fake",
        tidegate_using="delta",
        tidegate_partitioned_by=["ds"],
    )
    with engine.connect() as connection:
        table.create(connection)
        connection.execute(
            sa.insert(table),
            [
                {
                    "id": number,
                    "ds": f"2024-01-0{1 + number % 2}",
                    "amount": Decimal("1.25"),
                    "at": datetime.datetime(2024, 1, 1, 2, 3, 4),  # noqa: DTZ001
                }
                for number in range(4)
            ],
        )
    return table


@pytest.fixture
def daily(engine: sa.Engine, schema: str, orders: sa.Table) -> Iterator[str]:
    query = sa.select(orders.c.ds, sa.func.sum(orders.c.amount).label("total"))
    with engine.connect() as connection:
        connection.execute(
            CreateMaterializedTable(
                "daily",
                query.where(orders.c.ds.like("2024%")).group_by(orders.c.ds),
                schema=schema,
                comment="per day",
                partitioned_by=["ds"],
                options={"partition.fields.ds.date-formatter": "yyyy-MM-dd"},
                freshness=datetime.timedelta(hours=1),
                refresh_mode="FULL",
            )
        )
        connection.execute(RefreshMaterializedTable("daily", schema=schema))
        yield "daily"
        connection.execute(DropMaterializedTable("daily", schema=schema, if_exists=True))


def test_parameters_arrive_as_they_are(engine: sa.Engine) -> None:
    text = "it's 50% \\ ü \n"
    with engine.connect() as connection:
        row = connection.execute(sa.text("SELECT :x, 50 % 7, '100%'"), {"x": text}).one()
    assert tuple(row) == (text, 1, "100%")


def test_literals_arrive_as_they_are(engine: sa.Engine) -> None:
    text = "it's 50% \\ ü \n"
    query = sa.select(sa.literal(text, literal_execute=True), sa.literal(b"\x00\xff"))
    with engine.connect() as connection:
        assert tuple(connection.execute(query).one()) == (text, b"\x00\xff")


def test_rows_come_back_as_python_values(engine: sa.Engine, orders: sa.Table) -> None:
    query = sa.select(orders).order_by(orders.c.id).limit(1).offset(2)
    with engine.connect() as connection:
        row = connection.execute(query).one()
    assert (row.id, row.ds, row.amount) == (2, "2024-01-01", Decimal("1.25"))
    assert row.at.replace(tzinfo=None) == datetime.datetime(2024, 1, 1, 2, 3, 4)  # noqa: DTZ001
    assert row.tags is None


def test_an_empty_list_matches_nothing(engine: sa.Engine, orders: sa.Table) -> None:
    with engine.connect() as connection:
        query = sa.select(orders.c.id).where(orders.c.id.in_([]))
        assert connection.execute(query).all() == []


def test_a_table_is_reflected(engine: sa.Engine, schema: str, orders: sa.Table) -> None:
    reflected = sa.Table("orders", sa.MetaData(), schema=schema, autoload_with=engine)
    assert reflected.comment == "one row per order, 5% fake"
    assert reflected.c.ds.comment == "it's the day"
    assert isinstance(reflected.c.id.type, sa.BIGINT)
    assert repr(reflected.c.amount.type) == "DECIMAL(precision=12, scale=2)"
    assert isinstance(reflected.c.tags.type, ARRAY)
    assert isinstance(reflected.c.place.type, STRUCT)


def test_names_are_listed(engine: sa.Engine, schema: str, daily: str) -> None:
    inspector = sa.inspect(engine)
    assert schema in inspector.get_schema_names()
    assert inspector.get_table_names(schema).count(daily) == 1
    assert inspector.has_table(daily, schema)
    assert not inspector.has_table("dail_", schema)
    with engine.connect() as connection:
        dialect: Any = engine.dialect
        assert dialect.get_materialized_table_names(connection, schema) == [daily]


def test_a_materialized_table_is_reflected_and_created_again(
    engine: sa.Engine, schema: str, orders: sa.Table
) -> None:
    day = sa.func.coalesce(orders.c.ds, "never")
    defined = CreateMaterializedTable(
        "per_day",
        sa.select(day.label("ds"), sa.func.count().label("n")).group_by(day),
        schema=schema,
        items=[
            "ds STRING COMMENT '100% of a day'",
            "twice AS n * 2",
            "PRIMARY KEY (ds) NOT ENFORCED",
        ],
        comment="it's counted",
        partitioned_by=["ds"],
        options={"partition.fields.ds.date-formatter": "yyyy-MM-dd"},
        freshness="INTERVAL '2' HOUR",
        refresh_mode="FULL",
    )
    dialect: Any = engine.dialect
    with engine.connect() as connection:
        connection.execute(defined)
        found = MaterializedTable.reflect("per_day", sa.MetaData(), engine, schema=schema)
        assert found.definition.clauses().items() >= {
            ("schema", schema),
            ("comment", "it's counted"),
            ("freshness", "INTERVAL '2' HOUR"),
            ("refresh_mode", "FULL"),
        }
        assert found.definition.partitioned_by == ("ds",)
        assert found.definition.with_options == defined.with_options
        assert found.table.c.ds.comment == "100% of a day"
        assert [column.name for column in found.table.primary_key] == ["ds"]
        before = dialect.get_materialized_table_definition(connection, "per_day", schema)
        connection.execute(DropMaterializedTable("per_day", schema=schema))
        connection.execute(found.definition)
        assert dialect.get_materialized_table_definition(connection, "per_day", schema) == before
        connection.execute(RefreshMaterializedTable("per_day", schema=schema))
        query = sa.select(sa.func.sum(found.table.c.n), sa.func.sum(found.table.c.twice))
        assert connection.execute(query).one() == (4, 8)
        connection.execute(DropMaterializedTable("per_day", schema=schema))
    with pytest.raises(sa.exc.NoSuchTableError):
        MaterializedTable.reflect("orders", sa.MetaData(), engine, schema=schema)


def test_a_missing_table_cannot_be_reflected(engine: sa.Engine, schema: str) -> None:
    with pytest.raises(sa.exc.NoSuchTableError):
        sa.Table("nope", sa.MetaData(), schema=schema, autoload_with=engine)


def test_a_view_is_listed_with_its_definition(engine: sa.Engine, schema: str) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE VIEW {schema}.v AS SELECT 1 AS x")
    inspector = sa.inspect(engine)
    assert inspector.get_view_names(schema) == ["v"]
    assert "SELECT 1 AS x" in inspector.get_view_definition("v", schema)


def test_a_materialized_table_is_suspended_resumed_and_refreshed(
    engine: sa.Engine, schema: str, daily: str
) -> None:
    with engine.connect() as connection:
        connection.execute(SuspendMaterializedTable(daily, schema=schema))
        connection.execute(ResumeMaterializedTable(daily, schema=schema))
        connection.execute(
            SetMaterializedTableFreshness(daily, datetime.timedelta(minutes=30), schema=schema)
        )
        refresh = RefreshMaterializedTable(daily, schema=schema, partition={"ds": "2024-01-01"})
        connection.execute(refresh)
        total = connection.exec_driver_sql(f"SELECT sum(total) FROM {schema}.{daily}").scalar()
    assert total == Decimal("5.00")


def test_an_error_is_wrapped_with_its_state(engine: sa.Engine, schema: str) -> None:
    with engine.connect() as connection, pytest.raises(sa.exc.ProgrammingError) as raised:
        connection.execute(DropMaterializedTable("nope", schema=schema))
    original: Any = raised.value.orig
    assert (original.sqlstate, original.code) == ("42P01", "MT_NOT_FOUND")
    assert not raised.value.connection_invalidated


def test_a_lost_session_is_noticed_and_replaced(server: Any) -> None:
    engine = sa.create_engine(
        f"tidegate://ada@{server.host}:{server.port}/default", pool_pre_ping=True
    )
    with engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
    driver.close()
    with engine.connect() as connection:
        assert connection.execute(sa.select(sa.literal(1))).scalar() == 1
    engine.dispose()


def test_pandas_reads_and_writes(engine: sa.Engine, schema: str) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "50% 'y'"], "c": [1.5, None]})
    with engine.connect() as connection:
        frame.to_sql("copied", connection, schema=schema, index=False, if_exists="replace")
        back = pd.read_sql(f"SELECT * FROM {schema}.copied ORDER BY a", connection)
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)
