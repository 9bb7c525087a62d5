"""TPC-H and TPC-DS: tables, query texts and a stream of changes, by DuckDB's generators."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import sqlglot
from sqlglot import exp

from tests.engine.oracle.streams import Step
from tests.support.fixtures.spark import Lake

_GENERATORS = {"tpch": "dbgen", "tpcds": "dsdgen"}
# Tables that change, and a column whose change moves rows between groups.
_HOT = {
    "tpch": {
        "orders": "o_orderstatus = 'F'",
        "lineitem": "l_quantity = l_quantity + 1, l_receiptdate = date_add(l_receiptdate, 9)",
        "customer": "c_acctbal = c_acctbal + 50, c_nationkey = (c_nationkey + 1) % 25",
        "supplier": "s_nationkey = (s_nationkey + 1) % 25",
        "partsupp": "ps_supplycost = ps_supplycost + 1, ps_availqty = ps_availqty + 1",
        "part": "p_size = p_size % 50 + 1",
    },
    "tpcds": {
        "store_sales": "ss_quantity = ss_quantity + 1",
        "catalog_sales": "cs_quantity = cs_quantity + 1",
        "web_sales": "ws_quantity = ws_quantity + 1",
        "store_returns": "sr_return_quantity = sr_return_quantity + 1",
        "customer": "c_birth_year = c_birth_year + 1",
    },
}
_ONE_IN = 40


class Benchmark:
    """One of the two benchmarks at a scale.

    :param name: ``tpch`` or ``tpcds``.
    """

    def __init__(self, name: str, scale: float) -> None:
        self.name = name
        self._database = duckdb.connect()
        self._database.load_extension(str(_extension(name)))
        self._database.execute(f"CALL {_GENERATORS[name]}(sf={scale})")

    def create(self, lake: Lake, folder: Path) -> None:
        """Make the tables."""
        for table, file in self.export(folder):
            lake.sql(f"CREATE TABLE {table} USING delta AS SELECT * FROM parquet.`{file}`")

    def export(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """Write each table to a file of Parquet; yield name and file."""
        for (table,) in self._database.execute("SHOW TABLES").fetchall():
            file = folder / f"{table}.parquet"
            self._database.execute(f"COPY {table} TO '{file}' (FORMAT parquet)")
            yield table, file

    def queries(self, schema: str | None = None) -> Mapping[int, str]:
        """Return the queries in Spark's words, columns numbered.

        Tables are in braces, or follow a schema with its dot if that is given.
        """
        listed = f"SELECT query_nr, query FROM {self.name}_queries()"
        texts = self._database.execute(listed).fetchall()
        tables = {name for (name,) in self._database.execute("SHOW TABLES").fetchall()}
        found = {}
        for number, text in texts:
            columns = self._database.execute(f"DESCRIBE {text}").fetchall()
            names = ", ".join(f"c{n}" for n in range(len(columns)))
            found[number] = f"SELECT * FROM ({_translate(text, tables, schema)}) AS q({names})"
        return found

    def steps(self, count: int) -> tuple[Step, ...]:
        """Return a stream: rows come, go and change in one table after another, and in all."""
        hot = list(_HOT[self.name])
        made = []
        for number in range(count):
            tables = hot if number % 3 == 2 else hot[number % len(hot) :][:2]
            made.append(tuple(s for table in tables for s in self._change(table, number)))
        return tuple(made)

    def _change(self, table: str, number: int) -> Step:
        names = [name for name, *_ in self._database.execute(f"DESCRIBE {table}").fetchall()]

        def some(offset: int) -> str:
            return f"pmod(hash({', '.join(names)}), {_ONE_IN}) = {(3 * number + offset) % _ONE_IN}"

        change = _HOT[self.name][table]
        return (
            f"DELETE FROM {{{table}}} WHERE {some(0)}",
            f"INSERT INTO {{{table}}} SELECT * FROM {{{table}}} WHERE {some(1)}",
            f"UPDATE {{{table}}} SET {change} WHERE {some(2)}",
        )


def _extension(name: str) -> Path:
    module = importlib.import_module(f"duckdb_extension_{name}")
    (file,) = Path(str(module.__file__)).parent.rglob(f"{name}.duckdb_extension")
    return file


def _translate(text: str, tables: set[str], schema: str | None) -> str:
    (tree,) = sqlglot.parse(text.strip().removesuffix(";"), read="duckdb")
    if tree is None:
        raise AssertionError(f"no query: {text}")
    for table in tree.find_all(exp.Table):
        if table.name.lower() in tables and not table.db:
            alias = table.alias or table.name
            table.set("this", exp.to_identifier(f"__{table.name.lower()}__"))
            table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    sql = tree.sql(dialect="spark")
    for table_name in tables:
        written = f"{{{table_name}}}" if schema is None else f"{schema}{table_name}"
        sql = sql.replace(f"__{table_name}__", written)
    return sql
