"""Flink's formats: their options, and what they are in Spark.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/formats/overview/
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate_server.core.connectors import options, registry
from tidegate_server.core.connectors.avro import AvroFiles, avro_schema, stored_type
from tidegate_server.core.connectors.columns import ConnectorColumn
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.model.names import quote_identifier, quote_literal
from tidegate_server.core.model.types import TypeKind, parse_type

_CHANGES = "its records are changes by key, which have an order in the connector kafka alone"
REGISTRY_FORMAT = "avro-confluent"
"""The format of records of Avro whose schemas are in a registry."""
_REFUSED: Mapping[str, str] = {
    "debezium-avro-confluent": _CHANGES,
    **dict.fromkeys(("debezium-json", "canal-json", "maxwell-json", "ogg-json"), _CHANGES),
}
"""Flink's other formats, and why there are not there."""
_ISO = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]"
_MALFORMED = "_malformed"
_STRICT = {"mode": "FAILFAST"}


def _never(reason: str) -> options.Parse:
    """Return what reads an option whose only value is the default, false."""

    def parse(value: str) -> bool:
        if value.strip().lower() != "false":
            raise ValueError(f"false, since {reason}")
        return False

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of files, or of the keys and values of records."""

    name: str
    given: Mapping[str, Any] = field(default_factory=dict)
    """The values of its options, without its name before them."""

    @property
    def drops_malformed(self) -> bool:
        """Whether rows that cannot be parsed are left out; otherwise they are errors."""
        return bool(self.given.get("ignore-parse-errors"))

    @property
    def spark_name(self) -> str:
        """Spark's name of it, for files."""
        return "text" if self.name == "raw" else self.name

    @property
    def iso(self) -> bool:
        """Whether times have a T between date and time."""
        return bool(self.given.get("timestamp-format.standard") == "ISO-8601")

    @property
    def avro_files(self) -> AvroFiles:
        """How values are in files of Avro."""
        return AvroFiles(legacy=bool(self.given.get("timestamp_mapping.legacy", True)))

    def writer_options(self) -> dict[str, str]:
        """Return Spark's options for writing files and records, as Flink writes them."""
        if self.name == "avro":
            return {"compression": _CODECS[self.given.get("codec", "snappy")]}
        if self.name not in ("json", "csv"):
            return {}
        between = "'T'" if self.iso else " "
        time = f"yyyy-MM-dd{between}HH:mm:ss[.SSSSSS]"
        found = {"timestampFormat": f"{time}'Z'", "timestampNTZFormat": time, "timeZone": "UTC"}
        if self.name == "json":
            ignored = self.given.get("encode.ignore-null-fields", False)
            return {**found, "ignoreNullFields": str(ignored).lower()}
        kept = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
        own = {key: value for key, value in _csv(self.given).items() if key != "comment"}
        return {**found, **dict.fromkeys(kept, "false"), **own}

    def spark_options(self) -> dict[str, str]:
        """Return Spark's options for reading files."""
        found = _SPARK_OPTIONS[self.name](self.given) if self.name in _SPARK_OPTIONS else {}
        if self.name in ("json", "csv"):
            found["mode"] = "DROPMALFORMED" if self.drops_malformed else "FAILFAST"
        return found


def json_options(given: Mapping[str, Any]) -> dict[str, str]:
    """Return Spark's options for reading JSON."""
    iso = given.get("timestamp-format.standard") == "ISO-8601"
    return (
        {"timestampFormat": _ISO, "timestampNTZFormat": _ISO.removesuffix("[XXX]")} if iso else {}
    )


def _csv(given: Mapping[str, Any]) -> dict[str, str]:
    names = {
        "field-delimiter": "sep",
        "quote-character": "quote",
        "escape-character": "escape",
        "null-literal": "nullValue",
    }
    found = {names[key]: value for key, value in given.items() if key in names}
    # In Flink's files a quote in a value is doubled, unless there is a character to escape it.
    found.setdefault("escape", found.get("quote", '"'))
    if given.get("disable-quote-character"):
        found["quote"] = ""
    if given.get("allow-comments"):
        found["comment"] = "#"
    return found


_SPARK_OPTIONS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, str]]] = {
    "json": json_options,
    "csv": _csv,
}
_CODECS: Mapping[str, str] = {
    "null": "uncompressed",
    **{name: name for name in ("deflate", "snappy", "bzip2", "xz", "zstandard")},
}
"""Spark's names of compressions by those of Avro."""
_OPTIONS: Mapping[str, Mapping[str, options.Parse]] = {
    "json": {
        "fail-on-missing-field": _never("Spark reads NULL"),
        "ignore-parse-errors": options.flag,
        "timestamp-format.standard": options.one_of("SQL", "ISO-8601"),
        "encode.ignore-null-fields": options.flag,
    },
    "csv": {
        "field-delimiter": options.character,
        "disable-quote-character": options.flag,
        "quote-character": options.character,
        "allow-comments": options.flag,
        "ignore-parse-errors": options.flag,
        "escape-character": options.character,
        "null-literal": options.text,
    },
    "raw": {"charset": options.text},
    "avro": {
        "codec": options.one_of(*_CODECS),
        "encoding": options.refused("files of Avro are binary"),
        "timestamp_mapping.legacy": options.flag,
    },
    "parquet": {},
    "orc": {},
}
_OF_RECORDS: Mapping[str, Mapping[str, options.Parse]] = {
    **{name: _OPTIONS[name] for name in ("json", "csv", "raw")},
    "avro": {
        "codec": options.refused("it is that of files"),
        "encoding": options.one_of("binary"),
        "timestamp_mapping.legacy": options.refused("records are the same with both mappings"),
    },
    REGISTRY_FORMAT: {**registry.OPTIONS, "timestamp_mapping.legacy": options.flag},
}
"""Formats of keys and values; the others need a file."""


