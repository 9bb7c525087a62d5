"""Reads many entries of Spark's catalogs in one call to the JVM instead of several per entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from tidegate_server.engine.storage.jvm import compiled_instance, java

_CLASS: Final = "tidegate.Listing"
_SOURCE: Final = """
package tidegate;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalog;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import scala.jdk.javaapi.CollectionConverters;

public class Listing {
  private static final int FEW = 50;

  public String names(ExternalCatalog catalog) throws Exception {
    List all = new ArrayList();
    Iterator schemas = CollectionConverters.asJava(catalog.listDatabases()).iterator();
    while (schemas.hasNext()) {
      String schema = (String) schemas.next();
      List row = new ArrayList();
      row.add(schema);
      row.add(CollectionConverters.asJava(catalog.listTables(schema)));
      row.add(CollectionConverters.asJava(catalog.listViews(schema, "*")));
      all.add(row);
    }
    return new ObjectMapper().writeValueAsString(all);
  }

  public String tables(ExternalCatalog catalog, String schema, List names, boolean columns)
      throws Exception {
    List all = new ArrayList();
    scala.collection.immutable.Seq wanted = CollectionConverters.asScala(names).toSeq();
    Iterator found =
        CollectionConverters.asJava(catalog.getTablesByName(schema, wanted)).iterator();
    while (found.hasNext()) {
      CatalogTable table = (CatalogTable) found.next();
      List row = new ArrayList();
      row.add(table.identifier().table());
      row.add(table.tableType().name());
      row.add(table.comment().isDefined() ? table.comment().get() : null);
      row.add(columns ? table.schema().json() : null);
      all.add(row);
    }
    return new ObjectMapper().writeValueAsString(all);
  }

  public String properties(String url, String user, String password, String schema, List names)
      throws Exception {
    List all = new ArrayList();
    Connection connection = DriverManager.getConnection(url, user, password);
    try {
      connection.setTransactionIsolation(Connection.TRANSACTION_READ_UNCOMMITTED);
      boolean few = names.size() <= FEW;
      // Derby reads an index range in half the time of as many single lookups.
      List bounds = names;
      if (!few) {
        bounds = Arrays.asList(new Object[] {Collections.min(names), Collections.max(names)});
      }
      String named =
          few ? "IN (" + String.join(", ", Collections.nCopies(names.size(), "?")) + ")"
              : "BETWEEN ? AND ?";
      PreparedStatement query =
          connection.prepareStatement(
              "SELECT T.\\"TBL_NAME\\", T.\\"TBL_TYPE\\", P.\\"PARAM_KEY\\", P.\\"PARAM_VALUE\\""
                  + " FROM \\"DBS\\" D JOIN \\"TBLS\\" T ON T.\\"DB_ID\\" = D.\\"DB_ID\\""
                  + " JOIN \\"TABLE_PARAMS\\" P ON P.\\"TBL_ID\\" = T.\\"TBL_ID\\""
                  + " WHERE D.\\"NAME\\" = ? AND (P.\\"PARAM_KEY\\" = 'comment'"
                  + " OR P.\\"PARAM_KEY\\" LIKE 'spark.sql.sources.%')"
                  + " AND T.\\"TBL_NAME\\" " + named);
      query.setString(1, schema);
      for (int place = 0; place < bounds.size(); place++) {
        query.setString(place + 2, (String) bounds.get(place));
      }
      Set wanted = new HashSet(names);
      ResultSet rows = query.executeQuery();
      while (rows.next()) {
        if (!wanted.contains(rows.getString(1))) {
          continue;
        }
        all.add(row(rows, 4));
      }
    } finally {
      connection.close();
    }
    return new ObjectMapper().writeValueAsString(all);
  }

  public String owners(String url, String user, String password) throws Exception {
    List all = new ArrayList();
    Connection connection = DriverManager.getConnection(url, user, password);
    try {
      connection.setTransactionIsolation(Connection.TRANSACTION_READ_UNCOMMITTED);
      ResultSet rows =
          connection
              .prepareStatement(
                  "SELECT \\"NAME\\", '', \\"OWNER_NAME\\" FROM \\"DBS\\" UNION ALL"
                      + " SELECT D.\\"NAME\\", T.\\"TBL_NAME\\", T.\\"OWNER\\" FROM \\"DBS\\" D"
                      + " JOIN \\"TBLS\\" T ON T.\\"DB_ID\\" = D.\\"DB_ID\\"")
              .executeQuery();
      while (rows.next()) {
        all.add(row(rows, 3));
      }
    } finally {
      connection.close();
    }
    return new ObjectMapper().writeValueAsString(all);
  }

  public String ownersIn(ExternalCatalog catalog, String schema, List names) throws Exception {
    List all = new ArrayList();
    scala.collection.immutable.Seq wanted = CollectionConverters.asScala(names).toSeq();
    Iterator found =
        CollectionConverters.asJava(catalog.getTablesByName(schema, wanted)).iterator();
    while (found.hasNext()) {
      CatalogTable table = (CatalogTable) found.next();
      all.add(Arrays.asList(new Object[] {schema, table.identifier().table(), table.owner()}));
    }
    return new ObjectMapper().writeValueAsString(all);
  }

