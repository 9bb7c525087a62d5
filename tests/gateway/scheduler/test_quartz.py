"""Quartz expressions: every sign, against brute force, and against Quartz's own examples."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate_server.gateway.scheduler.dialects import why_not_quartz
from tidegate_server.gateway.scheduler.quartz import WEEKDAYS, parse_quartz

wall = datetime.fromisoformat


def fires(expression: str, after: str, count: int) -> list[str]:
    quartz, found = parse_quartz(expression), []
    moment: datetime | None = datetime.fromisoformat(after)
    while len(found) < count and moment is not None:
        moment = quartz.next_after(moment)
        if moment is not None:
            found.append(f"{moment:%Y-%m-%d %H:%M:%S %a}")
    return found


def days(expression: str, after: str, count: int) -> list[str]:
    return [fire[:10] + fire[19:] for fire in fires(expression, after, count)]


# ---- examples of Quartz's documentation --------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 12 * * ?", ["2024-03-01 12:00:00 Fri", "2024-03-02 12:00:00 Sat"]),
        ("0 15 10 ? * *", ["2024-03-01 10:15:00 Fri", "2024-03-02 10:15:00 Sat"]),
        ("0 15 10 * * ?", ["2024-03-01 10:15:00 Fri", "2024-03-02 10:15:00 Sat"]),
        ("0 15 10 * * ? *", ["2024-03-01 10:15:00 Fri", "2024-03-02 10:15:00 Sat"]),
        ("0 15 10 * * ? 2005", []),
        ("0 * 14 * * ?", ["2024-03-01 14:00:00 Fri", "2024-03-01 14:01:00 Fri"]),
        ("0 0/5 14 * * ?", ["2024-03-01 14:00:00 Fri", "2024-03-01 14:05:00 Fri"]),
        ("0 0-5 14 * * ?", ["2024-03-01 14:00:00 Fri", "2024-03-01 14:01:00 Fri"]),
        ("0 10,44 14 ? 3 WED", ["2024-03-06 14:10:00 Wed", "2024-03-06 14:44:00 Wed"]),
        ("0 15 10 ? * MON-FRI", ["2024-03-01 10:15:00 Fri", "2024-03-04 10:15:00 Mon"]),
        ("0 15 10 15 * ?", ["2024-03-15 10:15:00 Fri", "2024-04-15 10:15:00 Mon"]),
        ("0 15 10 L * ?", ["2024-03-31 10:15:00 Sun", "2024-04-30 10:15:00 Tue"]),
        ("0 15 10 L-2 * ?", ["2024-03-29 10:15:00 Fri", "2024-04-28 10:15:00 Sun"]),
        ("0 15 10 ? * 6L", ["2024-03-29 10:15:00 Fri", "2024-04-26 10:15:00 Fri"]),
        ("0 15 10 ? * 6L 2024-2026", ["2024-03-29 10:15:00 Fri", "2024-04-26 10:15:00 Fri"]),
        ("0 15 10 ? * 6#3", ["2024-03-15 10:15:00 Fri", "2024-04-19 10:15:00 Fri"]),
        ("0 0 12 1/5 * ?", ["2024-03-01 12:00:00 Fri", "2024-03-06 12:00:00 Wed"]),
        ("0 11 11 11 11 ?", ["2024-11-11 11:11:00 Mon", "2025-11-11 11:11:00 Tue"]),
    ],
)
def test_the_examples_of_quartz_fire_as_they_say(expression: str, expected: list[str]) -> None:
    assert fires(expression, "2024-03-01", 2) == expected


# ---- signs -------------------------------------------------------------------------------------


def test_weekdays_count_from_sunday() -> None:
    assert days("0 0 12 ? * 2-6 *", "2024-03-03", 6) == [
        "2024-03-04 Mon",
        "2024-03-05 Tue",
        "2024-03-06 Wed",
        "2024-03-07 Thu",
        "2024-03-08 Fri",
        "2024-03-11 Mon",
    ]
    assert days("0 0 0 ? * 1", "2024-03-03", 1) == ["2024-03-10 Sun"]
    assert days("0 0 0 ? * L", "2024-03-03", 1) == ["2024-03-09 Sat"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            "0 0 0 ? * FRI-MON",
            ["2024-03-02 Sat", "2024-03-03 Sun", "2024-03-04 Mon", "2024-03-08 Fri"],
        ),
        ("0 0 0 ? * 6-2", ["2024-03-02 Sat", "2024-03-03 Sun", "2024-03-04 Mon", "2024-03-08 Fri"]),
        (
            "0 0 0 ? * fri#3",
            ["2024-03-15 Fri", "2024-04-19 Fri", "2024-05-17 Fri", "2024-06-21 Fri"],
        ),
        (
            "0 0 0 ? * FRIL",
            ["2024-03-29 Fri", "2024-04-26 Fri", "2024-05-31 Fri", "2024-06-28 Fri"],
        ),
        ("0 0 0 ? * 1#5", ["2024-03-31 Sun", "2024-06-30 Sun", "2024-09-29 Sun", "2024-12-29 Sun"]),
        ("0 0 0 ? * 2/2", ["2024-03-04 Mon", "2024-03-06 Wed", "2024-03-08 Fri", "2024-03-11 Mon"]),
        ("0 0 0 L-3 * ?", ["2024-03-28 Thu", "2024-04-27 Sat", "2024-05-28 Tue", "2024-06-27 Thu"]),
        ("0 0 0 LW * ?", ["2024-03-29 Fri", "2024-04-30 Tue", "2024-05-31 Fri", "2024-06-28 Fri"]),
        ("0 0 0 15W * ?", ["2024-03-15 Fri", "2024-04-15 Mon", "2024-05-15 Wed", "2024-06-14 Fri"]),
        ("0 0 0 1W * ?", ["2024-04-01 Mon", "2024-05-01 Wed", "2024-06-03 Mon", "2024-07-01 Mon"]),
        ("0 0 0 31W * ?", ["2024-03-29 Fri", "2024-05-31 Fri", "2024-07-31 Wed", "2024-08-30 Fri"]),
        (
            "0 0 0 L-3W * ?",
            ["2024-03-28 Thu", "2024-04-26 Fri", "2024-05-28 Tue", "2024-06-27 Thu"],
        ),
        ("0 0 0 1,L * ?", ["2024-03-31 Sun", "2024-04-01 Mon", "2024-04-30 Tue", "2024-05-01 Wed"]),
        ("0 0 0 29 2 ?", ["2028-02-29 Tue", "2032-02-29 Sun", "2036-02-29 Fri", "2040-02-29 Wed"]),
        (
            "0 0 0 1 NOV-FEB ?",
            ["2024-11-01 Fri", "2024-12-01 Sun", "2025-01-01 Wed", "2025-02-01 Sat"],
        ),
        (
            "0 0 0 30-2 * ?",
            ["2024-03-02 Sat", "2024-03-30 Sat", "2024-03-31 Sun", "2024-04-01 Mon"],
        ),
        ("0 0 0 1 1 ? 2025", ["2025-01-01 Wed"]),
        (
            "0 0 0 1 1 ? 2025-2027,2099",
            ["2025-01-01 Wed", "2026-01-01 Thu", "2027-01-01 Fri", "2099-01-01 Thu"],
        ),
        (
            "0 0 0 1 1 ? 2024/3",
            ["2027-01-01 Fri", "2030-01-01 Tue", "2033-01-01 Sat", "2036-01-01 Tue"],
        ),
    ],
)
def test_the_signs_of_days_and_years(expression: str, expected: list[str]) -> None:
    assert days(expression, "2024-03-01", len(expected)) == expected
    if len(expected) < 4:
        assert days(expression, "2024-03-01", 10) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            "0 0 22-2 * * ?",
            ["22:00:00", "23:00:00", "00:00:00", "01:00:00", "02:00:00", "22:00:00"],
        ),
        (
            "0 5-20/3 21 * * ?",
            ["21:05:00", "21:08:00", "21:11:00", "21:14:00", "21:17:00", "21:20:00"],
        ),
        ("0/25 59 20 * * ?", ["20:59:00", "20:59:25", "20:59:50", "20:59:00"]),
        ("*/25 59 20 * * ?", ["20:59:00", "20:59:25", "20:59:50", "20:59:00"]),
        ("/25 59 20 * * ?", ["20:59:00", "20:59:25", "20:59:50", "20:59:00"]),
        ("0 0 22-3/2 * * ?", ["22:00:00", "00:00:00", "02:00:00", "22:00:00"]),
        ("5,0,0-1 0 0 * * ?", ["00:00:00", "00:00:01", "00:00:05", "00:00:00"]),
    ],
)
def test_the_signs_of_times(expression: str, expected: list[str]) -> None:
    found = [fire[11:19] for fire in fires(expression, "2024-03-01 20:00:00", len(expected))]
    assert found == expected


def test_fractions_of_a_second_lie_before_the_next_one() -> None:
    quartz = parse_quartz("* * * * * ?")
    assert quartz.next_after(wall("2024-01-01T00:00:00.000001")) == wall("2024-01-01T00:00:01")
    assert quartz.next_after(wall("2023-12-31T23:59:59")) == wall("2024-01-01T00:00:00")


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "this one has 0"),
        ("0 12", "this one has 2"),
        ("0 0 0 * * ? * *", "this one has 8"),
        ("0 0 0 * * *", "neither is"),
        ("0 0 0 ? * ?", "both are"),
        ("? 0 0 * * ?", "not in the second"),
        ("0 0 0 * ? ?", "not in the month"),
        ("0 61 * * * ?", "the minute is 0-59, not 61"),
        ("0 0 24 * * ?", "the hour is 0-23, not 24"),
        ("0 0 0 0 * ?", "the day of month is 1-31, not 0"),
        ("0 0 0 ? * 0", "the day of week is 1-7 or SUN-SAT, not 0"),
        ("0 0 0 ? * 8", "the day of week is 1-7 or SUN-SAT, not 8"),
        ("0 0 0 ? FOO *", "the month is 1-12 or JAN-DEC, not FOO"),
        ("0 0 0 ? * 6#6", "is 1 to 5, not 6"),
        ("0 0 0 ? * 2#1,3#1", "write one of 6L, FRIL, 6#3 or FRI#3"),
        ("0 0 0 ? * 2L,3L", "write one of 6L, FRIL, 6#3 or FRI#3"),
        ("0 0 0 L-31 * ?", "before the first day of every month"),
        ("0 0 0 1-5W * ?", "write L, L-3, LW, L-3W or 15W"),
        ("0 0 0 W * ?", "write L, L-3, LW, L-3W or 15W"),
        ("0 0 0 32W * ?", "the day of month is 1-31, not 32"),
        ("0 0 0 1 1 ? 2030-2025", "ends before it begins"),
        ("0 0 0 1 1 ? 1969", "the year is 1970-2099, not 1969"),
        ("0 0/0 * * * ?", "a step of the minute is 1 to 59, not 0"),
        ("0 0/60 * * * ?", "a step of the minute is 1 to 59, not 60"),
        ("0 0 5L * * ?", "5L is not a value of the hour"),
        ("0 0 *-5 * * ?", "*-5 is not a range of the hour"),
        ("0 0 1,,2 * * ?", "nothing is not a value of the hour"),
        ("0 0 ١ * * ?", "is not a value of the hour"),
    ],
)
def test_what_is_not_quartz_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        parse_quartz(expression)
    assert reason in str(caught.value)


# ---- other systems -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "translations"),
    [
        ("0 12 * * 1-5", ["0 0 12 ? * MON-FRI"]),
        ("*/15 * * * *", ["0 */15 * * * ?"]),
        ("30 2 1 * *", ["0 30 2 1 * ?"]),
        ("0 0 * * 0", ["0 0 0 ? * SUN"]),
        ("0 0 * * 7", ["0 0 0 ? * SUN"]),
        ("0 0 * * 5-7", ["0 0 0 ? * FRI-SUN"]),
        ("0 0 * * sat,sun", ["0 0 0 ? * SAT,SUN"]),
        ("0 0 * * */2", ["0 0 0 ? * SUN,TUE,THU,SAT"]),
        ("0 0 * jan 1-5/2", ["0 0 0 ? JAN MON,WED,FRI"]),
        ("0 0 1 * 1", ["0 0 0 1 * ?", "0 0 0 ? * MON"]),
        ("0 12 * * 1 2026", ["0 0 12 ? * MON 2026"]),
        ("0 12 ? * MON-FRI", ["0 0 12 ? * MON-FRI"]),
        ("cron(0 12 ? * MON-FRI *)", ["0 0 12 ? * MON-FRI *"]),
        ("0 0 12 * * *", ["0 0 12 * * ?"]),
        ("0 0 12 * * * *", ["0 0 12 * * ? *"]),
        ("0 0 12 * * MON-FRI", ["0 0 12 ? * MON-FRI"]),
        ("0 0 12 * * 6#3", ["0 0 12 ? * 6#3"]),
        ("0 0 12 * * 1-5", ["0 0 12 ? * MON-FRI", "0 0 12 ? * 1-5"]),
        ("0 0 12 * * 0", ["0 0 12 ? * SUN"]),
        ("0 0 12 1 * 1", ["0 0 12 1 * ?", "0 0 12 ? * MON"]),
        ("@hourly", ["0 0 * * * ?"]),
        ("@daily", ["0 0 0 * * ?"]),
        ("@Midnight", ["0 0 0 * * ?"]),
        ("@weekly", ["0 0 0 ? * SUN"]),
        ("@monthly", ["0 0 0 1 * ?"]),
        ("@yearly", ["0 0 0 1 1 ?"]),
    ],
)
def test_what_other_systems_read_is_translated(expression: str, translations: list[str]) -> None:
    with pytest.raises(ValueError, match="."):
        parse_quartz(expression)
    reason = why_not_quartz(expression)
    for translation in translations:
        parse_quartz(translation)
        assert translation in reason


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("@reboot", "write its fields"),
        ("@every 5 MINUTE", "write 5 MINUTE as FRESHNESS"),
        ("0 61 * * *", "this one has 5"),
        ("0 61 0 * * ?", "the minute is 0-59, not 61"),
        ("0 0 12 * * 9", "neither is"),
        ("nonsense", "this one has 1"),
    ],
)
def test_what_has_no_translation_is_explained(expression: str, words: str) -> None:
    assert words in why_not_quartz(expression)


# ---- brute force -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A field as text, and whether it matches a value; found by counting, not by the parser."""

    text: str
    matches: Callable[[int], bool]


