"""The calls of the engine to catalogs written in Python, without an engine."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tidegate_server.core.catalogs.base import Catalog, CatalogError, CatalogTable, TableColumn
from tidegate_server.core.catalogs.calls import CatalogCalls
from tidegate_server.core.catalogs.encoding import decode_table, encode_table
from tidegate_server.core.catalogs.options import CatalogOption

SECRET = "hush-hush"
TABLE = CatalogTable(
    format="csv",
    columns=(TableColumn(name="id", type="int", comment="key"), TableColumn(name="d", type="date")),
    partition_keys=("d",),
    location="/data/t",
    options={"header": "true"},
    comment="c",
    properties={"a": "b"},
)


@dataclass(frozen=True)
class Fixed:
    """A read-only catalog; exceptions among the tables are raised."""

    found: Mapping[str, Any] = field(default_factory=dict)

    def schemas(self) -> list[str]:
        return ["s"]

    def tables(self, schema: str) -> list[str]:
        return list(self.found)

    def get_table(self, schema: str, name: str) -> CatalogTable | None:
        found = self.found.get(name)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]


@dataclass(frozen=True)
class FixedType:
    """Opens one catalog."""

    catalog: Catalog
    name: str = "fixed"
    description: str = "What a test says."
    options: tuple[CatalogOption, ...] = ()

    def open(self, options: Mapping[str, str]) -> Catalog:
        if "wrong" in options:
            raise ValueError(f"{options['wrong']} is wrong")
        return self.catalog


def opened(catalog: Catalog) -> tuple[CatalogCalls, str]:
    """Return what answers, and the handle of a catalog."""
    calls = CatalogCalls(lambda name: FixedType(catalog))
    return calls, ask(calls, "open", type="fixed", options={}, secrets=[SECRET])["value"]


def ask(calls: CatalogCalls, method: str, **fields: Any) -> dict[str, Any]:
    """Return the answer to one request."""
    answer: dict[str, Any] = json.loads(calls.answer(json.dumps({"method": method, **fields})))
    return answer


def test_tables_survive_the_way() -> None:
    assert decode_table(json.loads(json.dumps(encode_table(TABLE)))) == TABLE
    calls, handle = opened(Fixed({"t": TABLE}))
    found = ask(calls, "get_table", catalog=handle, schema="s", table_name="t")
    assert decode_table(found["value"]) == TABLE
    assert ask(calls, "tables", catalog=handle, schema="s") == {"value": ["t"]}
    missing = ask(calls, "get_table", catalog=handle, schema="s", table_name="x")
    assert missing == {"value": None}


@pytest.mark.parametrize(
    ("found", "kind", "reason"),
    [
        (CatalogError(f"no rights with {SECRET}"), "refused", "no rights with *****"),
        (RuntimeError(SECRET), "failed", "RuntimeError: *****"),
        ({"format": "csv"}, "failed", "TypeError: get_table returned dict"),
        (CatalogTable(), "failed", "a table without a format"),
    ],
)
def test_failures_are_answers_without_secrets(
    found: object, kind: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls, handle = opened(Fixed({"t": found}))
    with caplog.at_level(logging.ERROR):
        answer = ask(calls, "get_table", catalog=handle, schema="s", table_name="t")
    assert answer["failure"] == kind
    assert reason in answer["reason"]
    assert SECRET not in caplog.text
    assert ("Traceback" in caplog.text) is (kind == "failed")


def test_what_is_missing_or_closed_is_said() -> None:
    calls, handle = opened(Fixed())
    dropped = ask(calls, "drop_table", catalog=handle, schema="s", table_name="t")
    assert dropped == {"failure": "not offered", "reason": "drop_table"}
    version = ask(calls, "version", catalog=handle, schema="s", table_name="t")
    assert version == {"value": {"known": False}}
    ask(calls, "close", catalog=handle)
    assert "changed or dropped" in ask(calls, "schemas", catalog=handle)["reason"]
    refused = ask(calls, "open", type="fixed", options={"wrong": SECRET}, secrets=[SECRET])
    assert refused == {"failure": "refused", "reason": "***** is wrong"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"columns": TABLE.columns * 2}, "two columns have one name"),
        ({"columns": TABLE.columns, "partition_keys": ("id",)}, "not the last columns"),
        ({"options": {"Path": "/x"}}, "is the location"),
    ],
)
def test_tables_without_a_meaning_are_rejected(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        CatalogTable(format="csv", **fields)


@dataclass(frozen=True)
class Holding(Fixed):
    """A catalog that does not let go."""

    released: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        self.released.wait(60)
        raise OSError("gone")


def test_a_catalog_that_does_not_close_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegate_server.core.catalogs.calls._CLOSE_SECONDS", 0.01)
    catalog = Holding()
    calls, handle = opened(catalog)
    assert ask(calls, "close", catalog=handle) == {"value": None}
    catalog.released.set()
    for thread in threading.enumerate():
        if thread.daemon and thread.name.endswith("(_run_close)"):
            thread.join(60)
    assert "could not be closed: OSError" in caplog.text
