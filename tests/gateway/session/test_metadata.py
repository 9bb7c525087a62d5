from __future__ import annotations

from typing import Any

import pytest

from tidegate_server.core.model.names import FunctionName, TableName
from tidegate_server.core.model.result import RowsResult
from tidegate_server.core.model.table import PrimaryKey
from tidegate_server.core.model.types import Column
from tidegate_server.gateway.session import metadata
from tidegate_server.gateway.session.metadata import ListedTable, Listing, TablePattern


def name(schema: str, table: str) -> TableName:
    return TableName("spark_catalog", schema, table)


LISTING = Listing(
    schemas=("default", "shop"),
    tables=(
        ListedTable(
            name=name("default", "orders"),
            type="TABLE",
            columns=(
                Column(name="id", type="bigint", nullable=False),
                Column(name="amount", type="decimal(10,2)", comment="in euro"),
                Column(name="code", type="varchar(7)"),
                Column(name="at", type="timestamp"),
                Column(name="tags", type="array<string>"),
                Column(name="span", type="interval day to second"),
            ),
        ),
        ListedTable(name=name("default", "recent"), type="VIEW"),
        ListedTable(
            name=name("shop", "daily"),
            type="MATERIALIZED_TABLE",
            comment="sums",
            primary_key=PrimaryKey(name="pk", columns=("day", "shop")),
        ),
    ),
)


def rows(result: RowsResult) -> list[dict[str, Any]]:
    return [row for batch in result.batches(0) for row in batch.to_pylist()]


def listed_tables(pattern: TablePattern, types: list[str] | None = None) -> list[tuple[str, str]]:
    found = rows(metadata.get_tables(LISTING, pattern, types))
    return [(row["TABLE_NAME"], row["TABLE_TYPE"]) for row in found]


def test_all_types_are_listed_when_none_are_named() -> None:
    expected = [("orders", "TABLE"), ("recent", "VIEW"), ("daily", "MATERIALIZED_TABLE")]
    assert listed_tables(TablePattern()) == expected
    assert listed_tables(TablePattern(), []) == expected


def test_a_request_for_tables_shows_materialized_tables_as_tables() -> None:
    assert listed_tables(TablePattern(), ["TABLE", "VIEW"])[-1] == ("daily", "TABLE")


def test_a_request_naming_materialized_tables_shows_them_as_such() -> None:
    assert listed_tables(TablePattern(), ["TABLE", "MATERIALIZED_TABLE"])[-1] == (
        "daily",
        "MATERIALIZED_TABLE",
    )
    assert listed_tables(TablePattern(), ["MATERIALIZED_TABLE"]) == [
        ("daily", "MATERIALIZED_TABLE")
    ]


def test_a_request_for_views_leaves_materialized_tables_out() -> None:
    assert listed_tables(TablePattern(), ["VIEW"]) == [("recent", "VIEW")]


@pytest.mark.parametrize("types", [["%"], [""], ["''"], ["TABLE", "%"]])
def test_any_type_may_be_asked_for_by_a_wildcard(types: list[str]) -> None:
    assert listed_tables(TablePattern(), types) == listed_tables(TablePattern())


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["'TABLE'"], [("orders", "TABLE"), ("daily", "TABLE")]),
        (["table"], [("orders", "TABLE"), ("daily", "TABLE")]),
        (["Base Table"], [("orders", "TABLE"), ("daily", "TABLE")]),
        (["MANAGED_TABLE", "external_table"], [("orders", "TABLE"), ("daily", "TABLE")]),
        (["VIRTUAL_VIEW"], [("recent", "VIEW")]),
        (["MATERIALIZED VIEW"], [("daily", "MATERIALIZED_TABLE")]),
        (["materialized_view"], [("daily", "MATERIALIZED_TABLE")]),
        (["SYSTEM TABLE"], []),
    ],
)
def test_types_are_known_by_other_words(types: list[str], expected: list[tuple[str, str]]) -> None:
    assert listed_tables(TablePattern(), types) == expected


@pytest.mark.parametrize("catalog", ["SPARK", "hive", "Default", "SPARK_CATALOG", "spark%", "%"])
def test_the_one_catalog_has_other_names(catalog: str) -> None:
    assert len(listed_tables(TablePattern(catalog=catalog))) == 3
    assert len(rows(metadata.get_schemas(LISTING, catalog, None))) == 2
    assert rows(metadata.get_primary_keys(LISTING, TablePattern(catalog=catalog)))


def test_remarks_are_the_comment() -> None:
    found = rows(metadata.get_tables(LISTING, TablePattern(table="daily"), None))
    assert found[0]["REMARKS"] == "sums"


