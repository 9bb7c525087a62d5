"""The dialect with SQLAlchemy 1.4, which Superset needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.environments import install, succeed
from tests.support.fixtures.server import Server

pytestmark = [pytest.mark.package, pytest.mark.spark, pytest.mark.thorough(4)]

PROGRAM = """
import datetime, json, sys
import sqlalchemy as sa
from tidegate_sqlalchemy import ARRAY, CreateMaterializedTable, DropMaterializedTable

engine = sa.create_engine(sys.argv[1], future=True)
table = sa.Table(
    "old", sa.MetaData(), sa.Column("id", sa.BigInteger, nullable=False, index=True),
    sa.Column("s", sa.String, comment="it's"), sa.Column("n", sa.Numeric(10, 2)),
    sa.Column("d", sa.Float(53)), sa.Column("a", ARRAY(sa.Integer)), sa.Column("t", sa.DateTime),
    comment="of 1.4", tidegate_using="delta",
)
query = sa.select(table.c.id, sa.func.count().label("c")).group_by(table.c.id)
with engine.connect() as connection:
    table.create(connection)
    row = {"id": 1, "s": "100% it's", "n": "2.50", "d": 0.5, "t": datetime.datetime(2024, 1, 1)}
    connection.execute(table.insert(), [row, {**row, "id": 2}])
    connection.execute(table.update().where(table.c.id == 2).values(s=None))
    rows = connection.execute(sa.select(table).order_by(table.c.id)).fetchall()
    found = connection.execute(
        sa.select(table.c.id).where(table.c.s.in_(["100% it's"])).limit(5)
    ).scalars().all()
    connection.execute(CreateMaterializedTable("m", query, freshness=datetime.timedelta(days=1)))
    inspector = sa.inspect(connection)
    answers = {
        "version": sa.__version__,
        "rows": [list(map(str, row)) for row in rows],
        "found": found,
        "tables": sorted(inspector.get_table_names()),
        "has": [inspector.has_table("old"), inspector.has_table("none")],
        "columns": [
            [column["name"], column["type"].compile(dialect=engine.dialect)]
            for column in inspector.get_columns("old")
        ],
        "comment": inspector.get_table_comment("old")["text"],
        "reflected": sorted(sa.Table("m", sa.MetaData(), autoload_with=connection).c.keys()),
    }
    connection.execute(DropMaterializedTable("m"))
    table.drop(connection)
engine.dispose()
print(json.dumps(answers))
"""


@pytest.mark.timeout(1800)
def test_the_dialect_works_with_sqlalchemy_1_4(wheel: Path, tmp_path: Path, server: Server) -> None:
    binaries = install(tmp_path / "environment", wheel, "SQLAlchemy==1.4.54")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA sqlalchemy_1_4")
    url = f"tidegate://ann@{server.host}:{server.port}/sqlalchemy_1_4"
    answers = json.loads(succeed(binaries / "python", "-c", PROGRAM, url).splitlines()[-1])
    assert answers["version"] == "1.4.54"
    values = ["2.50", "0.5", "None", "2024-01-01 00:00:00"]
    assert answers["rows"] == [["1", "100% it's", *values], ["2", "None", *values]]
    assert answers["found"] == [1]
    assert answers["tables"] == ["m", "old"]
    assert answers["has"] == [True, False]
    assert answers["columns"] == [
        ["id", "BIGINT"],
        ["s", "STRING"],
        ["n", "DECIMAL(10, 2)"],
        ["d", "DOUBLE"],
        ["a", "ARRAY<INT>"],
        ["t", "TIMESTAMP"],
    ]
    assert answers["comment"] == "of 1.4"
    assert answers["reflected"] == ["c", "id"]