def fields(low: int, high: int, longest: int) -> st.SearchStrategy[Drawn]:
    value = st.integers(low, high)
    step = st.integers(1, longest)
    length = high - low + 1

    def within(a: int, b: int, by: int) -> Callable[[int], bool]:
        return lambda n: (n - a) % length <= (b - a) % length and (n - a) % length % by == 0

    one = value.map(lambda a: Drawn(str(a), lambda n: n == a))
    spans = st.tuples(value, value).map(lambda t: Drawn(f"{t[0]}-{t[1]}", within(*t, 1)))
    steps = st.tuples(value, step).map(
        lambda t: Drawn(f"{t[0]}/{t[1]}", lambda n: n >= t[0] and (n - t[0]) % t[1] == 0)
    )
    stars = step.map(lambda s: Drawn(f"*/{s}", lambda n: (n - low) % s == 0))
    both = st.tuples(value, value, step).map(lambda t: Drawn(f"{t[0]}-{t[1]}/{t[2]}", within(*t)))
    lists = st.lists(st.one_of(one, spans, steps, stars, both), min_size=1, max_size=3).map(
        lambda items: Drawn(
            ",".join(item.text for item in items), lambda n: any(i.matches(n) for i in items)
        )
    )
    return st.just(Drawn("*", lambda n: True)) | lists


