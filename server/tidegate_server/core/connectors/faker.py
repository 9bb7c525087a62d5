"""Flink Faker's expressions, such as ``#{number.numberBetween '1','10'}``, as SQL of Spark.

https://github.com/knaufk/flink-faker
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.model.names import quote_literal

SAMPLES = 250
"""How many values of a provider a table draws from."""

_CALL = re.compile(r"#\{\s*(?P<name>[A-Za-z_][\w.]*)(?P<arguments>(?:[^'}]|'(?:[^']|'')*')*)\}")
_ARGUMENT = re.compile(r"'((?:[^']|'')*)'")
_SECONDS = {"SECONDS": 1, "MINUTES": 60, "HOURS": 3600, "DAYS": 86_400}
_TIME = "yyyy-MM-dd HH:mm:ss"


@dataclass(frozen=True, slots=True)
class _Provider:
    """How a provider's value is written in SQL, from its arguments."""

    sql: Callable[[Sequence[str]], str]
    arguments: tuple[int, int] = (0, 0)
    """The least and the greatest number of arguments."""


def expression_sql(text: str) -> str:
    """Return an expression of SQL whose value for each row is random.

    Calls in a text with other letters are texts; a call alone has a type of its own.

    :raises OptionError: for an unknown provider, or invalid arguments.
    """
    parts: list[str] = []
    end = 0
    for call in _CALL.finditer(text):
        if call.start() > end:
            parts.append(quote_literal(text[end : call.start()]))
        parts.append(_call_sql(call["name"], call["arguments"]))
        end = call.end()
    if end < len(text):
        parts.append(quote_literal(text[end:]))
    if "#{" in "".join(part for part in parts if part.startswith("'")):
        raise OptionError(f"its expression {text} has a call that cannot be read")
    if len(parts) == 1:
        return parts[0]
    return f"concat({', '.join(parts)})" if parts else "''"


def _call_sql(name: str, written: str) -> str:
    arguments = [found.replace("''", "'") for found in _ARGUMENT.findall(written)]
    if _ARGUMENT.sub("", written).strip(" ,"):
        raise OptionError(f"the arguments of {name} must be in quotes: {written.strip()}")
    provider = _PROVIDERS.get(_fold(name))
    if provider is None:
        near = difflib.get_close_matches(_fold(name), _PROVIDERS, n=1, cutoff=0.5)
        meant = f"; did you mean {_spelling(near[0])}?" if near else ""
        raise OptionError(f"there is no provider {name}{meant}")
    least, most = provider.arguments
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise OptionError(f"{name} takes {wanted} arguments, not {len(arguments)}")
    try:
        return provider.sql(arguments)
    except ValueError as error:
        raise OptionError(f"{name} has an invalid argument: {error}") from error


def _fold(name: str) -> str:
    """Return a provider's name as compared: ``Name.first_name`` is ``name.firstName``."""
    return name.replace("_", "").lower()


def _spelling(folded: str) -> str:
    return next(name for name in (*_SAMPLED, *_COMPUTED) if _fold(name) == folded)


# ---- values that Spark computes ------------------------------------------------------------------


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None


def _between(least: int, above: int, kind: str = "BIGINT") -> str:
    """Return a random whole number from ``least`` to below ``above``, or ``least``."""
    width = max(above - least, 1)
    return f"CAST({least} + floor(rand() * {width}) AS {kind})"


def _number_between(arguments: Sequence[str]) -> str:
    least, above = map(_whole, arguments)
    if above < least:
        raise ValueError(f"{above} is less than {least}")
    return _between(least, above)


def _random_double(arguments: Sequence[str]) -> str:
    decimals, least, most = map(_whole, arguments)
    return f"round({least} + rand() * {most - least}, {decimals})"


def _digits(arguments: Sequence[str]) -> str:
    size = _whole(arguments[0]) if arguments else 1
    return f"lpad(CAST({_between(0, 10**size)} AS STRING), {size}, '0')"


def _seconds(arguments: Sequence[str]) -> int:
    amount, unit = arguments[0], arguments[1].upper()
    scale = _SECONDS.get(unit if unit.endswith("S") else f"{unit}S")
    if scale is None:
        raise ValueError(f"'{arguments[1]}' is not one of {', '.join(_SECONDS)}")
    return _whole(amount) * scale


def _shifted(sign: str) -> Callable[[Sequence[str]], str]:
    def sql(arguments: Sequence[str]) -> str:
        micros = _seconds(arguments) * 1_000_000
        shift = f"timestamp_micros(unix_micros(current_timestamp()) {sign} {_between(1, micros)})"
        return (
            shift if len(arguments) < 3 else f"date_format({shift}, {quote_literal(arguments[2])})"
        )

    return sql


def _date_between(arguments: Sequence[str]) -> str:
    first, last = (f"unix_micros(TIMESTAMP {quote_literal(each)})" for each in arguments)
    return f"timestamp_micros(CAST({first} + floor(rand() * ({last} - {first})) AS BIGINT))"


def _birthday(arguments: Sequence[str]) -> str:
    youngest, oldest = map(_whole, arguments) if arguments else (18, 65)
    days = f"CAST({youngest * 365} + floor(rand() * {(oldest - youngest) * 365 + 1}) AS INT)"
    return f"CAST(date_sub(current_date(), {days}) AS TIMESTAMP)"


def _option(arguments: Sequence[str]) -> str:
    return _one_of(arguments)


