"""How Spark reads the tables of a Hive Metastore; pure.

Tables of Spark's data sources have their provider and their columns in properties, as Spark writes
them. All others say by which classes of Hive they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidegate_server.core.catalogs.base import (
    DELTA,
    HIVE,
    CatalogError,
    CatalogTable,
    SerDe,
    TableColumn,
    TablePartition,
)

_SOURCE: Final = "spark.sql.sources."
_PARTITIONS: Final = "spark.sql.partitionProvider"
_PATH: Final = "path"
_SPARK_FORMATS: Final = frozenset({"parquet", "orc", "avro", "csv", "json", "text", "xml"})
_FORMATS: Final[Mapping[tuple[str, str], str]] = {
    (
        "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    ): "parquet",
    (
        "org.apache.hadoop.hive.ql.io.orc.OrcSerde",
        "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
    ): "orc",
}
"""The data sources that read what these SerDes and input formats of Hive read."""
_SERDE: Final = "org.apache.hadoop.hive.serde2."
_TEXT: Final = "org.apache.hadoop.mapred.TextInputFormat"
_SEQUENCE: Final = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_RC: Final = "org.apache.hadoop.hive.ql.io.RCFileInputFormat"
_SERDES: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_SERDE}lazy.LazySimpleSerDe": (_TEXT, _SEQUENCE),
    f"{_SERDE}OpenCSVSerde": (_TEXT,),
    f"{_SERDE}RegexSerDe": (_TEXT,),
    f"{_SERDE}avro.AvroSerDe": ("org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat",),
    f"{_SERDE}columnar.ColumnarSerDe": (_RC,),
    f"{_SERDE}columnar.LazyBinaryColumnarSerDe": (_RC,),
    f"{_SERDE}lazybinary.LazyBinarySerDe": (_SEQUENCE,),
}
"""The SerDes that are used themselves, each with its input formats; all are in Spark's jars."""
_JSON: Final = "JsonSerDe"
_VIEWS: Final = ("VIRTUAL_VIEW", "MATERIALIZED_VIEW")
_NOTED: Final = (
    *("spark.sql.", "numFiles", "numRows", "numPartitions", "rawDataSize", "totalSize"),
    *("transient_lastDdlTime", "last_modified_", "COLUMN_STATS_ACCURATE", "EXTERNAL", "comment"),
    *("bucketing_version", "numFilesErasureCoded", "STATS_GENERATED", "DO_NOT_UPDATE_STATS"),
)
"""Begin the properties that Hive and Spark write for themselves."""
_ELSEWHERE: Final[Mapping[str, str]] = {
    "iceberg": "read it by a catalog with 'type' = 'iceberg', 'catalog-type' = 'hive' and the same "
    "uri",
    "paimon": "read it by a catalog with 'type' = 'paimon'",
    "jdbc": "read it by a catalog with 'type' = 'jdbc'",
}
"""How tables of other systems are read."""


def read_table(found: Mapping[str, Any]) -> CatalogTable:
    """Return how Spark reads a table.

    :param found: the structure ``Table`` of the metastore.
    :raises CatalogError: if it is a view, or has a format that Spark cannot read, with what to do.
    """
    properties = _texts(found.get("parameters"))
    provider = properties.get(f"{_SOURCE}provider", HIVE).lower()
    _refuse_others(found, properties, provider)
    shown = {key: value for key, value in properties.items() if not key.startswith(_NOTED)}
    comment = properties.get("comment") or None
    if provider == HIVE:
        return _of_hive(found, comment, shown)
    options = _texts(_serde_info(found).get("parameters"))
    location = options.pop(_PATH, "") or found["sd"].get("location")
    options.pop("serialization.format", None)
    columns, keys = ((), ()) if provider == DELTA else _columns_of_spark(found, properties)
    if keys and properties.get(_PARTITIONS, "").lower() != "catalog":
        reason = "the metastore does not have its partitions: run MSCK REPAIR TABLE in Spark"
        raise _refused(found, reason)
    return CatalogTable(
        format=provider,
        columns=columns,
        partition_keys=keys,
        location=location,
        options=options,
        comment=comment,
        properties=shown,
        read_only=True,
    )


def read_partitions(
    table: Mapping[str, Any], found: Sequence[Mapping[str, Any]]
) -> Sequence[TablePartition]:
    """Return the partitions of a table.

    :param found: structures ``Partition`` of the metastore.
    :raises CatalogError: if one has another format than the table.
    """
    hive = f"{_SOURCE}provider" not in _texts(table.get("parameters"))
    for each in found if hive else ():
        if _classes(each) != _classes(table):
            values = "/".join(each["values"])
            raise _refused(table, f"its partition {values} has another format than the table")
    return tuple(
        TablePartition(values=tuple(each["values"]), location=each["sd"]["location"])
        for each in found
    )


