"""The loader writes each day once, corrects the day before, and goes on after an interruption."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tidegate_server.gateway.demo.gateway import Rows
from tidegate_server.gateway.demo.loader import Loader, steps
from tidegate_server.gateway.demo.nyc import Year, landed_after_midnight, read_year


class FakeGateway:
    """Keeps the scripts it is given; knows the newest day and whether there is weather."""

    def __init__(self, *, newest: date | None = None, weather: int = 0) -> None:
        self.newest = newest
        self.weather = weather
        self.scripts: list[tuple[str, dict[str, str]]] = []

    def run(self, sql: str) -> Rows:
        return [(self.newest,)] if "MAX(flight_day)" in sql else [(self.weather,)]

    def run_script(self, name: str, **facts: str) -> None:
        self.scripts.append((name, facts))

    def names(self) -> list[str]:
        return [name for name, _ in self.scripts]


@pytest.fixture(scope="module")
def year() -> Year:
    return read_year()


def test_layers_are_created_from_the_bottom_up(year: Year, tmp_path: Path) -> None:
    gateway = FakeGateway()
    Loader(gateway, year, tmp_path).prepare()
    assert gateway.names() == ["ods", "dimensions", "dwd_flights", "dws_delays"]
    assert pq.read_table(tmp_path / "planes.parquet").num_rows == 3_322


def test_dimensions_that_are_there_are_not_written_again(year: Year, tmp_path: Path) -> None:
    gateway = FakeGateway(weather=26_115)
    Loader(gateway, year, tmp_path).prepare()
    assert "dimensions" not in gateway.names()


def test_an_empty_table_gets_the_history_and_then_single_days(year: Year, tmp_path: Path) -> None:
    loader = Loader(FakeGateway(), year, tmp_path)
    loaded = [step() for step in steps(loader, history=31, days=2)]
    assert [(each.first.isoformat(), each.last.isoformat()) for each in loaded] == [
        ("2013-01-01", "2013-01-31"),
        ("2013-02-01", "2013-02-01"),
        ("2013-02-02", "2013-02-02"),
    ]


def test_an_interrupted_load_goes_on_with_the_next_day(year: Year, tmp_path: Path) -> None:
    loader = Loader(FakeGateway(newest=date(2013, 2, 3)), year, tmp_path)
    [step] = steps(loader, history=31, days=1)
    assert step().first == date(2013, 2, 4)


def test_the_day_before_is_corrected_before_a_day_arrives(year: Year, tmp_path: Path) -> None:
    gateway = FakeGateway()
    loaded = Loader(gateway, year, tmp_path).day(date(2013, 2, 1))
    assert gateway.names() == ["corrections", "arrival"]
    assert gateway.scripts[0][1]["day"] == "2013-01-31"
    before = year.between(date(2013, 1, 31), date(2013, 1, 31))
    assert loaded.corrected == landed_after_midnight(before).num_rows


def test_a_complete_year_leaves_nothing_to_load(year: Year, tmp_path: Path) -> None:
    loader = Loader(FakeGateway(newest=date(2013, 12, 31)), year, tmp_path)
    assert steps(loader, history=31, days=None) == []
