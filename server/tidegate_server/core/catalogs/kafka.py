"""Topics of Kafka as tables: the type ``kafka`` of catalogs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate_server.core.catalogs.base import CatalogError, CatalogTable, TableColumn
from tidegate_server.core.catalogs.options import CatalogOption

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


Connect = Callable[[Mapping[str, str]], KafkaClient]
"""Returns a client with these settings."""


def no_client(settings: Mapping[str, str]) -> KafkaClient:
    """Refuse to connect, where nothing is read."""
    raise CatalogError("only an engine opens catalogs of Kafka")


@dataclass(frozen=True, slots=True)
class KafkaType:
    """Topics with their records as they are."""

    connect: Connect = no_client
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
    )

    def open(self, options: Mapping[str, str]) -> KafkaCatalog:
        """Return the catalog; raises ValueError for settings that it cannot have."""
        settings = {key.removeprefix(_PROPERTIES): value for key, value in options.items()}
        for key in _OWN:
            if key in settings:
                raise ValueError(f"{_PROPERTIES}{key} cannot be set: Spark's reader has its own")
        return KafkaCatalog(settings, self.connect(settings))


@dataclass(frozen=True, slots=True)
class KafkaCatalog:
    """The topics of a cluster, in one schema."""

    settings: Mapping[str, str]
    client: KafkaClient

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
        return CatalogTable(
            format="kafka",
            columns=COLUMNS,
            options={
                **{f"kafka.{key}": value for key, value in self.settings.items()},
                "subscribe": name,
                "startingOffsets": "earliest",
                "endingOffsets": "latest",
                "includeHeaders": "true",
            },
        )

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
