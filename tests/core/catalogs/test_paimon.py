"""Catalogs of Paimon with pypaimon, without Spark."""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate_server.core.catalogs.base import CatalogError, CatalogTable, TableColumn
from tidegate_server.core.catalogs.calls import CatalogCalls
from tidegate_server.core.catalogs.conformity import Outcome, Trial, check
from tidegate_server.core.catalogs.paimon.catalog import PaimonCatalog
from tidegate_server.core.catalogs.paimon.catalog_type import PaimonPythonType
from tidegate_server.core.catalogs.rows import (
    WEIGHT,
    Overwrite,
    RowFilter,
    RowReader,
    RowScan,
    RowWriter,
)

pytest.importorskip("pypaimon")
# pypaimon wants an older pyarrow than that of the other tests.
pytestmark = pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")

ID = TableColumn(name="id", type="INT")
NAME = TableColumn(name="name", type="STRING", comment="who")
DAY = TableColumn(name="day", type="DATE")


@pytest.fixture
def catalog(tmp_path: Path) -> PaimonCatalog:
    found = PaimonPythonType().open({"warehouse": str(tmp_path)})
    found.create_schema("s", {})
    return found


def create(catalog: PaimonCatalog, name: str, **properties: str) -> CatalogTable:
    given = {key.replace("_", "-"): value for key, value in properties.items()}
    return catalog.create_table("s", name, CatalogTable(columns=(ID, NAME), properties=given))


def insert(
    catalog: PaimonCatalog,
    name: str,
    *rows: Mapping[str, object],
    overwrite: Overwrite = Overwrite.NOTHING,
) -> None:
    """Write each row by a task of its own, as Spark's workers do."""
    table = catalog.get_table("s", name)
    assert table is not None
    kinds = {"INT": pa.int32(), "STRING": pa.string(), "DATE": pa.date32()}
    schema = pa.schema([(each.name, kinds[each.type]) for each in table.columns])
    writer = catalog.write_rows("s", name, overwrite)
    write = pickle.loads(pickle.dumps(writer.write))
    written = [write(iter([pa.RecordBatch.from_pylist([row], schema=schema)])) for row in rows]
    catalog.commit_rows("s", name, overwrite, written)


def read(catalog: PaimonCatalog, name: str, *columns: str, **scan: Any) -> list[tuple[Any, ...]]:
    """Return sorted rows, as Spark's workers read them."""
    version = catalog.table_version("s", name, None, None)
    assert version is not None
    wanted = RowScan(**{"version": version.newest, "columns": columns or ("id", "name"), **scan})
    reader = catalog.read_rows("s", name, wanted)
    function = pickle.loads(pickle.dumps(reader.read))
    found = [row for part in reader.parts for batch in function(part) for row in batch.to_pylist()]
    assert len(found) <= reader.rows
    return sorted(tuple(row[key] for key in wanted.columns) for row in found)


def row(id: int, name: str) -> dict[str, object]:
    return {"id": id, "name": name}


# ---- the catalog ---------------------------------------------------------------------------------


def test_it_keeps_the_rules_of_catalogs(tmp_path: Path) -> None:
    warehouse, scratch = tmp_path / "warehouse", tmp_path / "scratch"
    for each in (warehouse, scratch):
        each.mkdir()
    trial = Trial(kind=PaimonPythonType(), options={"warehouse": str(warehouse)}, scratch=scratch)
    others = [each for each in check(trial) if each.outcome is not Outcome.HOLDS]
    assert [each.rule for each in others if "partitions" not in each.rule] == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"metastore": "HIVE"}, "only Paimon's jar for Spark, in engine.jars, has the metastore"),
        ({"cache-enabled": "true"}, "only Paimon's jar for Spark, in engine.jars, has cache-ena"),
        ({"warehouse": "lake"}, "the warehouse lake is no absolute path"),
    ],
)
def test_what_only_the_jar_has_is_refused(options: Mapping[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        PaimonPythonType().open({"warehouse": "/tmp", **options})


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypaimon", None)
    with pytest.raises(CatalogError, match=r"run pip install 'tidegate\[paimon\]', or add"):
        PaimonPythonType().open({"warehouse": "/lake"})


@pytest.mark.parametrize("name", ["..", "a/b", "a.b", "a b", "", "t$snapshots", "*"])
def test_a_name_that_is_no_directory_of_its_own_is_refused(
    catalog: PaimonCatalog, name: str
) -> None:
    assert catalog.get_table("s", name) is None
    assert catalog.get_table(name, "t") is None
    assert not catalog.drop_table("s", name)
    with pytest.raises(CatalogError, match="is no name for it"):
        catalog.create_table("s", name, CatalogTable(columns=(ID,)))
    with pytest.raises(CatalogError, match="is no name for it"):
        catalog.create_schema(name, {})


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (CatalogTable(location="/elsewhere"), "it chooses the LOCATION of its tables"),
        (CatalogTable(format="parquet"), "not USING parquet"),
        (CatalogTable(options={"a": "b"}), "options of its tables are TBLPROPERTIES"),
        (CatalogTable(properties={"primary-key": "no"}), "no column no for the primary key"),
        (
            CatalogTable(properties={"data-file.external-paths": "file:///etc"}),
            "the property data-file.external-paths of its tables cannot be set",
        ),
        (CatalogTable(properties={"path": "/etc"}), "the property path of its tables cannot be"),
        (CatalogTable(properties={"buckets": "1"}), "cannot be set; did you mean bucket"),
    ],
)
def test_a_table_that_would_reach_elsewhere_is_refused(
    catalog: PaimonCatalog, table: CatalogTable, reason: str
) -> None:
    with pytest.raises(CatalogError, match=reason):
        catalog.create_table("s", "t", replace(table, columns=(ID, NAME)))
    assert catalog.tables("s") == []


