"""Each construct of docs/constructs.md is refreshed as the page says, and equals its query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engine.conftest import Session
from tests.engine.maintained import Maintained
from tests.support.full_run import FULL
from tidegate_server.core.model.runs import Strategy

PAGE = Path(__file__).parents[2] / "docs" / "constructs.md"
ROW = re.compile(r"\| (?P<name>.+?) \| `(?P<query>.+)` \| (?P<refresh>[^|]+) \| [^|]*\|")
EACH = 1 if FULL else 12
"""A quick run tries every twelfth construct."""

SOURCES = """
CREATE TABLE f (id INT, k STRING, n INT, p DECIMAL(10,2), d DOUBLE, ts TIMESTAMP,
tags ARRAY<STRING>, s STRUCT<a: INT, b: STRING>) USING delta
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
CREATE TABLE x (k STRING, m INT NOT NULL, name STRING) USING delta
TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
CREATE TABLE plain (k STRING, n INT) USING delta;
CREATE TABLE parted (k STRING, n INT, day INT) USING delta PARTITIONED BY (day);
CREATE TABLE still (n INT) USING delta;
INSERT INTO f SELECT id, concat('k', id % 7), id % 11, id / 4, id / 8, timestamp_seconds(id * 40),
array(concat('t', id % 3), 'u'), named_struct('a', id % 5, 'b', concat('b', id % 2))
FROM range(60);
INSERT INTO x SELECT concat('k', id % 6), id, concat('name', id) FROM range(12);
INSERT INTO plain SELECT concat('k', id % 4), id FROM range(12);
INSERT INTO parted SELECT concat('k', id % 4), id, id % 6 FROM range(60);
INSERT INTO still VALUES (2), (5)
"""

CHANGES = """
UPDATE f SET n = n + 1 WHERE id = 3;
DELETE FROM f WHERE id = 5;
INSERT INTO f VALUES (99, 'k2', 4, 1.5, 0.25, TIMESTAMP '1970-01-01 00:01:00', array('t1'),
named_struct('a', 1, 'b', 'b1'));
UPDATE x SET m = m + 1 WHERE m = 8;
INSERT INTO plain VALUES ('k1', 5);
DELETE FROM parted WHERE day = 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Construct:
    """A row of the page."""

    name: str
    query: str
    refresh: str
    """``incremental``, or ``full`` with the code of the reason."""


def constructs() -> list[Construct]:
    """Return the rows of the page."""
    matches = map(ROW.fullmatch, PAGE.read_text("utf-8").splitlines())
    return [Construct(**match.groupdict()) for match in matches if match]


def test_there_are_many_constructs_and_most_are_incremental() -> None:
    found = constructs()
    incremental = [each for each in found if each.refresh == "incremental"]
    assert len(found) >= 55
    assert f"{len(incremental)} of {len(found)} constructs" in PAGE.read_text("utf-8")


@pytest.mark.spark
def test_constructs_are_refreshed_as_the_page_says(session: Session, schema: str) -> None:
    for statement in SOURCES.split(";"):
        session.execute(statement)
    tables = [(each, Maintained(session, schema, each.query)) for each in constructs()[::EACH]]
    for statement in CHANGES.split(";"):
        session.execute(statement)
    found, differing = {}, []
    for construct, table in tables:
        plan = table.refresh().plan
        incremental = plan.strategy is Strategy.INCREMENTAL
        found[construct.name] = "incremental" if incremental else f"full (`{plan.reason_code}`)"
        if "rand()" not in construct.query and table.differences():
            differing.append(construct.name)
    assert differing == []
    assert found == {construct.name: construct.refresh for construct, _ in tables}