def read_format(
    given: Mapping[str, str], key: str, prefix: str = "", *, records: bool = False
) -> Format:
    """Return the format that an option names, with its options.

    :param given: the options of the table.
    :param key: the option that names it, such as ``format`` or ``key.format``.
    :param prefix: what is before its own options, such as ``key.``.
    :param records: whether it is one of keys or values instead of files.
    :raises OptionError: if it is missing or unknown, or one of its options is invalid.
    """
    if key not in given:
        raise OptionError(f"{key} is missing")
    name, known = given[key], _OF_RECORDS if records else _OPTIONS
    if name == REGISTRY_FORMAT and not records:
        raise OptionError(f"{key} cannot be {name}: files of Avro contain their schema")
    if name in _REFUSED:
        raise OptionError(f"{key} cannot be {name}: {_REFUSED[name]}")
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise OptionError(f"{key} cannot be {name}; {meant}")
    start = f"{prefix}{name}."
    own = {each: text for each, text in given.items() if each.startswith(start)}
    parse = {f"{start}{each}": read for each, read in known[name].items()}
    values = options.read_options(own, parse, {}, {}).table
    return Format(name=name, given={each.removeprefix(start): v for each, v in values.items()})


def schema_of(columns: Sequence[ConnectorColumn]) -> str:
    """Return columns as Spark's DDL."""
    return ", ".join(f"{quote_identifier(each.name)} {each.type}" for each in columns)


def map_sql(given: Mapping[str, str]) -> str:
    """Return options as a map in SQL."""
    return f"map({', '.join(quote_literal(each) for pair in given.items() for each in pair)})"


def require_text(format: Format, columns: Sequence[ConnectorColumn]) -> None:
    """Require that a table in the format raw has one column of bytes or text.

    :raises OptionError: if it has others.
    """
    kinds = (TypeKind.STRING, TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.BINARY)
    fits = len(columns) == 1 and parse_type(columns[0].type).kind in kinds
    if format.name == "raw" and not fits:
        raise OptionError("the format raw is that of a single column of type STRING or BYTES")


def stored_schema(columns: Sequence[ConnectorColumn]) -> str:
    """Return columns as they are read from Avro, as Spark's DDL."""
    return schema_of([replace(each, type=stored_type(each.type)) for each in columns])


@dataclass(frozen=True, slots=True)
class Decoded:
    """The fields of a key or value of a record."""

    expression: str
    """SQL for all of them as one struct."""
    fields: tuple[str, ...]
    """SQL for each, by the struct's name."""
    condition: str
    """What holds for a record that has them."""


def decode(
    format: Format,
    columns: Sequence[ConnectorColumn],
    binary: str,
    name: str,
    *,
    prefix: str = "",
    required: bool = True,
) -> Decoded:
    """Return the fields of a binary column of records.

    :param binary: the column, such as ``value``.
    :param name: the name that the struct gets.
    :param prefix: what the names of the columns have before those of the fields.
    :param required: whether a record without it is no row; otherwise its fields are NULL.
    """
    require_text(format, columns)
    text = f"CAST({binary} AS STRING)"
    if format.name == "raw":
        charset = format.given.get("charset")
        if charset is not None:
            text = f"decode({binary}, {quote_literal(charset)})"
        [column] = columns
        value = binary if parse_type(column.type).kind is TypeKind.BINARY else text
        # A record without a value is a row with NULL.
        return Decoded(f"struct({value} AS v)", (f"{name}.v",), "")
    named = [replace(each, name=each.name.removeprefix(prefix)) for each in columns]
    fields = tuple(f"{name}.{quote_identifier(each.name)}" for each in named)
    given = format.spark_options()
    conditions = [f"{binary} IS NOT NULL"] if required else []
    if format.name == REGISTRY_FORMAT:
        avro_schema(named)  # raises for columns that Avro cannot have
        return Decoded(registry.fields_column(binary), fields, " AND ".join(conditions))
    if format.name == "avro":
        call = f"from_avro({binary}, {quote_literal(avro_schema(named))}, {map_sql(_STRICT)})"
        return Decoded(call, fields, " AND ".join(conditions))
    schema = schema_of(named)
    if format.drops_malformed:
        given |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _MALFORMED}
        schema += f", {_MALFORMED} STRING"
        conditions.append(f"{name}.{_MALFORMED} IS NULL")
    call = f"from_{format.name}({text}, {quote_literal(schema)}, {map_sql(given)})"
    return Decoded(call, fields, " AND ".join(conditions))
