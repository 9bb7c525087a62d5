"""The connector kafka: the records of topics.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/kafka/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate_server.core.connectors import options
from tidegate_server.core.connectors.avro import avro_schema
from tidegate_server.core.connectors.changes import (
    FORMATS,
    change_events,
    change_schema,
    changes_query,
    format_options,
    require_key,
)
from tidegate_server.core.connectors.columns import ConnectorColumn, ConnectorTable, select
from tidegate_server.core.connectors.formats import (
    REGISTRY_FORMAT,
    Decoded,
    Format,
    decode,
    read_format,
    stored_schema,
)
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.readers import call_of
from tidegate_server.core.connectors.registry import Registry, registry_of
from tidegate_server.core.connectors.sinks import (
    WRITABLE,
    Sink,
    Unwritable,
    encoded,
    kafka_sink,
    marked,
)
from tidegate_server.core.model.names import quote_identifier
from tidegate_server.core.model.secrets import is_sensitive
from tidegate_server.core.model.types import castable_type

_SERVERS = "properties.bootstrap.servers"
_OPTIONS: Mapping[str, options.Parse] = {
    "connector": options.text,
    "topic": options.text,
    "topic-pattern": options.text,
    _SERVERS: options.text,
    "properties.group.id": options.text,
    "format": options.text,
    "value.format": options.text,
    "value.fields-include": options.one_of("ALL", "EXCEPT_KEY"),
    "key.format": options.text,
    "key.fields": options.text,
    "key.fields-prefix": options.text,
    "scan.startup.mode": options.one_of(
        "earliest-offset", "latest-offset", "timestamp", "specific-offsets"
    ),
    "scan.startup.timestamp-millis": options.count,
    "scan.startup.specific-offsets": options.text,
    "scan.topic-partition-discovery.interval": options.refused(
        "each refresh finds new partitions by itself"
    ),
    **dict.fromkeys(
        (
            "scan.bounded.mode",
            "scan.bounded.timestamp-millis",
            "scan.bounded.specific-offsets",
        ),
        options.refused("a query ends with the last record there is, a materialized table never"),
    ),
    "sink.delivery-guarantee": options.one_of("at-least-once"),
    "sink.partitioner": options.one_of("default"),
    "sink.transactional-id-prefix": options.refused("records are not written in transactions"),
    "sink.parallelism": options.refused("Spark writes as many tasks as the query has"),
}
_REFUSED_PROPERTIES = ("auto.offset.reset", "enable.auto.commit", "interceptor.classes")
_METADATA: Mapping[str, str] = {
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp-type": "CASE timestampType WHEN 0 THEN 'CreateTime' WHEN 1 THEN 'LogAppendTime' "
    "ELSE 'NoTimestampType' END",
    "headers": "map_from_entries(headers)",
}
_SEQUENCE = "`offset`"
"""What orders the events of a key, which are in one partition."""
_FROM_START = "a key's newest record can be any of a topic"
_NOT_OF_UPSERTS: Mapping[str, str] = {
    "format": "the formats are key.format and value.format",
    "key.fields": "the primary key names the columns of the key",
    "topic-pattern": "the keys are those of one topic",
}
_OFFSET = re.compile(r"partition:(\d+),offset:(\d+)")


def kafka_view(table: ConnectorTable) -> str:
    """Return the query over the records of a table's topics, marked with how they are written.

    :raises OptionError: for invalid options and columns.
    """
    if table.partition_keys:
        raise OptionError("PARTITIONED BY is for the connector filesystem")
    given = _read(table)
    if given.get("format", given.get("value.format")) in FORMATS:
        return _changes(table, given)
    key, value = _key(table, given), _value(table, given)
    inner = ["*"]
    conditions = []
    values: dict[str, str] = {}
    for decoded, columns, name in ((key, _key_columns(table, given), "_key"), (*value, "_value")):
        if decoded is None:
            continue
        inner.append(f"{decoded.expression} AS {name}")
        conditions += [decoded.condition] if decoded.condition else []
        for column, sql in zip(columns, decoded.fields, strict=True):
            values.setdefault(column.name, f"CAST({sql} AS {castable_type(column.type)})")
    relation = f"(SELECT {', '.join(inner)} FROM {_records(table, given)})"
    if conditions:
        relation = f"(SELECT * FROM {relation} WHERE {' AND '.join(conditions)})"
    query = select(table, _ordered(table, values), relation)
    return marked(query, "kafka", _sink(table, given))


def upsert_kafka_view(table: ConnectorTable) -> str:
    """Return the query over the newest records of the keys of a topic.

    https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/upsert-kafka/

    :raises OptionError: for invalid options and columns.
    """
    for name in table.options:
        if name in _NOT_OF_UPSERTS or name.startswith("scan."):
            raise OptionError(f"{name} cannot be set: {_NOT_OF_UPSERTS.get(name, _FROM_START)}")
    if table.partition_keys:
        raise OptionError("PARTITIONED BY is for the connector filesystem")
    require_key(table)
    for name in ("key.format", "value.format"):
        if name not in table.options:
            raise OptionError(f"{name} is missing")
    fields = {"key.fields": ";".join(table.primary_key)}
    keyed = replace(table, options={**table.options, **fields})
    given = _read(keyed)
    if given["value.format"] in FORMATS:
        raise OptionError("value.format is that of rows: use 'connector' = 'kafka' for changes")
    key, value = _key(keyed, given), _value(keyed, given)
    inner, values = "SELECT *", dict[str, str]()
    for decoded, columns, name in ((key, _key_columns(keyed, given), "_key"), (*value, "_value")):
        if decoded is not None:
            inner += f", {decoded.expression} AS {name}"
            for column, sql in zip(columns, decoded.fields, strict=True):
                values.setdefault(column.name, f"CAST({sql} AS {castable_type(column.type)})")
    relation = f"({inner} FROM {_records(keyed, given)})"
    query = changes_query(
        table, _ordered(table, values), relation, deleted="value IS NULL", sequence=_SEQUENCE
    )
    names = {each.name.lower(): each.name for each in table.fields}
    key_columns = tuple(names[name.lower()] for name in table.primary_key)
    return marked(query, "upsert-kafka", _sink(keyed, given, upserts=key_columns))


def _changes(table: ConnectorTable, given: Mapping[str, Any]) -> str:
    """Return the query over the rows that changes lead to."""
    if "key.format" in given:
        raise OptionError("key.format is not for changes, whose values have all columns")
    name, prefix = _value_place(given)
    events = change_events(given[name], table.options, prefix, table.fields, _records(table, given))
    values = {
        each.name: f"CAST(_row.{quote_identifier(each.name)} AS {castable_type(each.type)})"
        for each in table.fields
    }
    query = changes_query(
        table,
        _ordered(table, values),
        events.relation,
        deleted=events.deleted,
        sequence=_SEQUENCE,
    )
    reason = "its records are changes by key, which the connector upsert-kafka writes"
    return marked(query, "kafka", Unwritable(reason=reason))


def _records(table: ConnectorTable, given: Mapping[str, Any]) -> str:
    """Return the call that reads the records."""
    headers = any(each.metadata == "headers" for each in table.columns)
    found = {**_parameters(given, headers=headers), **_decoding(table, given)}
    return call_of("read_kafka", found)


def _decoding(table: ConnectorTable, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters for keys and values whose schemas are in a registry."""
    found = dict[str, str]()
    for each in _registered(table, given):
        found |= each.registry.parameters(each.part, stored_schema(each.columns))
    name, prefix = _value_place(given)
    format = given[name]
    if format in FORMATS and FORMATS[format].registry:
        own = format_options(format, table.options, prefix)
        registry = registry_of(own, f"{prefix}{format}.", "value", given.get("topic"))
        found |= registry.parameters("value", change_schema(format, table.fields))
    return found