def _one_of(values: Sequence[str]) -> str:
    listed = ", ".join(map(quote_literal, values))
    return f"element_at(array({listed}), {_between(1, len(values) + 1, 'INT')})"


_COMPUTED: Mapping[str, _Provider] = {
    "number.numberBetween": _Provider(_number_between, (2, 2)),
    "number.randomDouble": _Provider(_random_double, (3, 3)),
    "number.randomDigit": _Provider(lambda _: _between(0, 10)),
    "number.randomDigitNotZero": _Provider(lambda _: _between(1, 10)),
    "number.positive": _Provider(lambda _: _between(1, 2**31)),
    "number.negative": _Provider(lambda _: _between(-(2**31), 0)),
    "number.randomNumber": _Provider(lambda _: _between(0, 10**9)),
    "number.digit": _Provider(_digits),
    "number.digits": _Provider(_digits, (1, 1)),
    "bool.bool": _Provider(lambda _: "(rand() < 0.5)"),
    "internet.uuid": _Provider(lambda _: "uuid()"),
    "date.past": _Provider(_shifted("-"), (2, 3)),
    "date.future": _Provider(_shifted("+"), (2, 3)),
    "date.between": _Provider(_date_between, (2, 2)),
    "date.birthday": _Provider(_birthday, (0, 2)),
    "options.option": _Provider(_option, (1, 1000)),
}


# ---- values that are drawn from samples ----------------------------------------------------------

_SAMPLED: Mapping[str, str] = {
    "address.buildingNumber": "building_number",
    "address.city": "city",
    "address.cityName": "city",
    "address.country": "country",
    "address.countryCode": "country_code",
    "address.fullAddress": "address",
    "address.latitude": "latitude",
    "address.longitude": "longitude",
    "address.state": "state",
    "address.stateAbbr": "state_abbr",
    "address.streetAddress": "street_address",
    "address.streetName": "street_name",
    "address.timeZone": "timezone",
    "address.zipCode": "postcode",
    "app.name": "catch_phrase",
    "app.version": "numerify:#.#.#",
    "book.author": "name",
    "book.publisher": "company",
    "book.title": "catch_phrase",
    "business.creditCardNumber": "credit_card_number",
    "business.creditCardType": "credit_card_provider",
    "color.hex": "hex_color",
    "color.name": "color_name",
    "commerce.department": "bs",
    "commerce.productName": "catch_phrase",
    "commerce.price": "numerify:%#.##",
    "commerce.promotionCode": "bothify:????######",
    "company.bs": "bs",
    "company.buzzword": "catch_phrase",
    "company.catchPhrase": "catch_phrase",
    "company.industry": "job",
    "company.name": "company",
    "company.suffix": "company_suffix",
    "company.url": "url",
    "country.capital": "city",
    "country.name": "country",
    "currency.code": "currency_code",
    "currency.name": "currency_name",
    "file.extension": "file_extension",
    "file.fileName": "file_name",
    "file.mimeType": "mime_type",
    "finance.bic": "swift",
    "finance.creditCard": "credit_card_number",
    "finance.iban": "iban",
    "idNumber.ssnValid": "ssn",
    "internet.domainName": "domain_name",
    "internet.domainWord": "domain_word",
    "internet.emailAddress": "email",
    "internet.ipV4Address": "ipv4",
    "internet.ipV6Address": "ipv6",
    "internet.macAddress": "mac_address",
    "internet.safeEmailAddress": "safe_email",
    "internet.slug": "slug",
    "internet.url": "url",
    "internet.userAgentAny": "user_agent",
    "internet.username": "user_name",
    "job.title": "job",
    "job.position": "job",
    "lorem.characters": "pystr",
    "lorem.paragraph": "paragraph",
    "lorem.sentence": "sentence",
    "lorem.word": "word",
    "name.firstName": "first_name",
    "name.fullName": "name",
    "name.lastName": "last_name",
    "name.name": "name",
    "name.prefix": "prefix",
    "name.suffix": "suffix",
    "name.title": "job",
    "name.username": "user_name",
    "phoneNumber.cellPhone": "phone_number",
    "phoneNumber.phoneNumber": "phone_number",
    "stock.nsdqSymbol": "lexify:????",
    "stock.nyseSymbol": "lexify:???",
}
"""Providers of Java Faker with what gives such values in the Python library: a method, some with an
argument."""

_PATTERNS = ("numerify", "letterify", "bothify", "hexify")


@cache
def _samples(method: str, pattern: str) -> tuple[str, ...]:
    """Return different values; the same ones each time, so that a definition stays as it is."""
    from faker import Faker  # late: a fifth of the time that it takes to import the parser

    generator = Faker("en_US")
    generator.seed_instance(f"{method}:{pattern}")
    make = getattr(generator, method)
    values = (make(pattern) if pattern else make() for _ in range(SAMPLES))
    return tuple(dict.fromkeys(" ".join(str(value).split()) for value in values))


def _sampled(name: str) -> _Provider:
    method, _, pattern = _SAMPLED[name].partition(":")
    return _Provider(lambda _: _one_of(_samples(method, pattern)))


def _patterned(name: str) -> _Provider:
    method = {"letterify": "lexify", "hexify": "hexify"}.get(name, name)
    return _Provider(lambda arguments: _one_of(_samples(method, arguments[0])), (1, 1))


_PROVIDERS: Mapping[str, _Provider] = {
    **{_fold(name): provider for name, provider in _COMPUTED.items()},
    **{_fold(name): _sampled(name) for name in _SAMPLED},
    **{name: _patterned(name) for name in _PATTERNS},
}
