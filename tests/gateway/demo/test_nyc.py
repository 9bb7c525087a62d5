"""What a day knows of its flights, and what the next day adds."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate_server.gateway.demo.nyc import (
    Year,
    known_in_the_evening,
    landed_after_midnight,
    read_year,
)

STORM = date(2013, 2, 8)


@pytest.fixture(scope="module")
def year() -> Year:
    return read_year()


def test_the_whole_year_is_read(year: Year) -> None:
    assert year.flights.num_rows == 336_776
    assert len(year.days()) == 365
    assert {name: table.num_rows for name, table in year.dimensions.items()} == {
        "airlines": 16,
        "airports": 1_458,
        "planes": 3_322,
        "weather": 26_115,
    }


def test_every_flight_has_a_message_id_of_its_own(year: Year) -> None:
    assert pc.count_distinct(year.flights["message_id"]).as_py() == year.flights.num_rows


def test_missing_values_are_null(year: Year) -> None:
    assert year.flights["dep_time"].null_count == 8_255
    assert year.flights["tailnum"].null_count == 2_512


def test_flights_in_the_air_at_midnight_have_no_landing_in_the_evening(year: Year) -> None:
    day = year.between(date(2013, 1, 31), date(2013, 1, 31))
    in_the_air = set(landed_after_midnight(day)["message_id"].to_pylist())
    evening = known_in_the_evening(day)
    open_ones = evening.filter(
        pc.and_(pc.is_valid(evening["dep_time"]), pc.is_null(evening["arr_time"]))
    )
    known = day.filter(pc.and_(pc.is_valid(day["dep_time"]), pc.is_null(day["arr_time"])))
    assert in_the_air
    assert set(open_ones["message_id"].to_pylist()) - set(known["message_id"].to_pylist()) == (
        in_the_air
    )


def test_only_cancelled_flights_are_reported_twice(year: Year) -> None:
    evening = known_in_the_evening(year.between(STORM, STORM))
    repeated = evening.filter(pc.match_like(evening["message_id"], "%/repeated"))
    assert repeated.num_rows == 3
    assert repeated["dep_time"].null_count == 3


def test_corrections_and_dropping_repeated_reports_give_the_final_truth(year: Year) -> None:
    day = year.between(date(2013, 3, 8), date(2013, 3, 8))
    assert _apply_corrections(day) == {row["message_id"]: row for row in day.to_pylist()}


def _apply_corrections(day: pa.Table) -> dict[str, dict[str, object]]:
    """Do to the evening's rows what the corrections' SQL does to the table."""
    rows = {row["message_id"]: row for row in known_in_the_evening(day).to_pylist()}
    for landed in landed_after_midnight(day).to_pylist():
        for name in ("arr_time", "arr_delay", "air_time"):
            rows[landed["message_id"]][name] = landed[name]
    return {key: row for key, row in rows.items() if not key.endswith("/repeated")}