def _ordered(table: ConnectorTable, values: Mapping[str, str]) -> dict[str, str]:
    """Return SQL for each column of the record and of its metadata, in the order of the table."""
    return {
        each.name: values[each.name]
        if each.metadata is None
        else f"CAST({_metadata(each.metadata)} AS {each.type})"
        for each in table.columns
        if each.type
    }


def _read(table: ConnectorTable) -> Mapping[str, Any]:
    formats = {
        f"{prefix}{table.options.get(key, '')}."
        for key, prefix in (
            ("format", ""),
            ("value.format", "value."),
            ("key.format", "key."),
        )
        if key in table.options
    }
    own, properties = {}, {}
    for name, text in table.options.items():
        if name.startswith(tuple(formats)):
            continue
        if name.startswith("properties.") and name not in _OPTIONS:
            properties[name] = _property(name, text)
        else:
            own[name] = text
    given = options.read_options(own, _OPTIONS, {}, {}).table
    if _SERVERS not in given:
        raise OptionError(f"{_SERVERS} is missing")
    if ("topic" in given) == ("topic-pattern" in given):
        raise OptionError("it needs either topic or topic-pattern")
    if ("format" in given) == ("value.format" in given):
        raise OptionError("it needs either format or value.format")
    if ("key.format" in given) != ("key.fields" in given):
        raise OptionError("key.format and key.fields belong together")
    return {**given, **properties}