def test_patterns_narrow_schemas_and_tables() -> None:
    assert listed_tables(TablePattern(schema="sh%")) == [("daily", "MATERIALIZED_TABLE")]
    assert listed_tables(TablePattern(table="re*")) == [("recent", "VIEW")]
    assert listed_tables(TablePattern(catalog="elsewhere")) == []
    assert len(listed_tables(TablePattern(catalog="", schema=".*", table="%"))) == 3


def test_schemas_come_with_their_catalog() -> None:
    assert rows(metadata.get_schemas(LISTING, None, "s%")) == [
        {"TABLE_SCHEM": "shop", "TABLE_CATALOG": "spark_catalog"}
    ]


def test_table_types_are_three() -> None:
    assert [r["TABLE_TYPE"] for r in rows(metadata.get_table_types())] == [
        "TABLE",
        "VIEW",
        "MATERIALIZED_TABLE",
    ]


def test_columns_have_jdbcs_23_columns() -> None:
    assert len(metadata.get_columns(LISTING, TablePattern(), None).schema) == 23


@pytest.mark.parametrize(
    ("column", "code", "type_name", "size", "digits"),
    [
        ("id", -5, "BIGINT", 8, 0),
        ("amount", 3, "DECIMAL(10,2)", 10, 2),
        ("code", 12, "VARCHAR(7)", 7, None),
        ("at", 93, "TIMESTAMP", 8, 6),
        ("tags", 2003, "ARRAY<STRING>", None, None),
        ("span", 1111, "INTERVAL DAY TO SECOND", 8, None),
    ],
)
def test_a_columns_type_is_described(
    column: str, code: int, type_name: str, size: int | None, digits: int | None
) -> None:
    (row,) = rows(metadata.get_columns(LISTING, TablePattern(), column))
    found = (row["DATA_TYPE"], row["TYPE_NAME"], row["COLUMN_SIZE"], row["DECIMAL_DIGITS"])
    assert found == (code, type_name, size, digits)


def column_row(type_text: str) -> dict[str, Any]:
    table = ListedTable(name=name("default", "t"), type="TABLE", columns=(column(type_text),))
    (row,) = rows(metadata.get_columns(Listing(tables=(table,)), TablePattern(), None))
    return row


def column(type_text: str) -> Column:
    return Column(name="c", type=type_text)


@pytest.mark.parametrize(
    ("type_text", "size", "digits", "radix"),
    [
        ("void", 1, None, None),
        ("boolean", 1, None, None),
        ("tinyint", 1, 0, 10),
        ("smallint", 2, 0, 10),
        ("int", 4, 0, 10),
        ("float", 4, 7, 10),
        ("double", 8, 15, 10),
        ("decimal(18,4)", 18, 4, 10),
        ("decimal(19,4)", 19, 4, 10),
        ("date", 4, None, None),
        ("timestamp_ntz", 8, 6, None),
        ("interval", 16, None, None),
        ("interval year to month", 4, None, None),
        ("char(3)", 3, None, None),
        ("string", None, None, None),
        ("binary", None, None, None),
        ("map<int,int>", None, None, None),
        ("struct<a:int,b:decimal(20,2) not null comment 'x>,y',c:struct<d:date>>", 24, None, None),
        ("struct<a:int,b:string>", None, None, None),
    ],
)
def test_the_size_is_that_of_sparks_values(
    type_text: str, size: int | None, digits: int | None, radix: int | None
) -> None:
    row = column_row(type_text)
    found = (row["COLUMN_SIZE"], row["DECIMAL_DIGITS"], row["NUM_PREC_RADIX"])
    assert found == (size, digits, radix)


@pytest.mark.parametrize(
    ("type_text", "shown"),
    [
        ("struct<aB:int>", "STRUCT<aB: INT>"),
        ("array<struct<aB:int,c:decimal(3,1)>>", "ARRAY<STRUCT<aB: INT, c: DECIMAL(3,1)>>"),
        ("map<string,array<int>>", "MAP<STRING, ARRAY<INT>>"),
        (
            "struct<`a b`:int not null comment 'so <it> is'>",
            "STRUCT<`a b`: INT NOT NULL COMMENT 'so <it> is'>",
        ),
        ("decimal(10,2)", "DECIMAL(10,2)"),
    ],
)
def test_a_types_name_keeps_the_names_of_fields(type_text: str, shown: str) -> None:
    assert column_row(type_text)["TYPE_NAME"] == shown


