"""The traps of incremental maintenance, by name: none of them makes a table differ."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from tests.engine.oracle.__main__ import replay
from tests.engine.oracle.tally import Tally
from tests.engine.oracle.traps import TRAPS
from tests.support.fixtures.spark import IcebergLake, Lake
from tests.support.full_run import FULL

pytestmark = pytest.mark.spark

CHOSEN = tuple(TRAPS)[:: 1 if FULL else 17]
STORAGES = (Lake, *((IcebergLake,) if FULL else ()))
"""The formats of materialized tables; their sources are tables of Delta."""
NOT_SUPPORTED = "[NOT_SUPPORTED"
"""How queries with types that Iceberg lacks are counted."""


@pytest.fixture(scope="module", params=STORAGES)
def tallies(
    request: pytest.FixtureRequest, spark_root: SparkSession, ice: None
) -> Mapping[str, Tally]:
    """What happened in each trap; two of them are sprung at a time."""

    def sprung(name: str) -> Tally:
        tally = Tally()
        replay(spark_root, TRAPS[name], tally, request.param)
        return tally

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CHOSEN, pool.map(sprung, CHOSEN), strict=True))


@pytest.mark.timeout(0 if FULL else 900)
@pytest.mark.parametrize("name", CHOSEN)
def test_trap(request: pytest.FixtureRequest, name: str, tallies: Mapping[str, Tally]) -> None:
    tally = tallies[name]
    stream = TRAPS[name]
    assert tally.mismatches == []
    lacking = 0
    if request.node.callspec.params["tallies"] is IcebergLake:
        lacking = tally.invalid.pop(NOT_SUPPORTED, 0)
    assert tally.invalid == {}
    assert tally.comparisons == (len(stream.queries) - lacking) * (1 + len(stream.steps))
    assert lacking == len(stream.queries) or tally.strategies["INCREMENTAL"] > 0, tally.reasons
