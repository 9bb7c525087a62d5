"""The functions read_files and read_kafka: their parameters, in terms of Spark's data sources."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_server.core.connectors.registry import PARAMETERS
from tidegate_server.core.model.names import quote_identifier, quote_literal

_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FILES = (
    *("fileNamePattern", "ignoreCorruptFiles", "ignoreMissingFiles", "modifiedAfter"),
    *("modifiedBefore", "recursiveFileLookup"),
)
_TEXTS = (
    *("charset", "columnNameOfCorruptRecord", "dateFormat", "enableDateTimeParsingFallback"),
    *("encoding", "lineSep", "locale", "mode", "multiLine", "samplingRatio", "timeZone"),
    *("timestampFormat", "timestampNTZFormat"),
)
_FORMATS: Mapping[str, tuple[str, ...]] = {
    "json": (
        *("allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers"),
        *("allowNumericLeadingZeros", "allowSingleQuotes", "allowUnquotedControlChars"),
        *("allowUnquotedFieldNames", "dropFieldIfAllNull", "inferTimestamp", "prefersDecimal"),
        *("primitivesAsString", "singleVariantColumn", *_TEXTS),
    ),
    "csv": (
        *("charToEscapeQuoteEscaping", "columnPruning", "comment", "delimiter", "emptyValue"),
        *("enforceSchema", "escape", "header", "ignoreLeadingWhiteSpace"),
        *("ignoreTrailingWhiteSpace", "inputBufferSize", "maxCharsPerColumn", "maxColumns"),
        *("nanValue", "negativeInf", "nullValue", "positiveInf", "preferDate", "quote", "sep"),
        *("singleVariantColumn", "unescapedQuoteHandling", *_TEXTS),
    ),
    "avro": (
        *("avroSchema", "datetimeRebaseMode", "enableStableIdentifiersForUnionType"),
        *("positionalFieldMatching", "recursiveFieldMaxDepth"),
        "stableIdentifierPrefixForUnionType",
    ),
    "parquet": ("datetimeRebaseMode", "int96RebaseMode", "mergeSchema"),
    "orc": ("mergeSchema",),
    "text": ("encoding", "lineSep", "wholetext"),
}
"""The options of each format that have an effect on reading it."""
_KAFKA = (
    *("assign", "bootstrapServers", "failOnDataLoss", "fetchOffset.numRetries"),
    *("fetchOffset.retryIntervalMs", "groupIdPrefix", "includeHeaders"),
    *("kafkaConsumer.pollTimeoutMs", "minPartitions", "startingOffsets"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "startingTimestamp"),
    *("subscribe", "subscribePattern"),
    *(f"{part}{name}" for part in ("key", "value") for name in PARAMETERS),
)
_MYSQL = ("connection", "database", "table", "columns", "key", "startup", "servers")
MISSING = "allowMissingPath"
"""The parameter with which a directory that does not exist has no rows."""
_OF_STREAMS = ("latestFirst",)
_OF_QUERIES: Mapping[str, tuple[str, ...]] = {
    "read_files": ("inferSchema", MISSING),
    "read_kafka": ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A function that reads a data source."""

    needs: tuple[tuple[str, ...], ...] = ()
    """From each of these groups one parameter is required."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Spark's option names by parameters, in lower case, that have a different name."""
    source: str = ""
    """Spark's name of the source; if empty, the parameter ``format`` is the name."""
    formats: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    """Parameters, in lower case, that identify what is read."""


READERS: Mapping[str, Reader] = {
    "read_files": Reader(
        needs=(("path",), ("format",)),
        renamed={"filenamepattern": "pathGlobFilter"},
        formats=tuple(_FORMATS),
        identity=("path",),
    ),
    "read_kafka": Reader(
        needs=(("bootstrapServers",), ("subscribe", "subscribePattern", "assign")),
        renamed={"bootstrapservers": "kafka.bootstrap.servers"},
        source="kafka",
        identity=("subscribe", "subscribepattern", "assign"),
    ),
    "read_mysql": Reader(
        needs=tuple((name,) for name in ("connection", "database", "table", "columns", "key")),
        source="mysql",
        identity=("connection", "database", "table"),
    ),
    "rate": Reader(source="rate"),
}
"""The functions that can follow STREAM. The first two can also be read without it; read_mysql is
written by the server alone, for tables of the connector mysql-cdc."""


def parameters_of(function: str, source_format: str, *, stream: bool) -> tuple[str, ...]:
    """Return the names of all parameters of a function for a format.

    :param stream: whether it follows STREAM.
    """
    if function == "rate":
        return ("numPartitions", "rampUpTime", "rowsPerSecond")
    if function == "read_mysql":
        return _MYSQL
    only = _OF_STREAMS if stream else _OF_QUERIES[function]
    if function == "read_kafka":
        return (*_KAFKA, *(() if stream else only))
    return ("path", "format", "schema", *_FILES, *_FORMATS[source_format], *only)


def call_of(function: str, parameters: Mapping[str, str]) -> str:
    """Return a call as SQL, which may also follow STREAM."""
    given = (
        f"{key if _PLAIN.fullmatch(key) else quote_identifier(key)} => {quote_literal(value)}"
        for key, value in parameters.items()
    )
    return f"{function}({', '.join(given)})"


def unknown_parameter(function: str, source_format: str, name: str, *, stream: bool) -> str | None:
    """Return why a function has no such parameter, as a clause; None if it has it."""
    known = parameters_of(function, source_format, stream=stream)
    lower = name.lower()
    if lower in {each.lower() for each in known}:
        return None
    if function == "read_kafka" and lower.startswith("kafka."):
        return None
    other = parameters_of(function, source_format, stream=not stream) if function != "rate" else ()
    if lower in {each.lower() for each in other}:
        return f"{name} is for {'queries without STREAM' if stream else f'STREAM {function}'}"
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(lower, folded, n=1, cutoff=0.6)
    of = f"{function} of {source_format}" if source_format else function
    meant = f"; did you mean {folded[near[0]]}?" if near else ""
    return f"{of} has no parameter {name}{meant}"