def test_positions_and_nullability_are_told() -> None:
    found = rows(metadata.get_columns(LISTING, TablePattern(table="orders"), None))
    assert [row["ORDINAL_POSITION"] for row in found] == [1, 2, 3, 4, 5, 6]
    assert (found[0]["NULLABLE"], found[0]["IS_NULLABLE"]) == (0, "NO")
    assert (found[1]["NULLABLE"], found[1]["IS_NULLABLE"]) == (1, "YES")
    assert {row["IS_AUTO_INCREMENT"] for row in found} == {"NO"}


def test_type_info_has_17_rows_in_hives_order() -> None:
    found = rows(metadata.get_type_info())
    names = "VOID BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE STRING BINARY DECIMAL DATE "
    names += "TIMESTAMP ARRAY MAP STRUCT INTERVAL"
    assert [row["TYPE_NAME"] for row in found] == names.split()
    assert [r["TYPE_NAME"] for r in found if not r["SEARCHABLE"]] == names.split()[-4:]


@pytest.mark.parametrize(
    ("schema", "function", "expected"),
    [
        (None, "con%", [(None, None, "concat")]),
        ("shop", "F", [("spark_catalog", "shop", "f")]),
        ("sh%", "%", [(None, None, "concat"), ("spark_catalog", "shop", "f")]),
        ("default", "f", []),
        ("", "f", [("spark_catalog", "shop", "f")]),
    ],
)
def test_functions_match_patterns(
    schema: str | None, function: str, expected: list[tuple[str | None, ...]]
) -> None:
    functions = (FunctionName("concat"), FunctionName("f", "shop"))
    found = rows(metadata.get_functions(functions, None, schema, function))
    names = ("FUNCTION_CAT", "FUNCTION_SCHEM", "FUNCTION_NAME")
    assert [tuple(row[name] for name in names) for row in found] == expected


def test_primary_keys_are_numbered() -> None:
    found = rows(metadata.get_primary_keys(LISTING, TablePattern(table="daily")))
    assert [(r["COLUMN_NAME"], r["KEY_SEQ"], r["PK_NAME"]) for r in found] == [
        ("day", 1, "pk"),
        ("shop", 2, "pk"),
    ]


@pytest.mark.parametrize(
    ("schema", "table", "found"),
    [
        ("SHOP", "T_1", 1),
        (None, "t_1", 1),
        ("", "t_1", 1),
        ("s%", "t_1", 0),
        ("shop", "t.1", 0),
        ("shop", "t_1|tx1", 0),
        ("shop", "%", 0),
    ],
)
def test_names_of_keyed_tables_are_no_patterns(schema: str | None, table: str, found: int) -> None:
    key = PrimaryKey(name="pk", columns=("day",))
    tables = tuple(
        ListedTable(name=name("shop", each), type="TABLE", primary_key=key)
        for each in ("t_1", "tx1")
    )
    result = metadata.get_primary_keys(Listing(tables=tables), TablePattern(None, schema, table))
    assert [row["TABLE_NAME"] for row in rows(result)] == ["t_1"] * found


def test_type_info_has_precisions_and_radix() -> None:
    found = {row["TYPE_NAME"]: row for row in rows(metadata.get_type_info())}
    told = {each: (row["PRECISION"], row["NUM_PREC_RADIX"]) for each, row in found.items()}
    numbers = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
    numbers |= {"FLOAT": 7, "DOUBLE": 15, "DECIMAL": 38}
    assert told == {each: (numbers.get(each, 0), 10 if each in numbers else None) for each in found}


def test_there_are_no_foreign_keys() -> None:
    result = metadata.get_cross_reference()
    assert (len(result.schema), rows(result)) == (14, [])


def test_there_is_one_catalog() -> None:
    assert rows(metadata.get_catalogs()) == [{"TABLE_CAT": "spark_catalog"}]


def test_another_catalog_is_listed_under_its_name() -> None:
    name = TableName("lake", "db", "t")
    listing = Listing(
        schemas=("db",),
        tables=(ListedTable(name=name, type="TABLE", columns=(Column(name="a", type="int"),)),),
        catalog="lake",
    )
    pattern = TablePattern("lake", "db", "t")
    names = [row["TABLE_CAT"] for row in rows(metadata.get_catalogs(("lake",)))]
    assert names == ["lake", "spark_catalog"]
    assert rows(metadata.get_schemas(listing, "lake", None)) == [
        {"TABLE_SCHEM": "db", "TABLE_CATALOG": "lake"}
    ]
    assert rows(metadata.get_schemas(listing, "spark_catalog", None)) == []
    [table] = rows(metadata.get_tables(listing, pattern, None))
    assert (table["TABLE_CAT"], table["TABLE_NAME"]) == ("lake", "t")
    [column] = rows(metadata.get_columns(listing, pattern, None))
    assert (column["TABLE_CAT"], column["COLUMN_NAME"]) == ("lake", "a")
