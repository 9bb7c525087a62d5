"""Uses Superset as SQL Lab and its charts do, on a server; prints what came as JSON.

Runs in an environment that has Superset and the wheel: ``superset_program.py FOLDER URI``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

CONFIG = """
SECRET_KEY = "only for this test"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
TALISMAN_ENABLED = False
FILTER_STATE_CACHE_CONFIG = EXPLORE_FORM_DATA_CACHE_CONFIG = {{"CACHE_TYPE": "SimpleCache"}}
"""
SOURCE = "SELECT id, CAST(id AS STRING) AS ds, 'it''s' AS s FROM range(3)"
CREATE = f"""CREATE MATERIALIZED TABLE mt PARTITIONED BY (ds)
FRESHNESS = INTERVAL '1' DAY AS {SOURCE}"""
REFRESH = "ALTER MATERIALIZED TABLE mt REFRESH"


JUDGED = (
    "SELECT 'it''s' FROM a -- b",
    "FROM a SELECT 1",
    "SHOW MATERIALIZED TABLES",
    "DESCRIBE EXTENDED a",
    "EXPLAIN ALTER MATERIALIZED TABLE a REFRESH",
    "VERIFY MATERIALIZED TABLE a",
    "SET a = b",
    "ALTER MATERIALIZED TABLE m REFRESH",
    "ALTER MATERIALIZED TABLE m AS SELECT * FROM a",
    "CREATE MATERIALIZED TABLE m FRESHNESS = INTERVAL '1' DAY AS SELECT * FROM a",
    "CREATE OR ALTER MATERIALIZED TABLE m IMMUTABLE WHERE (d < 'x') AS SELECT * FROM a",
    "INSERT INTO m SELECT * FROM a",
    "GRANT SELECT ON m TO USER x",
    "BEGIN DROP TABLE m; END",
)


def main() -> None:
    """Carry out every step in one application context."""
    folder, uri = sys.argv[1:]
    config = Path(folder, "superset_config.py")
    config.write_text(CONFIG.format(folder=folder), "utf-8")
    os.environ["SUPERSET_CONFIG_PATH"] = str(config)
    from superset.app import create_app

    app = create_app()
    with app.app_context():
        from flask_appbuilder import Model
        from superset.extensions import db

        Model.metadata.create_all(db.engine)
        answers = _carry_out(app, uri)
    sys.stdout.write("\n" + json.dumps(answers, default=str) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of Superset's own would keep the process


def _carry_out(app: Any, uri: str) -> dict[str, Any]:
    from superset.extensions import db
    from superset.models.core import Database
    from superset.sql.parse import Table

    database = Database(database_name="tidegate", sqlalchemy_uri=uri, allow_dml=True)
    db.session.add(database)
    db.session.commit()
    spec, schema = database.db_engine_spec, uri.rpartition("/")[2]
    table = Table("mt", schema)
    return {
        "spec": spec.__name__,
        "created": _run(database, f"{CREATE}; {REFRESH}; SHOW MATERIALIZED TABLES -- all of them"),
        "texts": _run(database, "SELECT 'it''s' AS a, r'C:\\' AS b, ':x' AS c -- done", limit=5),
        "limited": _run(database, "SELECT id FROM range(100) ORDER BY id DESC", limit=3),
        "nested": _run(database, "SELECT array(1) AS a, named_struct('x', 1) AS s", limit=3),
        "failed": _run(database, "SELECT * FROM nope"),
        "unparsed": _run(database, "SELECT FROM WHERE"),
        "tables": sorted(
            str(name) for name, *_ in database.get_all_table_names_in_schema(None, schema)
        ),
        "columns": [str(column["column_name"]) for column in database.get_columns(table)],
        "latest": spec.latest_partition(database, table),
        "metadata": spec.get_extra_table_metadata(database, table),
        "star": database.select_star(
            table, limit=2, latest_partition=True, cols=database.get_columns(table)
        ),
        "grains": _grains(database),
        "judged": _judge(),
        "secured": _secure(),
        "canceled": _cancel(app, database),
    }


def _query(database: Any, sql: str, limit: int | None) -> Any:
    from superset.extensions import db
    from superset.models.sql_lab import Query

    name = f"q{time.monotonic_ns() % 10**9}"
    query = Query(client_id=name, database=database, sql=sql, limit=limit, select_as_cta=False)
    db.session.add(query)
    db.session.commit()
    return query


def _run(database: Any, sql: str, limit: int | None = None) -> Any:
    from superset.sql_lab import execute_sql_statements

    query = _query(database, sql, limit)
    try:
        payload = execute_sql_statements(query.id, sql, True, False, 0.0, False, None)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    if "columns" not in payload:
        return {"error": payload["status"], "message": payload["error"]}
    columns = [(column["column_name"], column["type"]) for column in payload["columns"]]
    return {"columns": columns, "data": payload["data"], "sql": query.executed_sql}


def _judge() -> dict[str, Any]:
    """Return whether a statement changes something, what it reads, and how it goes out."""
    from superset.sql.parse import SQLScript

    found = {}
    for text in JUDGED:
        (statement,) = SQLScript(text, "tidegate").statements
        tables = sorted(str(table) for table in statement.tables)
        found[text] = [statement.is_mutating(), tables, statement.format().rstrip("\n")]
    return found


def _secure() -> str:
    """Return a statement with a predicate of row level security."""
    from superset.sql.parse import RLSMethod, SQLScript, Table

    (statement,) = SQLScript("SELECT 'it''s' AS s FROM a", "tidegate").statements
    statement.set_limit_value(7)
    rules = {Table("a"): [statement.parse_predicate("b = 'x''y'")]}
    statement.apply_rls(None, None, rules, RLSMethod.AS_SUBQUERY)
    return " ".join(statement.format().split())


def _grains(database: Any) -> dict[str, Any]:
    from sqlalchemy import DateTime, column, literal_column, select

    spec = database.db_engine_spec
    moment = "CAST(TIMESTAMP '2024-05-16 13:47:38' AS {})"
    found: dict[str, Any] = {}
    for grain in filter(None, spec.get_time_grain_expressions()):
        expressions = [
            spec.get_timestamp_expr(column("t", DateTime), None, grain).label("t"),
        ]
        values = []
        for kind in ("TIMESTAMP", "DATE", "STRING"):
            rows = select(literal_column(moment.format(kind)).label("t")).subquery()
            sql = database.compile_sqla_query(select(*expressions).select_from(rows))
            values.append(database.get_df(sql).iloc[0, 0])
        found[grain] = [str(value) for value in values]
    return found


def _cancel(app: Any, database: Any) -> dict[str, Any]:
    from superset import sql_lab
    from superset.common.db_query_status import QueryStatus
    from superset.extensions import db

    sql = "SELECT count(*) FROM range(100000000000) WHERE md5(id) = ''"
    query, failure = _query(database, sql, None), []

    def work(number: int) -> None:
        with app.app_context():
            try:
                sql_lab.execute_sql_statements(number, sql, True, False, 0.0, False, None)
            except Exception as error:
                failure.append(str(error))

    thread = threading.Thread(target=work, args=(query.id,), daemon=True)
    thread.start()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        db.session.refresh(query)
        if query.extra.get("cancel_query"):
            break
        time.sleep(0.2)
    db.session.commit()
    canceled = sql_lab.cancel_query(query)
    thread.join(120)
    db.session.refresh(query)
    return {
        "canceled": canceled,
        "ended": not thread.is_alive(),
        "failure": failure,
        "status": str(query.status),
        "timed_out": query.status == QueryStatus.TIMED_OUT,
    }


if __name__ == "__main__":
    main()
