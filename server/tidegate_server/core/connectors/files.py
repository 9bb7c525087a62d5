"""The connector filesystem: files in a directory.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/filesystem/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidegate_server.core.connectors import options
from tidegate_server.core.connectors.columns import ConnectorTable, select
from tidegate_server.core.connectors.formats import read_format, require_text, schema_of
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.readers import MISSING, call_of
from tidegate_server.core.connectors.sinks import files_sink, line_sql, marked
from tidegate_server.core.model.names import quote_identifier

_OPTIONS: Mapping[str, options.Parse] = {
    "connector": options.text,
    "path": options.text,
    "format": options.text,
    "source.monitor-interval": options.refused(
        "a materialized table looks for new files as often as its FRESHNESS requires"
    ),
    "source.path.regex-pattern": options.refused(
        "patterns are part of the path, as in '/data/*/orders'"
    ),
    "partition.default-name": options.refused("it is __HIVE_DEFAULT_PARTITION__"),
    **dict.fromkeys(
        (
            *("auto-compaction", "compaction.file-size", "compaction.parallelism"),
            *("sink.rolling-policy.check-interval", "sink.rolling-policy.file-size"),
            *("sink.rolling-policy.inactivity-interval", "sink.rolling-policy.rollover-interval"),
            *("sink.partition-commit.trigger", "sink.partition-commit.delay"),
            *("sink.partition-commit.policy.kind", "sink.partition-commit.success-file.name"),
            "sink.partition-commit.watermark-time-zone",
        ),
        options.refused("each INSERT writes files of its own, complete when it ends"),
    ),
}
_METADATA: Mapping[str, str] = {
    "file.path": "_metadata.file_path",
    "file.name": "_metadata.file_name",
    "file.size": "_metadata.file_size",
    "file.modification-time": "_metadata.file_modification_time",
}


def files_view(table: ConnectorTable) -> str:
    """Return the query over the files of a table, marked with how they are written.

    :raises OptionError: for invalid options and columns.
    """
    format = read_format(table.options, "format")
    prefix = f"{table.options['format']}."
    own = {key: value for key, value in table.options.items() if not key.startswith(prefix)}
    given = options.read_options(own, _OPTIONS, {}, {}).table
    if "path" not in given:
        raise OptionError("path is missing")
    fields = table.fields
    keys = {key.lower() for key in table.partition_keys}
    if missing := keys - {each.name.lower() for each in fields}:
        raise OptionError(f"PARTITIONED BY names {min(missing)}, which is no column of the files")
    rows = [each for each in fields if each.name.lower() not in keys]
    require_text(format, rows)
    if format.name == "raw":
        values = {rows[0].name: f"CAST({line_sql(format)} AS {rows[0].type})"}
        values |= {
            each.name: f"CAST({quote_identifier(each.name)} AS {each.type})"
            for each in fields
            if each not in rows
        }
        keyed = [replace(rows[0], name="value", type="STRING")]
        keyed += [each for each in fields if each not in rows]
        schema = {"schema": schema_of(keyed)}
    elif format.name == "avro":
        format.avro_files.check(rows)
        values = {
            each.name: format.avro_files.read_sql(each)
            if each in rows
            else quote_identifier(each.name)
            for each in fields
        }
        stored = [
            replace(each, type=format.avro_files.type_of(each)) if each in rows else each
            for each in fields
        ]
        schema = {"schema": schema_of(stored)}
    else:
        values = {each.name: quote_identifier(each.name) for each in fields}
        schema = {"schema": schema_of(fields)}
    for each in table.columns:
        if each.metadata is not None:
            values[each.name] = f"CAST({_metadata(each.metadata)} AS {each.type})"
    call = call_of(
        "read_files",
        {"path": given["path"], "format": format.spark_name, **schema, **format.spark_options()}
        | {MISSING: "true"},  # an INSERT may create it
    )
    ordered = {each.name: values[each.name] for each in table.columns if each.type}
    sink = files_sink(fields, table.partition_keys, format, given["path"])
    return marked(select(table, ordered, call), "filesystem", sink)


def _metadata(key: str) -> str:
    if key not in _METADATA:
        raise options.unknown("metadata", key, _METADATA)
    return _METADATA[key]
