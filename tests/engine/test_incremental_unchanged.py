"""What is remembered of a query answers only as long as nothing it depends on changed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tidegate_server.core.model.runs import Strategy

pytestmark = pytest.mark.spark


def test_nothing_is_to_be_done_only_while_nothing_changed(session: Session, schema: str) -> None:
    session.execute("CREATE TABLE t (k STRING, n INT) USING delta")
    session.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
    session.execute("CREATE FUNCTION plus(x INT) RETURNS INT RETURN x + 1")
    plain = Maintained(session, schema, "SELECT k, count(*) AS c FROM t GROUP BY k")
    called = Maintained(session, schema, "SELECT k, plus(n) AS p FROM t")
    for mt in (plain, called, plain, called):
        outcome = mt.refresh()
        assert outcome.plan.strategy is Strategy.NO_DATA
        assert (outcome.from_version, outcome.metrics.rows_written) == (outcome.to_version, 0)

    session.execute("CREATE OR REPLACE FUNCTION plus(x INT) RETURNS INT RETURN x + 2")
    assert called.refresh().plan.reason_code == "DEFINITION_CHANGED"
    assert called.differences() == []

    session.execute("OPTIMIZE t")
    assert plain.refresh().plan.strategy is Strategy.NO_DATA
    assert plain.refresh(force=True).plan.reason_code == "FORCED"
    other = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    assert plain.refresh(settings=other).plan.reason_code == "DEFINITION_CHANGED"
    assert plain.refresh().plan.reason_code == "DEFINITION_CHANGED"
    assert plain.refresh().plan.strategy is Strategy.NO_DATA

    session.execute("INSERT INTO t VALUES ('c', 3)")
    assert plain.refresh().plan.strategy is Strategy.INCREMENTAL
    assert plain.differences() == []
    mine = pa.table({"k": ["mine"], "c": pa.array([1], pa.int64())})
    write_deltalake(plain.created.location, mine, mode="append")
    assert plain.refresh().plan.reason_code == "FOREIGN_COMMIT"
    assert plain.differences() == []