def _property(name: str, text: str) -> str:
    own = name.removeprefix("properties.")
    if own in _REFUSED_PROPERTIES or own.endswith((".deserializer", ".serializer")):
        raise OptionError(f"{name} cannot be set: Spark's reader has its own")
    if is_sensitive(own) or own == "sasl.jaas.config":
        raise OptionError(f"{name} would be shown to all who see the table's definition")
    return text


def _parameters(given: Mapping[str, Any], *, headers: bool) -> dict[str, str]:
    found = {"bootstrapServers": given[_SERVERS]}
    if "topic" in given:
        found["subscribe"] = ",".join(each.strip() for each in given["topic"].split(";"))
    else:
        found["subscribePattern"] = given["topic-pattern"]
    found |= _start(given)
    if "properties.group.id" in given:
        found["groupIdPrefix"] = given["properties.group.id"]
    if headers:
        found["includeHeaders"] = "true"
    for name, text in given.items():
        if name.startswith("properties.") and name not in _OPTIONS:
            found[f"kafka.{name.removeprefix('properties.')}"] = text
    return found


def _start(given: Mapping[str, Any]) -> dict[str, str]:
    mode = given.get("scan.startup.mode", "earliest-offset")
    details = {
        "timestamp": "scan.startup.timestamp-millis",
        "specific-offsets": "scan.startup.specific-offsets",
    }
    for of, name in details.items():
        if (mode == of) != (name in given):
            raise OptionError(f"{name} and 'scan.startup.mode' = '{of}' belong together")
    match mode:
        case "latest-offset":
            return {}  # the default of a stream; a query reads all there is
        case "timestamp":
            return {"startingTimestamp": str(given["scan.startup.timestamp-millis"])}
        case "specific-offsets":
            return {"startingOffsets": _offsets(given)}
    return {"startingOffsets": "earliest"}


def _offsets(given: Mapping[str, Any]) -> str:
    topic, text = given.get("topic", ""), given["scan.startup.specific-offsets"]
    if not topic or ";" in topic:
        raise OptionError("scan.startup.specific-offsets are those of one topic")
    found = {}
    for part in text.split(";"):
        match = _OFFSET.fullmatch(part.strip())
        if match is None:
            wanted = "as in 'partition:0,offset:42;partition:1,offset:300'"
            raise OptionError(f"scan.startup.specific-offsets is to be {wanted}, not '{text}'")
        found[match[1]] = int(match[2])
    return json.dumps({topic: found})


# ---- keys and values ---------------------------------------------------------------------------


def _key_columns(table: ConnectorTable, given: Mapping[str, Any]) -> list[ConnectorColumn]:
    names = [each.strip() for each in given.get("key.fields", "").split(";") if each.strip()]
    by_name = {each.name.lower(): each for each in table.fields}
    prefix = given.get("key.fields-prefix", "")
    for name in names:
        if name.lower() not in by_name:
            raise OptionError(f"key.fields names {name}, which is no column of the records")
        if not name.startswith(prefix):
            raise OptionError(f"key.fields names {name}, which does not begin with {prefix}")
    return [by_name[name.lower()] for name in names]


def _key(table: ConnectorTable, given: Mapping[str, Any]) -> Decoded | None:
    columns = _key_columns(table, given)
    if not columns:
        return None
    prefix = given.get("key.fields-prefix", "")
    fields = _keyed(table, columns)
    return decode(_key_format(table), fields, "key", "_key", prefix=prefix, required=False)


