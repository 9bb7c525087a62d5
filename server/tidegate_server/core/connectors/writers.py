"""The connectors print and blackhole, whose tables can only be written.

https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/print/
https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/blackhole/
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate_server.core.connectors import options
from tidegate_server.core.connectors.columns import ConnectorTable, select
from tidegate_server.core.connectors.options import OptionError
from tidegate_server.core.connectors.sinks import Sink, marked
from tidegate_server.core.model.names import quote_identifier, quote_literal

_OPTIONS: Mapping[str, Mapping[str, options.Parse]] = {
    "print": {
        "connector": options.text,
        "print-identifier": options.text,
        "standard-error": options.refused("all rows go to the file print.log"),
        "sink.parallelism": options.refused("all rows go to one file"),
    },
    "blackhole": {"connector": options.text},
}


def writer_view(table: ConnectorTable) -> str:
    """Return a query that fails, marked with what becomes of the rows that are written.

    :raises OptionError: for invalid options and columns.
    """
    connector = table.options["connector"]
    given = options.read_options(table.options, _OPTIONS[connector], {}, {}).table
    if table.partition_keys:
        raise OptionError("PARTITIONED BY is for the connector filesystem")
    for each in table.columns:
        if each.metadata is not None:
            raise OptionError(f"the column {each.name} has METADATA, and its rows have none")
    if not table.fields:
        raise OptionError("it has no columns")
    reason = f"A table of the connector {connector} can only be written."
    relation = f"(SELECT 1) WHERE raise_error({quote_literal(reason)}) IS NULL"
    values = {each.name: f"CAST(NULL AS {each.type})" for each in table.fields}
    expressions = tuple(quote_identifier(each.name) for each in table.fields)
    if connector == "print":
        expressions = (_line(expressions, given.get("print-identifier", "")),)
    sink = Sink(columns=table.fields, expressions=expressions)
    return marked(select(table, values, relation), connector, sink)


def _line(columns: tuple[str, ...], identifier: str) -> str:
    """Return SQL for the text of a row, as Flink prints it."""
    texts = ", ".join(f"CAST({each} AS STRING)" for each in columns)
    before = f"{identifier}> +I[" if identifier else "+I["
    return f"concat({quote_literal(before)}, array_join(array({texts}), ', ', 'null'), ']')"