def _refuse_others(found: Mapping[str, Any], properties: Mapping[str, str], provider: str) -> None:
    handler = properties.get("storage_handler", "")
    system = provider if provider != HIVE else properties.get("table_type", "").lower()
    if found.get("tableType") in _VIEWS:
        reason = "it is a view, whose text is Hive's: create a view over its tables here instead"
        raise _refused(found, reason)
    if not handler and system in ("", *_SPARK_FORMATS, DELTA):
        if properties.get("transactional", "").lower() == "true":
            reason = (
                "it is transactional, with rows in files of changes that only Hive can read: "
                "write it to a table that is not transactional, and read that"
            )
            raise _refused(found, reason)
        return
    for name, advice in _ELSEWHERE.items():
        if name in (system, handler.lower()) or name in handler.lower():
            raise _refused(found, f"it is a table of {name.capitalize()}: {advice}")
    raise _refused(found, f"its format {system or handler} is not one of {', '.join(_readable())}")


def _readable() -> tuple[str, ...]:
    return (*sorted(_SPARK_FORMATS), DELTA)


def _of_hive(
    found: Mapping[str, Any], comment: str | None, properties: Mapping[str, str]
) -> CatalogTable:
    storage = found["sd"]
    serde, input_format, output_format = _classes(found)
    keys = found.get("partitionKeys", ())
    source = _FORMATS.get((serde, input_format))
    if source is None and input_format not in _SERDES.get(serde, ()):
        if serde.endswith(_JSON):
            reason = (
                "its SerDe for JSON finds fields whatever their case is, which Spark does not: "
                "create a table of Spark over its files with USING json, and read that"
            )
            raise _refused(found, reason)
        reason = f"Spark does not read its SerDe {serde} with the input format {input_format}"
        raise _refused(found, f"{reason}: write it to a table of Parquet or ORC, and read that")
    if storage.get("storedAsSubDirectories"):
        raise _refused(found, "its skewed values have directories of their own, which Spark lacks")
    return CatalogTable(
        format=source or HIVE,
        columns=tuple(map(_column, (*storage.get("cols", ()), *keys))),
        partition_keys=tuple(each["name"] for each in keys),
        location=storage.get("location"),
        # Hive also reads the settings of a SerDe from the properties of the table.
        options={} if source else {**properties, **_texts(_serde_info(found).get("parameters"))},
        comment=comment,
        properties=properties,
        read_only=True,
        serde=None
        if source
        else SerDe(serde=serde, input_format=input_format, output_format=output_format),
    )


def _column(found: Mapping[str, Any]) -> TableColumn:
    return TableColumn(name=found["name"], type=found["type"], comment=found.get("comment") or None)


def _classes(found: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the classes that read and write a table or a partition."""
    storage = found["sd"]
    serde = _serde_info(found).get("serializationLib")
    return (
        str(serde or ""),
        str(storage.get("inputFormat") or ""),
        str(storage.get("outputFormat") or ""),
    )


def _serde_info(found: Mapping[str, Any]) -> Mapping[str, Any]:
    information = found["sd"].get("serdeInfo")
    return information if isinstance(information, Mapping) else {}


def _texts(found: Mapping[str, Any] | None) -> dict[str, str]:
    return {key: str(value) for key, value in (found or {}).items()}


def _refused(found: Mapping[str, Any], reason: str) -> CatalogError:
    name = f"{found.get('dbName')}.{found.get('tableName')}"
    return CatalogError(f"the table {name} cannot be read, since {reason}")


# ---- what Spark notes of its tables ------------------------------------------------------------


def _columns_of_spark(
    found: Mapping[str, Any], properties: Mapping[str, str]
) -> tuple[tuple[TableColumn, ...], tuple[str, ...]]:
    """Return the columns of a table of a data source, the partition keys last, and these keys."""
    text = properties.get(f"{_SOURCE}schema")
    if text is None:
        parts = range(int(properties.get(f"{_SOURCE}schema.numParts", "0")))
        text = "".join(properties[f"{_SOURCE}schema.part.{number}"] for number in parts)
    if not text:
        raise _refused(found, "the metastore does not have its columns")
    columns = {field["name"]: _column_of_spark(field) for field in json.loads(text)["fields"]}
    count = int(properties.get(f"{_SOURCE}schema.numPartCols", "0"))
    keys = tuple(properties[f"{_SOURCE}schema.partCol.{number}"] for number in range(count))
    others = [column for name, column in columns.items() if name not in keys]
    return (*others, *(columns[key] for key in keys)), keys


def _column_of_spark(field: Mapping[str, Any]) -> TableColumn:
    metadata = field.get("metadata", {})
    limited = metadata.get("__CHAR_VARCHAR_TYPE_STRING")
    return TableColumn(
        name=field["name"],
        type=limited or sql_type(field["type"]),
        nullable=field["nullable"],
        comment=metadata.get("comment"),
    )


def sql_type(found: Any) -> str:
    """Return a type of Spark, which is JSON, as in SQL."""
    if isinstance(found, str):
        return {"timestamp": "timestamp_ltz"}.get(found, found)
    match found["type"]:
        case "array":
            return f"array<{sql_type(found['elementType'])}>"
        case "map":
            return f"map<{sql_type(found['keyType'])}, {sql_type(found['valueType'])}>"
        case "struct":
            fields = (
                f"`{each['name'].replace('`', '``')}`: {sql_type(each['type'])}"
                + ("" if each["nullable"] else " NOT NULL")
                for each in found["fields"]
            )
            return f"struct<{', '.join(fields)}>"
        case other:
            raise CatalogError(f"a column has the type {other}, which has no name in SQL")