def test_columns_keep_their_types(catalog: PaimonCatalog) -> None:
    types = (
        *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)"),
        *("STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<INT>"),
        *("MAP<STRING, ARRAY<DATE>>", "STRUCT<`a`: INT, `b`: STRUCT<`c`: STRING>>"),
    )
    columns = tuple(TableColumn(name=f"c{n}", type=each) for n, each in enumerate(types))
    made = catalog.create_table("s", "t", CatalogTable(columns=columns))
    assert made.columns == columns
    made = catalog.create_table(
        "s", "v", CatalogTable(columns=(TableColumn(name="a", type="VARCHAR(10)"),))
    )
    assert made.columns[0].type == "STRING"


def test_a_type_that_paimon_lacks_is_refused(catalog: PaimonCatalog) -> None:
    column = TableColumn(name="gap", type="INTERVAL DAY TO SECOND")
    with pytest.raises(CatalogError, match="Paimon has no type INTERVAL DAY TO SECOND"):
        catalog.create_table("s", "t", CatalogTable(columns=(column,)))


def test_the_key_of_a_table_cannot_be_changed(catalog: PaimonCatalog) -> None:
    made = create(catalog, "t", primary_key="id", bucket="1")
    assert made.properties == {"primary-key": "id", "bucket": "1"}
    assert not made.columns[0].nullable
    with pytest.raises(CatalogError, match="the primary key of a table cannot be changed"):
        catalog.alter_table("s", "t", replace(made, properties={"bucket": "1"}))


def test_defaults_of_the_catalog_are_those_of_new_tables(tmp_path: Path) -> None:
    options = {"warehouse": str(tmp_path), "table-default.file.format": "orc"}
    catalog = PaimonPythonType().open(options)
    catalog.create_schema("s", {})
    assert create(catalog, "t").properties == {"file.format": "orc"}
    insert(catalog, "t", row(1, "a"))
    assert [each.suffix for each in tmp_path.glob("s.db/t/bucket-0/*")] == [".orc"]
    assert read(catalog, "t") == [(1, "a")]


# ---- rows ----------------------------------------------------------------------------------------


def test_rows_are_written_by_several_tasks_and_committed_once(catalog: PaimonCatalog) -> None:
    create(catalog, "t")
    insert(catalog, "t", row(1, "a"), row(2, "b"))
    insert(catalog, "t", row(3, "c"))
    assert read(catalog, "t") == [(1, "a"), (2, "b"), (3, "c")]
    assert read(catalog, "t", "name", version=1) == [("a",), ("b",)]
    insert(catalog, "t", row(4, "d"), overwrite=Overwrite.ALL)
    assert read(catalog, "t") == [(4, "d")]
    version = catalog.table_version("s", "t", None, None)
    assert version is not None
    assert (version.version, version.newest) == (3, 3)


def test_rows_with_a_key_replace_each_other(catalog: PaimonCatalog) -> None:
    create(catalog, "t", primary_key="id", bucket="2")
    writer = catalog.write_rows("s", "t", Overwrite.NOTHING)
    assert (writer.cluster_by, writer.one_task) == (("id",), False)
    insert(catalog, "t", *(row(n, "a") for n in range(4)))
    insert(catalog, "t", row(2, "b"))
    assert read(catalog, "t") == [(0, "a"), (1, "a"), (2, "b"), (3, "a")]
    same = RowFilter(op="=", column="name", values=("a",))
    assert read(catalog, "t", filters=(same,), version=2) == [(0, "a"), (1, "a"), (3, "a")]


