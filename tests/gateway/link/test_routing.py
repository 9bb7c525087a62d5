"""Which requests run in the engine of a table's executor."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from tidegate_server.core.messages.encoding import REQUESTS
from tidegate_server.core.messages.requests import CreateTable, LastCommit, Request
from tidegate_server.core.model.names import TableName
from tidegate_server.core.model.types import Schema
from tidegate_server.core.refresh.request import RefreshOrder
from tidegate_server.gateway.link.routing import table_of

NAME = TableName("spark_catalog", "s", "t")
BY_THE_GATEWAY = {
    # reads the table's log
    "LastCommit",
    # change the metastore alone
    "PutView",
    "DropView",
    "RegisterTable",
}


class _Of:
    """Has the id of a table where a request of that type has it."""

    def __init__(self) -> None:
        self.table_id = "7"


def _bare(kind: type[Request[Any]]) -> Request[Any]:
    """Return a request of a type with nothing but the id of its table."""
    request = object.__new__(kind)
    for name in ("table_id", "order"):
        if name in get_type_hints(kind):
            object.__setattr__(request, name, "7" if name == "table_id" else _Of())
    return request


def test_every_request_about_a_table_runs_in_its_executors_engine_or_only_reads() -> None:
    about_tables = {
        name: kind
        for name, kind in REQUESTS.items()
        if {"table_id", "order"} & {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    }
    routed = {name for name, kind in about_tables.items() if table_of(_bare(kind)) == "7"}
    assert about_tables.keys() - routed == BY_THE_GATEWAY


def test_a_new_table_is_found_by_the_id_in_its_properties() -> None:
    request = CreateTable(
        name=NAME,
        schema=Schema(()),
        partition_keys=(),
        comment=None,
        properties={"tidegate.id": "7"},
    )
    assert table_of(request) == "7"


def test_reading_a_commit_is_the_gateways_own_work() -> None:
    assert table_of(LastCommit(name=NAME, table_id="7")) is None


def test_orders_name_their_table() -> None:
    assert "table_id" in {field.name for field in dataclasses.fields(RefreshOrder)}