@settings(deadline=None, max_examples=20)
@given(
    second=fields(0, 59, 59),
    minute=fields(0, 59, 59),
    hour=fields(0, 23, 23),
    start=st.integers(0, 86_399),
)
@pytest.mark.slow
def test_times_are_those_that_brute_force_finds(
    second: Drawn, minute: Drawn, hour: Drawn, start: int
) -> None:
    midnight = wall("2024-02-28")
    moments = (midnight + timedelta(seconds=start + n) for n in range(1, 86_401))
    expected = [
        moment
        for moment in moments
        if hour.matches(moment.hour)
        and minute.matches(moment.minute)
        and second.matches(moment.second)
    ][:50]
    quartz = parse_quartz(f"{second.text} {minute.text} {hour.text} * * ?")
    found, moment = [], midnight + timedelta(seconds=start)
    for _ in expected:
        following = quartz.next_after(moment)
        assert following is not None
        found.append(following)
        moment = following
    assert found == expected


OnDay = Callable[[date], bool]


def weekday(day: date) -> int:
    return day.isoweekday() % 7 + 1


def nearest(wanted: Callable[[date], bool]) -> OnDay:
    """Say whether a day is the working day closest to the wanted day of its month."""

    def matches(day: date) -> bool:
        last = monthrange(day.year, day.month)[1]
        for target in (day.replace(day=n) for n in range(1, last + 1)):
            if wanted(target):
                working = [d for n in range(1, last + 1) if (d := day.replace(day=n)).weekday() < 5]
                closest = min(working, key=lambda d: abs((d - target).days))
                return day == closest
        return False

    return matches