def _keyed(table: ConnectorTable, columns: list[ConnectorColumn]) -> list[ConnectorColumn]:
    """Return the columns, with those of the primary key NOT NULL, as in Flink."""
    key = {name.lower() for name in table.primary_key}
    return [replace(each, nullable=False) if each.name.lower() in key else each for each in columns]


def _key_format(table: ConnectorTable) -> Format:
    return read_format(table.options, "key.format", "key.", records=True)


def _value(
    table: ConnectorTable, given: Mapping[str, Any]
) -> tuple[Decoded, list[ConnectorColumn]]:
    except_key = given.get("value.fields-include", "ALL") == "EXCEPT_KEY"
    if given.get("key.fields-prefix") and not except_key:
        raise OptionError("key.fields-prefix needs 'value.fields-include' = 'EXCEPT_KEY'")
    columns = _value_columns(table, given)
    if not columns:
        raise OptionError("no column is left for the values of the records")
    return decode(_value_format(table, given), _keyed(table, columns), "value", "_value"), columns


def _value_columns(table: ConnectorTable, given: Mapping[str, Any]) -> list[ConnectorColumn]:
    except_key = given.get("value.fields-include", "ALL") == "EXCEPT_KEY"
    keys = _key_columns(table, given) if except_key else []
    return [each for each in table.fields if each not in keys]


def _value_place(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return the option that names the format of values, and what is before its own options."""
    return ("format", "") if "format" in given else ("value.format", "value.")


def _value_format(table: ConnectorTable, given: Mapping[str, Any]) -> Format:
    name, prefix = _value_place(given)
    return read_format(table.options, name, prefix, records=True)


def _metadata(key: str) -> str:
    if key not in _METADATA:
        raise options.unknown("metadata", key, _METADATA)
    return _METADATA[key]


# ---- writing -----------------------------------------------------------------------------------


def _sink(
    table: ConnectorTable, given: Mapping[str, Any], *, upserts: tuple[str, ...] = ()
) -> Sink | Unwritable:
    if "topic" not in given or ";" in given["topic"]:
        return Unwritable(reason="it has several topics, or a pattern of them")
    written = [each for each in table.columns if each.metadata in WRITABLE and not each.virtual]
    by_key = {each.metadata or "": each.name for each in written}
    if len(by_key) < len(written):
        return Unwritable(reason="several of its columns are the same metadata")
    keys, values = _key_columns(table, given), _value_columns(table, given)
    prefix = given.get("key.fields-prefix", "")
    servers = {"kafka.bootstrap.servers": given[_SERVERS], "topic": given["topic"].strip()}
    properties = {
        f"kafka.{name.removeprefix('properties.')}": text
        for name, text in given.items()
        if name.startswith("properties.") and name not in _OPTIONS
    }
    registries = dict[str, str]()
    for each in _registered(table, given):
        legacy = bool(each.format.given.get("timestamp_mapping.legacy", True))
        registries |= each.registry.parameters(each.part, avro_schema(each.columns, moments=legacy))
    return kafka_sink(
        tuple(each for each in table.columns if each in table.fields or each in written),
        encoded(_key_format(table), _keyed(table, keys), prefix=prefix) if keys else None,
        encoded(_value_format(table, given), _keyed(table, values)),
        by_key,
        {**servers, **properties, **registries},
        upserts=upserts,
    )


# ---- schemas in registries ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Registered:
    """The keys or values of a table whose schemas are in a registry."""

    part: str
    format: Format
    registry: Registry
    columns: list[ConnectorColumn]
    """With the names that they have there."""


def _registered(table: ConnectorTable, given: Mapping[str, Any]) -> Iterator[_Registered]:
    name, start = _value_place(given)
    parts = [(name, start, "value", _value_columns(table, given), "")]
    if "key.format" in given:
        before = given.get("key.fields-prefix", "")
        parts.append(("key.format", "key.", "key", _key_columns(table, given), before))
    for option, prefix, part, columns, before in parts:
        if given[option] != REGISTRY_FORMAT:
            continue
        format = read_format(table.options, option, prefix, records=True)
        yield _Registered(
            part=part,
            format=format,
            registry=registry_of(
                format.given, f"{prefix}{REGISTRY_FORMAT}.", part, given.get("topic")
            ),
            columns=[
                replace(each, name=each.name.removeprefix(before))
                for each in _keyed(table, columns)
            ],
        )
