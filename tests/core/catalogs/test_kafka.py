"""Catalogs of Kafka, without brokers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tidegate_server.core.catalogs.base import CatalogError, Derivation, TableColumn
from tidegate_server.core.catalogs.calls import CatalogCalls
from tidegate_server.core.catalogs.encoding import decode_table, encode_table
from tidegate_server.core.catalogs.kafka import COLUMNS, KafkaType, Topic
from tidegate_server.gateway.catalog_types.options import find_problem

SERVERS = {"properties.bootstrap.servers": "b:1"}


@dataclass
class Brokers:
    """Two topics."""

    settings: Mapping[str, str]
    known: dict[str, Topic] = field(
        default_factory=lambda: {
            "orders": Topic("t-1", {1: (0, 3), 0: (2, 9)}),
            "Web.clicks": Topic("t-2", {0: (0, 0)}),
        }
    )
    closed: bool = False

    def topics(self) -> list[str]:
        return list(self.known)

    def exists(self, topic: str) -> bool:
        return topic in self.known

    def topic(self, name: str) -> Topic | None:
        return self.known.get(name)

    def close(self) -> None:
        self.closed = True


def test_topics_are_the_tables_of_one_schema() -> None:
    brokers: list[Brokers] = []

    def connect(settings: Mapping[str, str]) -> Brokers:
        brokers.append(Brokers(settings))
        return brokers[-1]

    catalog = KafkaType(connect).open({**SERVERS, "properties.security.protocol": "SSL"})
    assert catalog.schemas() == ("default",)
    assert catalog.tables("default") == ["Web.clicks", "orders"]
    assert catalog.tables("other") == ()
    table = catalog.get_table("default", "orders")
    assert table is not None and table.columns == COLUMNS
    assert (table.format, table.location) == ("kafka", None)
    assert table.options == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SSL",
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "includeHeaders": "true",
    }
    assert catalog.get_table("other", "orders") is None
    assert catalog.get_table("default", "ORDERS") is None
    catalog.close()
    assert brokers[0].closed


def test_a_version_is_the_offsets_of_all_partitions() -> None:
    catalog = KafkaType(Brokers).open(SERVERS)
    assert catalog.version("default", "orders") == "t-1 0:2-9 1:0-3"
    assert catalog.version("default", "nothing") is None
    assert catalog.version("other", "orders") is None


def test_what_cannot_be_done_is_refused() -> None:
    kind = KafkaType(Brokers)
    calls = CatalogCalls(lambda name: kind)

    def answer(method: str, **fields: object) -> dict[str, str]:
        found: dict[str, str] = json.loads(calls.answer(json.dumps({"method": method, **fields})))
        return found

    handle = answer("open", type="kafka", options=SERVERS, secrets=[])["value"]
    for method in ("drop_table", "create_schema"):
        given = {"schema": "default", "table_name": "orders", "properties": {}}
        assert answer(method, catalog=handle, **given)["failure"] == "not offered"
    own = {**SERVERS, "properties.group.id": "g"}
    assert answer("open", type="kafka", options=own, secrets=[]) == {
        "failure": "refused",
        "reason": "properties.group.id cannot be set: Spark's reader has its own",
    }
    with pytest.raises(CatalogError, match="only an engine"):
        KafkaType().open(SERVERS)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "the option properties.bootstrap.servers is missing"),
        ({**SERVERS, "bootstrap.servers": "b"}, "has no option bootstrap.servers"),
        ({**SERVERS, "properties.sasl.jaas.config": "x"}, "contains a secret"),
        ({**SERVERS, "properties.ssl.keystore.password": "x"}, "contains a secret"),
        ({**SERVERS, "properties.sasl.jaas.config": "${secret:kafka}"}, ""),
    ],
)
def test_options_are_checked(options: Mapping[str, str], reason: str) -> None:
    problem = find_problem(KafkaType(), options)
    assert (problem.reason if problem else "").endswith(reason)
    assert bool(problem) == bool(reason)


class Schemas:
    """A registry with the schemas of one topic."""

    known: Mapping[str, tuple[TableColumn, ...]] = {
        "orders-key": (TableColumn(name="id", type="INT"),),
        "orders-value": (
            TableColumn(name="ID", type="BIGINT"),
            TableColumn(name="a note", type="STRING", comment="c"),
        ),
        "Web.clicks-key": (TableColumn(name="id", type="INT"),),
    }

    def __init__(self, url: str) -> None:
        self.url = url

    def fields(self, subject: str) -> tuple[TableColumn, ...] | None:
        return self.known.get(subject)

    def decoded(self, part: str, subject: str, fields: str) -> str:
        return f"decode({part}, {subject}, {fields})"


def test_a_registry_gives_topics_columns() -> None:
    catalog = KafkaType(Brokers, Schemas).open({**SERVERS, "avro-confluent.url": "http://r:1"})
    table = catalog.get_table("default", "orders")
    assert table is not None and table.read_only
    assert [each.name for each in table.columns] == ["id", "a note", "_kafka"]
    assert table.columns[1].comment == "c"
    assert table.derivation == Derivation(
        source=COLUMNS,
        values={
            "key_fields": "decode(key, orders-key, `id` INT)",
            "value_fields": "decode(value, orders-value, `ID` BIGINT, `a note` STRING)",
        },
        columns=(
            "key_fields.`id`",
            "value_fields.`a note`",
            "struct(key, value, topic, partition, offset, timestamp, timestampType, headers)",
        ),
    )
    # Without a schema of the value, records are as they are.
    raw = catalog.get_table("default", "Web.clicks")
    assert raw is not None and (raw.columns, raw.derivation) == (COLUMNS, None)
    assert decode_table(json.loads(json.dumps(encode_table(table)))) == table
    for url in ("r:1", "http://u:p@r:1", "file:///etc"):
        with pytest.raises(ValueError, match=r"avro-confluent\.url must be one URL such as"):
            KafkaType(Brokers, Schemas).open({**SERVERS, "avro-confluent.url": url})
    with pytest.raises(CatalogError, match="only an engine"):
        KafkaType(Brokers).open({**SERVERS, "avro-confluent.url": "http://r:1"})