def test_buckets_without_a_number_are_filled_by_one_task(catalog: PaimonCatalog) -> None:
    create(catalog, "t", primary_key="id")
    assert catalog.write_rows("s", "t", Overwrite.NOTHING).one_task


def test_partitions_are_replaced_alone(catalog: PaimonCatalog) -> None:
    catalog.create_table("s", "t", CatalogTable(columns=(ID, NAME, DAY), partition_keys=("day",)))
    first, second = date(2026, 1, 1), date(2026, 1, 2)
    insert(catalog, "t", {**row(1, "a"), "day": first}, {**row(2, "b"), "day": second})
    insert(catalog, "t", {**row(3, "c"), "day": second}, overwrite=Overwrite.PARTITIONS)
    assert read(catalog, "t") == [(1, "a"), (3, "c")]
    on_first = RowFilter(op="=", column="day", values=("2026-01-01",))
    wanted = RowScan(version=2, columns=("id",), filters=(on_first,))
    assert len(catalog.read_rows("s", "t", wanted).parts) == 1
    insert(catalog, "t", {**row(4, "d"), "day": first}, overwrite=Overwrite.ALL)
    assert read(catalog, "t") == [(4, "d")]


def test_discarded_files_are_deleted(catalog: PaimonCatalog, tmp_path: Path) -> None:
    create(catalog, "t")
    writer = catalog.write_rows("s", "t", Overwrite.NOTHING)
    batch = pa.RecordBatch.from_pylist(
        [row(1, "a")], schema=pa.schema([("id", pa.int32()), ("name", pa.string())])
    )
    written = writer.write(iter([batch]))
    assert list(tmp_path.glob("s.db/t/bucket-0/*"))
    catalog.discard_rows("s", "t", [written])
    assert not list(tmp_path.glob("s.db/t/bucket-0/*"))
    assert read(catalog, "t") == []


CONDITIONS = (
    (RowFilter(op=">", column="id", values=("3",)), 2),
    (RowFilter(op="in", column="id", values=("1", "5")), 2),
    (RowFilter(op="starts with", column="name", values=("n1",)), 1),
    (RowFilter(op="is null", column="name"), 0),
    (RowFilter(op="is not null", column="name"), 5),
    (
        RowFilter(
            op="or",
            parts=(
                RowFilter(op="<", column="id", values=("2",)),
                RowFilter(op="=", column="name", values=("n4",)),
            ),
        ),
        2,
    ),
    # What cannot be expressed keeps all rows.
    (RowFilter(op="like", column="name", values=("n1",)), 5),
    (
        RowFilter(
            op="or",
            parts=(
                RowFilter(op="<", column="id", values=("2",)),
                RowFilter(op="like", column="name", values=("n4",)),
            ),
        ),
        5,
    ),
    (RowFilter(op="=", column="missing", values=("1",)), 5),
)


@pytest.mark.parametrize(("condition", "rows"), CONDITIONS)
def test_conditions_leave_out_rows(catalog: PaimonCatalog, condition: RowFilter, rows: int) -> None:
    create(catalog, "t")
    insert(catalog, "t", *(row(n, f"n{n}") for n in range(1, 6)))
    assert len(read(catalog, "t", filters=(condition,))) == rows


# ---- versions and changes ------------------------------------------------------------------------


def test_versions_are_snapshots(catalog: PaimonCatalog) -> None:
    create(catalog, "t")
    empty = catalog.table_version("s", "t", None, None)
    assert empty is not None
    assert (empty.version, empty.commit) == (0, "@0")
    insert(catalog, "t", row(1, "a"))
    insert(catalog, "t", row(2, "b"))
    first = catalog.table_version("s", "t", "1", None)
    second = catalog.table_version("s", "t", None, None)
    assert first is not None and second is not None
    assert (first.version, second.version) == (1, 2)
    assert first.table_id == second.table_id == empty.table_id
    assert first.commit != second.commit
    at = catalog.found.get_table("s.t").snapshot_manager().get_snapshot_by_id(1).time_millis
    assert catalog.table_version("s", "t", None, at) == first
    catalog.found.get_table("s.t").create_tag("monthly", 1)
    assert catalog.table_version("s", "t", "monthly", None) == first
    assert catalog.table_version("s", "missing", None, None) is None
    for version, reason in (("7", "no snapshot 7"), ("weekly", "no snapshot and no tag weekly")):
        with pytest.raises(CatalogError, match=reason):
            catalog.table_version("s", "t", version, None)
    with pytest.raises(CatalogError, match="as old as that"):
        catalog.table_version("s", "t", None, 1)


