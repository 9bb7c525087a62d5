"""Records whose schemas are in a registry with the interface of Confluent's.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/formats/avro-confluent/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate_server.core.connectors import options
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.urls import parse_web_url

PARAMETERS = ("SchemaRegistry", "Subject", "Schema")
"""The parameters of read_kafka for keys and values, after ``key`` or ``value``: the URL of the
registry, the subjects with ; between them, and the fields as DDL, or a schema to write."""
_SECRET = "the definition of a table is not secret: registries are asked without a login"
_CERTIFICATES = "certificates are those of the engine's Java"


OPTIONS: Mapping[str, options.Parse] = {
    "url": parse_web_url,
    "subject": options.text,
    "schema": options.refused("it is derived from the columns"),
    "properties": options.refused("there is no client of Confluent's to set them for"),
    **dict.fromkeys(
        (
            *("basic-auth.credentials-source", "basic-auth.user-info"),
            *("bearer-auth.credentials-source", "bearer-auth.token"),
        ),
        options.refused(_SECRET),
    ),
    **dict.fromkeys(
        (
            *("ssl.keystore.location", "ssl.keystore.password"),
            *("ssl.truststore.location", "ssl.truststore.password"),
        ),
        options.refused(_CERTIFICATES),
    ),
}
"""The options of formats with a registry; the URL is required."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where the schemas of keys or values are."""

    url: str
    subjects: tuple[str, ...]
    """Those of the topics that are read; one is that of the records that are written."""

    def parameters(self, part: str, schema: str) -> dict[str, str]:
        """Return the parameters of read_kafka, and options of a writer.

        :param part: ``key`` or ``value``.
        """
        values = (self.url, ";".join(self.subjects), schema)
        return {f"{part}{name}": each for name, each in zip(PARAMETERS, values, strict=True)}


def fields_column(part: str) -> str:
    """Return the column with the decoded keys or values, which read_kafka adds."""
    return f"{part}_fields"


def registry_of(given: Mapping[str, Any], start: str, part: str, topics: str | None) -> Registry:
    """Return where the schemas of a format are.

    :param given: the values of its options, without its name before them.
    :param start: the name before them, as in the options of the table.
    :param part: ``key`` or ``value``.
    :param topics: those that are read, with ; between them; None for a pattern.
    :raises OptionError: if it has no URL, or none of its subjects is known.
    """
    if "url" not in given:
        raise OptionError(f"{start}url is missing")
    if "subject" in given:
        return Registry(given["url"], (given["subject"],))
    if topics is None:
        raise OptionError(f"{start}subject is missing: the topics are a pattern")
    names = (each.strip() for each in topics.split(";"))
    return Registry(given["url"], tuple(f"{name}-{part}" for name in names))