def from_end(day: date) -> int:
    return monthrange(day.year, day.month)[1] - day.day


def month_days() -> st.SearchStrategy[tuple[str, OnDay]]:
    back = st.integers(0, 30)
    return st.one_of(
        fields(1, 31, 31).map(lambda f: (f"{f.text} {{}} ?", lambda d: f.matches(d.day))),
        back.map(lambda n: (f"L-{n} {{}} ?", lambda d: from_end(d) == n)),
        st.just(("L {} ?", lambda d: from_end(d) == 0)),
        st.just(("LW {} ?", nearest(lambda d: from_end(d) == 0))),
        back.map(lambda n: (f"L-{n}W {{}} ?", nearest(lambda d: from_end(d) == n))),
        st.integers(1, 31).map(lambda n: (f"{n}W {{}} ?", nearest(lambda d: d.day == n))),
    )


def week_days() -> st.SearchStrategy[tuple[str, OnDay]]:
    day, week = st.integers(1, 7), st.integers(1, 5)

    def weekday_name(n: int) -> str:
        return WEEKDAYS[n - 1] if n % 2 else str(n)

    return st.one_of(
        fields(1, 7, 7).map(lambda f: (f"? {{}} {f.text}", lambda d: f.matches(weekday(d)))),
        day.map(
            lambda n: (f"? {{}} {weekday_name(n)}L", lambda d: weekday(d) == n and from_end(d) < 7)
        ),
        st.tuples(day, week).map(
            lambda t: (
                f"? {{}} {weekday_name(t[0])}#{t[1]}",
                lambda d: weekday(d) == t[0] and (d.day - 1) // 7 + 1 == t[1],
            )
        ),
    )


@settings(deadline=None, max_examples=50)
@given(
    drawn=st.one_of(month_days(), week_days()),
    month=fields(1, 12, 12),
    first=st.integers(1995, 2060),
)
def test_days_are_those_that_brute_force_finds(
    drawn: tuple[str, OnDay], month: Drawn, first: int
) -> None:
    text, on_day = drawn
    begin, end = date(first, 1, 1), date(first + 2, 1, 1)
    every = (begin + timedelta(days=n) for n in range((end - begin).days))
    expected = [day for day in every if month.matches(day.month) and on_day(day)]
    quartz = parse_quartz(f"0 30 6 {text.format(month.text)} {first}-{first + 1}")
    found: list[date] = []
    moment = quartz.next_after(wall(f"{first - 1}-12-31"))
    while moment is not None:
        assert (moment.hour, moment.minute, moment.second) == (6, 30, 0)
        found.append(moment.date())
        moment = quartz.next_after(moment)
    assert found == expected
