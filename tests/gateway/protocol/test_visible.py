"""Metadata calls and sessions of users who may not know of everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

import tidegate
from tests.contract.examples import table
from tests.gateway.protocol.gateway import FakeCatalog, Gateway, running_gateway
from tidegate_server.core.config import Config
from tidegate_server.core.config_sections import AuthorizationSection, ServerSection
from tidegate_server.core.model.names import TableName

NAME = TableName("spark_catalog", "default", "hidden")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    config = Config(
        server=ServerSection(port=0, workers=4, disconnect_grace=0.0),
        authorization=AuthorizationSection(enabled=True, administrators=("root",)),
    )
    held = table(name=NAME, owner="ann")
    stored = replace(NAME, table="hidden_rows")
    other = replace(held, id="t-2", name=replace(NAME, table="shown"), owner="bob")
    catalog = FakeCatalog(replace(held, storage_table=stored), other)
    with running_gateway(config, catalog=catalog) as running:
        running.engine.owners = {("default", "orders"): "carl", ("other_db", ""): "dora"}
        function = TableName("spark_catalog", "other_db", "f")
        running.sessions._services.privileges.set_function_owner(function, "eve")
        yield running


def names(gateway: Gateway, user: str) -> set[str]:
    connection = tidegate.connect(host=gateway.host, port=gateway.port, user=user)
    with closing(connection), closing(connection.cursor()) as cursor:
        tables = {row[2] for row in cursor.tables().fetchall()}
        columns = {row[2] for row in cursor.columns().fetchall()}
        keys = {row[2] for row in cursor.primary_keys(None, None).fetchall()}
    assert columns <= tables
    assert keys <= tables
    return tables


def schemas(gateway: Gateway, user: str) -> set[str]:
    connection = tidegate.connect(host=gateway.host, port=gateway.port, user=user)
    with closing(connection), closing(connection.cursor()) as cursor:
        return {row[0] for row in cursor.schemas().fetchall()} - {"global_temp"}


def functions(gateway: Gateway, user: str) -> set[str]:
    connection = tidegate.connect(host=gateway.host, port=gateway.port, user=user)
    with closing(connection), closing(connection.cursor()) as cursor:
        return {row[2] for row in cursor.functions().fetchall()}


def test_metadata_calls_leave_out_what_a_user_may_not_know_of(gateway: Gateway) -> None:
    assert names(gateway, "ann") == {"hidden"}
    assert names(gateway, "bob") == {"shown"}
    assert names(gateway, "carl") == {"orders"}
    assert names(gateway, "root") == {"hidden", "shown", "orders", "recent", "t"}


def test_schemas_are_seen_by_those_who_see_an_object_in_them(gateway: Gateway) -> None:
    assert schemas(gateway, "ann") == {"default"}
    assert schemas(gateway, "dora") == {"default", "other_db"}
    assert schemas(gateway, "root") == {"default", "other_db"}


def test_functions_are_seen_by_those_who_may_call_them(gateway: Gateway) -> None:
    assert functions(gateway, "ann") == {"abs"}
    assert functions(gateway, "eve") == {"abs", "f"}
    assert functions(gateway, "root") == {"abs", "f"}


def test_no_session_opens_with_settings_its_user_may_not_change(gateway: Gateway) -> None:
    asked = {"spark.sql.catalog.mine": "com.example.Mine", "spark.sql.shuffle.partitions": "3"}
    with pytest.raises(tidegate.Error) as caught:
        tidegate.connect(host=gateway.host, port=gateway.port, user="bob", settings=asked)
    assert caught.value.code == "ACCESS_DENIED"
    connection = tidegate.connect(host=gateway.host, port=gateway.port, user="root", settings=asked)
    with closing(connection):
        [session] = gateway.sessions.sessions()
        assert session.state.settings == asked
