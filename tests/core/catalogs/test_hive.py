"""Catalogs of the type hive, without a metastore: its structures as Thrift writes them in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tidegate_server.core.catalogs.base import CatalogError, SerDe, TableColumn, TablePartition
from tidegate_server.core.catalogs.calls import CatalogCalls
from tidegate_server.core.catalogs.conformity import Outcome, Trial, check
from tidegate_server.core.catalogs.hive.catalog_type import Address, HiveType, address_of
from tidegate_server.core.catalogs.hive.tables import read_partitions, read_table, sql_type
from tidegate_server.gateway.catalog_types.options import find_problem

QL = "org.apache.hadoop.hive.ql.io"
PARQUET = {
    "inputFormat": f"{QL}.parquet.MapredParquetInputFormat",
    "outputFormat": f"{QL}.parquet.MapredParquetOutputFormat",
    "serdeInfo": {"serializationLib": f"{QL}.parquet.serde.ParquetHiveSerDe", "parameters": {}},
}
TEXT = {
    "inputFormat": "org.apache.hadoop.mapred.TextInputFormat",
    "outputFormat": f"{QL}.HiveIgnoreKeyTextOutputFormat",
    "serdeInfo": {
        "serializationLib": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
        "parameters": {"field.delim": "|"},
    },
}
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "Day", "type": "date", "nullable": True, "metadata": {}},
        {"name": "userId", "type": "long", "nullable": False, "metadata": {"comment": "whose"}},
        {
            "name": "code",
            "type": "string",
            "nullable": True,
            "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"},
        },
    ],
}


def table(storage: Mapping[str, Any] = PARQUET, **changes: Any) -> dict[str, Any]:
    """Return a table of the metastore."""
    columns = [{"name": "id", "type": "int", "comment": "key"}, {"name": "v", "type": "string"}]
    return {
        "dbName": "sales",
        "tableName": "orders",
        "tableType": "MANAGED_TABLE",
        "sd": {"cols": columns, "location": "hdfs://n/w/orders", **storage},
        "partitionKeys": [{"name": "day", "type": "date"}],
        "parameters": {"team": "x", "transient_lastDdlTime": "1", "numRows": "2", "comment": "c"},
        **changes,
    }


def of_spark(provider: str, **more: str) -> dict[str, Any]:
    """Return a table of a data source of Spark."""
    text = json.dumps(SCHEMA)
    parameters = {
        "spark.sql.sources.provider": provider,
        "spark.sql.sources.schema.numParts": "2",
        "spark.sql.sources.schema.part.0": text[:40],
        "spark.sql.sources.schema.part.1": text[40:],
        "spark.sql.sources.schema.numPartCols": "1",
        "spark.sql.sources.schema.partCol.0": "Day",
        "spark.sql.partitionProvider": "catalog",
        **more,
    }
    serde = {"parameters": {"path": "s3a://b/t", "serialization.format": "1", "header": "true"}}
    return table(
        {"cols": [], "location": "file:/w/t-__PLACEHOLDER__", "serdeInfo": serde},
        parameters=parameters,
        partitionKeys=[],
    )


def test_parquet_and_orc_of_hive_are_read_by_sparks_sources() -> None:
    found = read_table(table())
    assert (found.format, found.serde, found.read_only) == ("parquet", None, True)
    assert found.columns == (
        TableColumn(name="id", type="int", comment="key"),
        TableColumn(name="v", type="string"),
        TableColumn(name="day", type="date"),
    )
    assert (found.partition_keys, found.location) == (("day",), "hdfs://n/w/orders")
    assert (found.comment, found.properties, found.options) == ("c", {"team": "x"}, {})
    orc = {
        "inputFormat": f"{QL}.orc.OrcInputFormat",
        "outputFormat": f"{QL}.orc.OrcOutputFormat",
        "serdeInfo": {"serializationLib": f"{QL}.orc.OrcSerde"},
    }
    assert read_table(table(orc)).format == "orc"


def test_other_tables_of_hive_are_read_by_their_serde() -> None:
    found = read_table(table(TEXT, parameters={"skip.header.line.count": "1"}))
    assert found.format == "hive"
    assert found.serde == SerDe(
        serde=TEXT["serdeInfo"]["serializationLib"],
        input_format=TEXT["inputFormat"],
        output_format=TEXT["outputFormat"],
    )
    assert found.options == {"field.delim": "|", "skip.header.line.count": "1"}


def test_tables_of_spark_have_their_columns_in_properties() -> None:
    found = read_table(of_spark("CSV"))
    assert (found.format, found.location) == ("csv", "s3a://b/t")
    assert found.options == {"header": "true"}
    assert found.columns == (
        TableColumn(name="userId", type="long", nullable=False, comment="whose"),
        TableColumn(name="code", type="varchar(3)"),
        TableColumn(name="Day", type="date"),
    )
    assert found.partition_keys == ("Day",)
    delta = read_table(of_spark("delta"))
    assert (delta.format, delta.columns, delta.partition_keys) == ("delta", (), ())


def test_types_of_spark_are_written_as_in_sql() -> None:
    inner = {"name": "a`b", "type": "timestamp", "nullable": False, "metadata": {}}
    struct = {"type": "struct", "fields": [inner]}
    array = {"type": "array", "elementType": struct, "containsNull": True}
    kind = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    assert sql_type(kind) == "map<string, array<struct<`a``b`: timestamp_ltz NOT NULL>>>"
    with pytest.raises(CatalogError, match="udt"):
        sql_type({"type": "udt"})


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (table(tableType="VIRTUAL_VIEW"), "create a view over its tables here"),
        (table(parameters={"transactional": "TRUE"}), "only Hive can read"),
        (table(parameters={"table_type": "ICEBERG"}), "'type' = 'iceberg', 'catalog-type'"),
        (table(parameters={"storage_handler": "o.a.p.hive.PaimonStorageHandler"}), "Paimon"),
        (table(parameters={"storage_handler": "x.HBaseStorageHandler"}), "x.HBaseStorageHandler"),
        (of_spark("org.example.Source"), "org.example.source is not one of avro, csv"),
        (of_spark("csv", **{"spark.sql.partitionProvider": ""}), "MSCK REPAIR TABLE"),
        (table({**TEXT, "inputFormat": "x.SymlinkTextInputFormat"}), "SymlinkTextInputFormat"),
        (
            table({**TEXT, "serdeInfo": {"serializationLib": "o.a.hcatalog.data.JsonSerDe"}}),
            "USING json",
        ),
        (table({**PARQUET, "storedAsSubDirectories": 1}), "skewed"),
        (table(parameters={"spark.sql.sources.provider": "json"}), "does not have its columns"),
    ],
)
def test_what_spark_cannot_read_is_refused_with_what_to_do(
    found: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(CatalogError, match=r"sales\.orders cannot be read") as caught:
        read_table(found)
    assert reason in str(caught.value)


def test_partitions_have_the_format_of_their_table() -> None:
    first = {"values": ["2026-01-01"], "sd": {"location": "/a", **PARQUET}}
    listed = read_partitions(table(), [first])
    assert listed == (TablePartition(values=("2026-01-01",), location="/a"),)
    other = {"values": ["2026-01-02"], "sd": {"location": "/b", **TEXT}}
    with pytest.raises(CatalogError, match="2026-01-02 has another format"):
        read_partitions(table(), [first, other])
    # Spark does not note the classes of the partitions of its own tables.
    assert len(read_partitions(of_spark("csv"), [first, other])) == 2


@dataclass
class Known:
    """A metastore with one table."""

    address: Address
    asked: list[str] = field(default_factory=list)

    def databases(self) -> list[str]:
        return ["sales", "default"]

    def tables(self, database: str) -> list[str]:
        return ["orders"] if database == "sales" else []

    def table(self, database: str, name: str) -> Mapping[str, Any] | None:
        self.asked.append(name)
        return table(TEXT) if (database, name) == ("sales", "orders") else None

    def partitions(self, database: str, name: str) -> list[Mapping[str, Any]]:
        return [{"values": ["2026-01-01"], "sd": {"location": "/a", **TEXT}}]

    def close(self) -> None:
        self.asked.append("close")


def test_the_engine_asks_for_tables_and_partitions() -> None:
    calls = CatalogCalls(lambda name: HiveType(Known))

    def ask(method: str, **fields: Any) -> Any:
        answer = json.loads(calls.answer(json.dumps({"method": method, **fields})))
        return answer.get("value", answer)

    options = {"uri": "thrift://h:9083"}
    catalog = ask("open", name="h", type="hive", options=options, secrets=[])
    assert ask("schemas", catalog=catalog) == ["default", "sales"]
    assert ask("tables", catalog=catalog, schema="sales") == ["orders"]
    found = ask("get_table", catalog=catalog, schema="sales", table_name="orders")
    assert found["read_only"] is True
    assert found["serde"]["input_format"] == TEXT["inputFormat"]
    assert ask("get_table", catalog=catalog, schema="sales", table_name="no") is None
    listed = ask("partitions", catalog=catalog, schema="sales", table_name="orders")
    assert listed == [{"values": ["2026-01-01"], "location": "/a"}]
    made = ask("create_table", catalog=catalog, schema="s", table_name="t", table={})
    assert made["failure"] == "not offered"


def test_options_lead_to_a_metastore(tmp_path: Path) -> None:
    assert address_of({"uri": "thrift://a:1, thrift://b:2"}) == Address(
        uris="thrift://a:1,thrift://b:2"
    )
    (tmp_path / "hive-site.xml").write_text("<configuration/>")
    site = str(tmp_path / "hive-site.xml")
    for directory in (str(tmp_path), f"file://{tmp_path}"):
        assert address_of({"hive-conf-dir": directory}) == Address(site=site)
    for options, reason in (
        ({}, "needs uri or hive-conf-dir"),
        ({"uri": "http://a:1"}, "http://a:1 is not of the form thrift://host:port"),
        ({"uri": "thrift://a"}, "thrift://a is not of the form"),
        ({"hive-conf-dir": "/nowhere"}, "there is no file /nowhere/hive-site.xml"),
        ({"hive-conf-dir": "here"}, "no absolute path"),
        ({"uri": "thrift://a:1", "hive-version": "3.1.3"}, "Spark's own client"),
        ({"uri": "thrift://a:1", "hadoop-conf-dir": "/x"}, "engine.settings"),
    ):
        with pytest.raises(ValueError, match=reason.split("(")[0]):
            address_of(options)
    problem = find_problem(HiveType(), {"urii": "x"})
    assert problem is not None and "no option urii" in problem.reason


@dataclass
class Odd(Known):
    """A metastore whose partition has a value too many."""

    def partitions(self, database: str, name: str) -> list[Mapping[str, Any]]:
        [only] = super().partitions(database, name)
        return [{**only, "values": ["2026-01-01", "x"]}]


@pytest.mark.parametrize(("metastore", "outcome"), [(Known, "HOLDS"), (Odd, "BROKEN")])
def test_the_conformity_suite_reads_partitions(
    tmp_path: Path, metastore: type[Known], outcome: str
) -> None:
    findings = list(check(Trial(HiveType(metastore), {"uri": "thrift://h:1"}, tmp_path)))
    [found] = [each for each in findings if "partitions" in each.rule]
    assert found.outcome is Outcome[outcome]
    broken = [each for each in findings if each.outcome is Outcome.BROKEN]
    assert broken == ([] if outcome == "HOLDS" else [found])