def test_a_new_table_of_the_name_is_another_one(catalog: PaimonCatalog) -> None:
    create(catalog, "t")
    insert(catalog, "t", row(1, "a"))
    before = catalog.table_version("s", "t", None, None)
    catalog.drop_table("s", "t")
    create(catalog, "t")
    insert(catalog, "t", row(1, "a"))
    after = catalog.table_version("s", "t", None, None)
    assert before is not None and after is not None
    assert before.commit != after.commit


def test_new_columns_are_read_in_old_versions_and_change_the_commit(
    catalog: PaimonCatalog,
) -> None:
    made = create(catalog, "t")
    insert(catalog, "t", row(1, "a"))
    before = catalog.table_version("s", "t", None, None)
    catalog.alter_table("s", "t", replace(made, columns=(*made.columns, DAY), comment="c"))
    after = catalog.table_version("s", "t", None, None)
    assert before is not None and after is not None
    assert before.version == after.version
    assert before.commit != after.commit
    assert read(catalog, "t", "id", "day", version=1) == [(1, None)]


def test_a_change_has_the_rows_of_files_of_one_version(catalog: PaimonCatalog) -> None:
    create(catalog, "t")
    insert(catalog, "t", row(1, "a"))
    insert(catalog, "t", row(2, "b"), row(3, "c"))
    columns = ("id", "name", WEIGHT)
    assert read(catalog, "t", *columns, after=1) == [(2, "b", 1), (3, "c", 1)]
    assert read(catalog, "t", *columns, after=0, version=1) == [(1, "a", 1)]
    assert read(catalog, "t", *columns, after=2, version=2) == []
    insert(catalog, "t", row(4, "d"), overwrite=Overwrite.ALL)
    assert read(catalog, "t", WEIGHT, "id", after=1) == [(-1, 1), (1, 4)]


def test_a_change_with_a_key_reads_the_buckets_that_differ(catalog: PaimonCatalog) -> None:
    create(catalog, "t", primary_key="id", bucket="4")
    insert(catalog, "t", *(row(n, "a") for n in range(8)))
    insert(catalog, "t", row(3, "b"))
    found = read(catalog, "t", "id", "name", WEIGHT, after=1)
    net: dict[tuple[int, str], int] = {}
    for id, name, weight in found:
        net[id, name] = net.get((id, name), 0) + weight
    assert {key: weight for key, weight in net.items() if weight} == {(3, "a"): -1, (3, "b"): 1}
    assert len(found) < 16  # not all buckets


# ---- calls of the engine -------------------------------------------------------------------------


class PlainWorkers:
    """Functions as they are."""

    def reading(self, reader: RowReader, columns: str) -> bytes:
        return f"read {columns}".encode()

    def writing(self, writer: RowWriter) -> bytes:
        return pickle.dumps(writer.write)


def test_the_engine_asks_in_json(tmp_path: Path) -> None:
    calls = CatalogCalls(lambda _: PaimonPythonType(), PlainWorkers())

    def ask(method: str, **fields: object) -> Any:
        answer = json.loads(calls.answer(json.dumps({"method": method, **fields})))
        return answer.get("value", answer)

    opened = ask("open", type="paimon", options={"warehouse": str(tmp_path)}, secrets=[])
    names = {"catalog": opened, "schema": "s", "table_name": "t"}
    ask("create_schema", **names, properties={})
    table = {"columns": [{"name": "id", "type": "INT"}], "partition_keys": []}
    assert ask("create_table", **names, table=table)["format"] == "rows"
    plan = ask("write_rows", **names, overwrite="nothing")
    assert (plan["cluster_by"], plan["one_task"]) == ([], False)
    write = pickle.loads(base64.b64decode(plan["function"]))
    message = base64.b64encode(write(iter([pa.record_batch({"id": pa.array([7], pa.int32())})])))
    done = ask("commit_rows", **names, overwrite="nothing", written=[message.decode()])
    assert done is None
    state = ask("table_version", **names, at_version=None, at_millis=None)
    assert state["version"] == 1
    scan = {"version": 1, "columns": ["id"], "filters": [{"op": "is not null", "column": "id"}]}
    found = ask("read_rows", **names, scan=scan, columns="{}")
    assert base64.b64decode(found["function"]) == b"read {}"
    assert (len(found["parts"]), found["rows"], found["removed"]) == (1, 1, 0)
    missing = ask("table_version", **names, at_version="9", at_millis=None)
    assert missing["failure"] == "refused"
    assert ask("version", **names)["known"]
