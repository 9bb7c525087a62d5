"""Tables of connectors, as views of Spark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidegate_server.core.connectors import generators
from tidegate_server.core.connectors.changes import events_query
from tidegate_server.core.connectors.columns import ConnectorTable, ConnectorView
from tidegate_server.core.connectors.definition import (
    DEFINITION_PROPERTY,
    definition_sql,
    with_comment,
)
from tidegate_server.core.connectors.files import files_view
from tidegate_server.core.connectors.generators import (
    generated_stream,
    generator_view,
    temporary_properties,
)
from tidegate_server.core.connectors.jdbc import jdbc_view
from tidegate_server.core.connectors.kafka import kafka_view, upsert_kafka_view
from tidegate_server.core.connectors.mysql import events_query as mysql_events
from tidegate_server.core.connectors.mysql import mysql_view
from tidegate_server.core.connectors.readers import MISSING, READERS
from tidegate_server.core.connectors.sinks import mark_of
from tidegate_server.core.connectors.writers import writer_view
from tidegate_server.core.errors import Code, ServerError, error

PROPERTY = "connector"
"""The property of a view that has the name of its connector."""
KEY_PROPERTY = "connector.primary-key"

_READING = ("filesystem", "kafka", "upsert-kafka")
_MARKED: Mapping[str, Callable[[ConnectorTable], str]] = {
    "filesystem": files_view,
    "jdbc": jdbc_view,
    "kafka": kafka_view,
    "upsert-kafka": upsert_kafka_view,
    "mysql-cdc": mysql_view,
    **dict.fromkeys(("print", "blackhole"), writer_view),
}
"""The queries of views that begin with a comment that says what they are."""
_CONNECTORS = (*generators.CONNECTORS, *_MARKED)
_CALL = re.compile(rf"\bFROM ({'|'.join(name for name, each in READERS.items() if each.needs)})\(")
_MISSING = re.compile(rf", {MISSING} => 'true'(?=\))")


class UnknownConnectorError(Exception):
    """There is no such connector; ``hint`` says what to write instead."""

    def __init__(self, connector: str) -> None:
        near = difflib.get_close_matches(connector, _CONNECTORS, n=1)
        known = f"There are the connectors {', '.join(_CONNECTORS)}."
        self.hint = f"Did you mean {near[0]}?" if near else known
        super().__init__(f"connector '{connector}'")


def view_of(table: ConnectorTable, *, temporary: bool = False) -> ConnectorView:
    """Return the view of a table.

    :param temporary: whether Spark keeps no properties of it.
    :raises OptionError: for invalid options.
    :raises UnknownConnectorError: if the connector is another one.
    """
    connector = table.options[PROPERTY]
    if connector in generators.CONNECTORS:
        view = generator_view(table, temporary=temporary)
    elif connector in _MARKED:
        view = ConnectorView(_MARKED[connector](table), {})
    else:
        raise UnknownConnectorError(connector)
    definition = definition_sql(table)
    if temporary:
        return replace(view, query=with_comment(view.query, definition))
    key = {KEY_PROPERTY: ", ".join(table.primary_key)} if table.primary_key else {}
    own = {PROPERTY: connector, DEFINITION_PROPERTY: definition}
    return replace(view, properties={**own, **view.properties, **key})


def is_endless(text: str, given: Mapping[str, str]) -> bool:
    """Return whether an INSERT from a view becomes a job, since its rows have no end.

    :param text: the query of the view.
    :param given: the properties of the view; those of a temporary one are in its text.
    """
    found = given or temporary_properties(text)
    if generators.RATE_PROPERTY in found:
        return not found.get(generators.ROWS_PROPERTY)
    return _reads(text, given) in ("kafka", "upsert-kafka")


def stream_query(text: str, given: Mapping[str, str]) -> str | None:
    """Return the query that a materialized table ingests instead of a view.

    It is that of the view over another relation: anybody may write the properties, but the text of
    the view was checked when it was created.

    :param text: the query of the view.
    :param given: the properties of the view; those of a temporary one are in its text.
    :return: None if the view is no table of a connector.
    """
    connector, mark = _reads(text, given), mark_of(text)
    if connector == "mysql-cdc" and mark is not None:
        return mysql_events(text, mark.stream)
    if connector in _READING:
        found, count = _CALL.subn(r"FROM STREAM \1(", events_query(text), count=1)
        return _MISSING.sub("", found, count=1) if count else None
    return generated_stream(text, given or temporary_properties(text))


def connector_of(text: str, given: Mapping[str, str]) -> str | None:
    """Return the connector whose table a view is; None if it is another view.

    The parameters are those of :func:`refused_insert`.
    """
    if (mark := mark_of(text)) is not None:
        return mark.connector
    return given.get(PROPERTY) or ("datagen" if temporary_properties(text) else None)


def refused_insert(text: str, given: Mapping[str, str]) -> str | None:
    """Return why an INSERT into a view is refused, as a clause; None if this is not known.

    :param text: the query of the view.
    :param given: the properties of the view.
    """
    if (mark := mark_of(text)) is not None:
        return mark.refused or None
    if temporary_properties(text) or given.get(PROPERTY) in generators.CONNECTORS:
        return "its rows are generated"
    if given.get(PROPERTY) in _READING:
        return "it was created by an earlier version: create it again"
    return None


def unsupported_error(
    action: str, name: Sequence[str], connector: str | None, reason: str
) -> ServerError:
    """Return the error for a change that a table of a connector does not have.

    :param reason: a clause.
    """
    what = f"{action} on the table {'.'.join(name)} of the connector {connector}"
    return error(Code.NOT_SUPPORTED, what=what, hint=f"{reason[0].upper()}{reason[1:]}.")


def _reads(text: str, given: Mapping[str, str]) -> str:
    """Return the connector of a table that is over files or topics; empty for another."""
    if given:
        return given.get(PROPERTY, "")
    mark = mark_of(text)
    return "" if mark is None else mark.connector
