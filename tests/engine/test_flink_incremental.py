"""Queries in Flink's SQL are refreshed incrementally once they are translated."""

from __future__ import annotations

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.runs import Strategy
from tidegate_server.core.sql.flink.translate import translate_query

pytestmark = pytest.mark.spark

WINDOW = "window_start, window_end"
QUERIES = {
    "tumble": f"SELECT {WINDOW}, k, AVG(n) AS a, COUNT(*) AS c FROM TABLE(TUMBLE(TABLE e, "
    f"DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY {WINDOW}, k",
    "hop": f"SELECT {WINDOW}, SUM(n / 2) AS s FROM TABLE(HOP(TABLE e, DESCRIPTOR(ts), "
    f"INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)) GROUP BY {WINDOW}",
    "rows": "SELECT k, n / 2 AS h, FLOOR(ts TO DAY) AS d, DATE_FORMAT(ts, 'HH') AS hh, a[1] AS x, "
    "CAST(ts AS TIMESTAMP(0)) AS t FROM e WHERE n / 2 >= 0",
    "session": f"SELECT k, {WINDOW}, COUNT(*) AS c FROM TABLE(SESSION(TABLE e PARTITION BY k, "
    f"DESCRIPTOR(ts), INTERVAL '4' MINUTES)) GROUP BY k, {WINDOW}",
    "cumulate": "SELECT window_end, MAX(n) AS m FROM TABLE(CUMULATE(TABLE e, DESCRIPTOR(ts), "
    f"INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)) GROUP BY {WINDOW}",
    "group window": "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS w, AVG(n) AS a FROM e "
    "GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
    "sliding group window": "SELECT HOP_START(ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE) AS w, "
    "k, COUNT(*) AS c FROM e GROUP BY HOP(ts, INTERVAL '5' MINUTE, INTERVAL '10' MINUTE), k",
    "unnest": "SELECT k, x FROM e CROSS JOIN UNNEST(a) AS u(x)",
}
EACH = list(QUERIES) if FULL else list(QUERIES)[:4]
"""A quick run tries half of the queries."""


def test_translated_queries_are_refreshed_incrementally(session: Session, schema: str) -> None:
    session.execute(
        "CREATE TABLE e (k STRING, n INT, ts TIMESTAMP_NTZ, a ARRAY<STRING>) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    session.execute(
        "INSERT INTO e VALUES ('a', 1, TIMESTAMP_NTZ '2024-01-01 08:05:00', array('x')), "
        "('a', 4, TIMESTAMP_NTZ '2024-01-01 08:07:00', NULL), ('b', NULL, NULL, array()), "
        "('b', 7, TIMESTAMP_NTZ '1969-12-31 23:59:59.5', array('y', 'z')), "
        "('c', 9, TIMESTAMP_NTZ '2024-01-01 09:00:00', array('x'))"
    )
    tables = {
        name: Maintained(session, schema, translate_query(QUERIES[name]).text) for name in EACH
    }
    session.execute("DELETE FROM e WHERE n = 4")
    session.execute(
        "INSERT INTO e VALUES ('a', 3, TIMESTAMP_NTZ '2024-01-01 08:09:00', array('w')), "
        "('c', NULL, TIMESTAMP_NTZ '2024-01-01 09:03:00', NULL)"
    )
    for name, table in tables.items():
        plan = table.refresh().plan
        assert (name, table.differences()) == (name, [])
        assert (name, plan.strategy) == (name, Strategy.INCREMENTAL), plan