  public List directories(String url, String user, String password) throws Exception {
    List all = new ArrayList();
    Connection connection = DriverManager.getConnection(url, user, password);
    try {
      connection.setTransactionIsolation(Connection.TRANSACTION_READ_UNCOMMITTED);
      ResultSet rows =
          connection
              .prepareStatement(
                  "SELECT \\"NAME\\", '', \\"OWNER_NAME\\", \\"DB_LOCATION_URI\\", NULL"
                      + " FROM \\"DBS\\" UNION ALL"
                      + " SELECT D.\\"NAME\\", T.\\"TBL_NAME\\", T.\\"OWNER\\", S.\\"LOCATION\\","
                      // Spark stores that of an external table here.
                      + " CAST(P.\\"PARAM_VALUE\\" AS VARCHAR(4000))"
                      + " FROM \\"DBS\\" D JOIN \\"TBLS\\" T ON T.\\"DB_ID\\" = D.\\"DB_ID\\""
                      + " JOIN \\"SDS\\" S ON S.\\"SD_ID\\" = T.\\"SD_ID\\""
                      + " LEFT JOIN \\"SERDE_PARAMS\\" P ON P.\\"SERDE_ID\\" = S.\\"SERDE_ID\\""
                      + " AND P.\\"PARAM_KEY\\" = 'path'")
              .executeQuery();
      while (rows.next()) {
        List row = row(rows, 3);
        String path = rows.getString(5);
        row.add(path == null ? rows.getString(4) : path);
        all.add(row);
      }
      connection.rollback();
    } finally {
      connection.close();
    }
    return all;
  }

  public List directoriesIn(ExternalCatalog catalog, String schema) throws Exception {
    List all = new ArrayList();
    CatalogDatabase found = catalog.getDatabase(schema);
    Object owner = found.properties().getOrElse("owner", null);
    all.add(Arrays.asList(new Object[] {schema, "", owner, found.locationUri().toString()}));
    Iterator tables =
        CollectionConverters.asJava(
                catalog.getTablesByName(schema, catalog.listTables(schema)))
            .iterator();
    while (tables.hasNext()) {
      CatalogTable table = (CatalogTable) tables.next();
      if (table.storage().locationUri().isDefined()) {
        String at = table.storage().locationUri().get().toString();
        String name = table.identifier().table();
        all.add(Arrays.asList(new Object[] {schema, name, table.owner(), at}));
      }
    }
    return all;
  }

  private static List row(ResultSet rows, int columns) throws Exception {
    List row = new ArrayList();
    for (int column = 1; column <= columns; column++) {
      row.add(rows.getString(column));
    }
    return row;
  }

  public String temporaryViews(SessionCatalog catalog, String shared) throws Exception {
    List all = new ArrayList();
    Iterator found =
        CollectionConverters.asJava(catalog.listTables(shared, "*", true)).iterator();
    while (found.hasNext()) {
      TableIdentifier view = (TableIdentifier) found.next();
      List row = new ArrayList();
      row.add(view.database().isDefined() ? view.database().get() : "");
      row.add(view.table());
      all.add(row);
    }
    return new ObjectMapper().writeValueAsString(all);
  }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """The database of the engine's own metastore."""

    url: str
    user: str
    password: str


class Listing:
    """Calls the class above, which Spark's own compiler compiles at run time."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = java(spark)
        self._listing = compiled_instance(spark, _CLASS, _SOURCE)

    def names(self, catalog: Any) -> list[tuple[str, list[str], list[str]]]:
        """Return every schema with its tables, including views, and its views."""
        return [tuple(row) for row in json.loads(self._listing.names(catalog))]

    def tables(
        self, catalog: Any, schema: str, names: Sequence[str], *, columns: bool
    ) -> list[tuple[str, str, str | None, str | None]]:
        """Return name, type, comment and, on request, columns as JSON of the existing tables."""
        found = self._listing.tables(catalog, schema, self.java_list(names), columns)
        return [tuple(row) for row in json.loads(found)]

    def properties(
        self, database: Database, schema: str, names: Sequence[str]
    ) -> list[tuple[str, str, str, str | None]]:
        """Return name, Hive's type, key and value of Spark's properties of tables and views."""
        found = self._listing.properties(
            database.url, database.user, database.password, schema, self.java_list(names)
        )
        return [tuple(row) for row in json.loads(found)]

    def owners(self, database: Database) -> list[tuple[str, str, str | None]]:
        """Return schema, name and owner of every table and view; schemas have an empty name."""
        found = self._listing.owners(database.url, database.user, database.password)
        return [tuple(row) for row in json.loads(found)]

    def owners_in(
        self, catalog: Any, schema: str, names: Sequence[str]
    ) -> list[tuple[str, str, str | None]]:
        """Return the same for existing tables and views of one schema."""
        found = self._listing.ownersIn(catalog, schema, self.java_list(names))
        return [tuple(row) for row in json.loads(found)]

    def directories(self, database: Database) -> Any:
        """Return schema, name, owner and location of tables and schemas as a Java list."""
        return self._listing.directories(database.url, database.user, database.password)

    def directories_in(self, catalog: Any, schema: str) -> Any:
        """Return the same of one schema with its tables, through Hive's client."""
        return self._listing.directoriesIn(catalog, schema)

    def java_list(self, names: Sequence[str]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for name in names:
            found.add(name)
        return found

    def temporary_views(self, catalog: Any, shared: str) -> list[tuple[str, str]]:
        """Return schema (empty if local to the session) and name of temporary views."""
        return [tuple(row) for row in json.loads(self._listing.temporaryViews(catalog, shared))]
