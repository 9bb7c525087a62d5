"""Topics of Kafka as tables: the type ``kafka`` of catalogs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate_server.core.catalogs.base import (
    CatalogError,
    CatalogTable,
    Derivation,
    TableColumn,
)
from tidegate_server.core.catalogs.options import CatalogOption
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.urls import parse_web_url

TYPE: Final = "kafka"
SCHEMA: Final = "default"
"""The only schema."""
_PROPERTIES: Final = "properties."
_SERVERS: Final = "bootstrap.servers"
_OWN: Final = (
    *("auto.offset.reset", "enable.auto.commit", "group.id", "interceptor.classes"),
    *("key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
)
"""Settings of clients that Spark's reader has itself."""
COLUMNS: Final = (
    TableColumn(name="key", type="binary"),
    TableColumn(name="value", type="binary"),
    TableColumn(name="topic", type="string"),
    TableColumn(name="partition", type="int"),
    TableColumn(name="offset", type="bigint"),
    TableColumn(name="timestamp", type="timestamp"),
    TableColumn(name="timestampType", type="int"),
    TableColumn(name="headers", type="array<struct<key: string, value: binary>>"),
)
"""Those of Spark's source, which are the same for all topics."""
RECORD: Final = "_kafka"
"""The column with the columns above, of topics whose schema is known."""
_RECORD_COLUMN: Final = TableColumn(
    name=RECORD,
    type=f"struct<{', '.join(f'{each.name}: {each.type}' for each in COLUMNS)}>",
    comment="the record as it is in Kafka",
)
REGISTRY: Final = "avro-confluent.url"


@dataclass(frozen=True, slots=True)
class Topic:
    """What the brokers say of a topic."""

    id: str
    """Another one if it was deleted and created again."""
    offsets: Mapping[int, tuple[int, int]]
    """The offsets of the first record of each partition, and of the next one."""


class KafkaClient(Protocol):
    """Asks the brokers; its methods raise CatalogError."""

    def topics(self) -> Sequence[str]:
        """Return the names of all topics but Kafka's own."""
        ...

    def exists(self, topic: str) -> bool:
        """Say whether there is a topic."""
        ...

    def topic(self, name: str) -> Topic | None:
        """Return a topic; None if there is none."""
        ...

    def close(self) -> None:
        """Close its connections."""
        ...


class SchemaRegistry(Protocol):
    """Knows the schemas of Avro of keys and values; its methods raise CatalogError."""

    def fields(self, subject: str) -> Sequence[TableColumn] | None:
        """Return the fields of the newest schema; None if there is none of a record of Avro."""
        ...

    def decoded(self, part: str, subject: str, fields: str) -> str:
        """Return SQL for a struct of what a binary column has, by all schemas of a subject.

        :param part: the column, ``key`` or ``value``.
        :param fields: those of the struct as DDL.
        """
        ...


Connect = Callable[[Mapping[str, str]], KafkaClient]
"""Returns a client with these settings."""


ConnectRegistry = Callable[[str], SchemaRegistry]
"""Returns the registry of a URL."""


def no_registry(url: str) -> SchemaRegistry:
    """Refuse to ask, where nothing is read."""
    raise CatalogError("only an engine opens catalogs of Kafka")


def no_client(settings: Mapping[str, str]) -> KafkaClient:
    """Refuse to connect, where nothing is read."""
    raise CatalogError("only an engine opens catalogs of Kafka")


@dataclass(frozen=True, slots=True)
class KafkaType:
    """Topics with their records as they are."""

    connect: Connect = no_client
    registry: ConnectRegistry = no_registry
    name: str = TYPE
    description: str = "Topics of Kafka."
    options: tuple[CatalogOption, ...] = (
        CatalogOption(
            name=f"{_PROPERTIES}{_SERVERS}", description="Addresses of brokers.", required=True
        ),
        CatalogOption(
            name=f"{_PROPERTIES}sasl.jaas.config",
            description="The login at the brokers, with the password.",
            secret=True,
        ),
        CatalogOption(
            name=f"{_PROPERTIES}*", description="Settings of Kafka's clients, after that prefix."
        ),
        CatalogOption(name=REGISTRY, description="The URL of a registry of schemas."),
    )

    def open(self, options: Mapping[str, str]) -> KafkaCatalog:
        """Return the catalog; raises ValueError for settings that it cannot have."""
        settings = {
            key.removeprefix(_PROPERTIES): value
            for key, value in options.items()
            if key.startswith(_PROPERTIES)
        }
        registry = None
        if REGISTRY in options:
            try:
                registry = self.registry(parse_web_url(options[REGISTRY]))
            except ValueError as expected:
                raise ValueError(f"{REGISTRY} must be {expected}") from expected
        for key in _OWN:
            if key in settings:
                raise ValueError(f"{_PROPERTIES}{key} cannot be set: Spark's reader has its own")
        return KafkaCatalog(settings, self.connect(settings), registry)


@dataclass(frozen=True, slots=True)
class KafkaCatalog:
    """The topics of a cluster, in one schema."""

    settings: Mapping[str, str]
    client: KafkaClient
    registry: SchemaRegistry | None = None

    def schemas(self) -> Sequence[str]:
        """Return the only schema."""
        return (SCHEMA,)

    def tables(self, schema: str) -> Sequence[str]:
        """Return the names of the topics."""
        return sorted(self.client.topics()) if schema == SCHEMA else ()

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        """Return a topic as Spark reads it: all the records that there are."""
        if schema != SCHEMA or not self.client.exists(name):
            return None
        columns, derivation = self._decoded(name)
        return CatalogTable(
            format="kafka",
            columns=columns,
            derivation=derivation,
            read_only=derivation is not None,
            options={
                **{f"kafka.{key}": value for key, value in self.settings.items()},
                "subscribe": name,
                "startingOffsets": "earliest",
                "endingOffsets": "latest",
                "includeHeaders": "true",
            },
        )

    def _decoded(self, topic: str) -> tuple[tuple[TableColumn, ...], Derivation | None]:
        """Return the columns of a topic, and how they follow from records."""
        found = self.registry.fields(f"{topic}-value") if self.registry is not None else None
        if self.registry is None or found is None:
            return COLUMNS, None
        keys = tuple(self.registry.fields(f"{topic}-key") or ())
        known = {each.name.lower() for each in keys}
        rest = tuple(each for each in found if each.name.lower() not in known)
        values = {}
        for part, fields in (("key", keys), ("value", tuple(found))):
            if fields:
                ddl = ", ".join(f"{quote_identifier(e.name)} {e.type}" for e in fields)
                subject = f"{topic}-{part}"
                values[f"{part}_fields"] = self.registry.decoded(part, subject, ddl)
        derivation = Derivation(
            source=COLUMNS,
            values=values,
            columns=(
                *(f"key_fields.{quote_identifier(each.name)}" for each in keys),
                *(f"value_fields.{quote_identifier(each.name)}" for each in rest),
                f"struct({', '.join(each.name for each in COLUMNS)})",
            ),
        )
        return (*keys, *rest, _RECORD_COLUMN), derivation

    def version(self, schema: str, name: str) -> str | None:
        """Return the offsets of a topic, which differ after each record."""
        found = self.client.topic(name) if schema == SCHEMA else None
        if found is None:
            return None
        offsets = (f"{each}:{first}-{end}" for each, (first, end) in sorted(found.offsets.items()))
        return " ".join((found.id, *offsets))

    def close(self) -> None:
        """Close the connections to the brokers."""
        self.client.close()
