package tidegate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.QualifiedTableName;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Catalogs that are written in Python, as Spark sees them.
 *
 * <p>A call takes the connection of py4j over which the thread's statement came from Python, so
 * that no port is open for calls, and no other thread needs to be free. Requests and answers are
 * texts of JSON. Tables are relations of Spark's own data sources.
 */
public class PythonCatalogs {
  /** Before name, kind and reason in messages of exceptions. */
  public static final String FAILED = "tidegate.catalog.failed:";
  /** The thread's local property that names the admission under which plans are judged. */
  public static final String ADMISSION = "tidegate.gate";
  /** The admission of the engine's own statements. */
  public static final String OWN = "engine";
  /** Whether names may be paths; false in sessions of users who may not use paths. */
  public static final String ON_FILES = "spark.sql.runSQLOnFiles";
  private static final String FIELD = "\u001f";
  private static final String DELTA = "delta";
  private static final String ROWS = "rows";
  private static final String DELTA_SOURCE =
      "org.apache.spark.sql.delta.sources.DeltaDataSource";
  private static final String[] BY_PATH = new String[] {DELTA};
  private static final Set RESERVED =
      new HashSet(Arrays.asList(new String[] {
          "provider", "location", "comment", "owner", "external", "is_managed_location",
          "table_type", "collation"}));

  private final ObjectMapper json = new ObjectMapper();
  private Function python;
  private py4j.GatewayServer server;
  private Set sources = new HashSet();
  private Set hiveFormats = new HashSet();
  private PythonRows rows;
  private CatalogFiles files;

  /**
   * Sets who answers.
   *
   * @param server the one whose client knows the connections of threads.
   * @param sources the classes of the data sources that tables may have.
   * @param hiveFormats the classes of formats and SerDes that tables of Hive may have.
   * @param rows makes the tables whose rows Python reads.
   * @param files makes the tables of files that are only read.
   */
  public void connect(
      Function python, Object server, List sources, List hiveFormats, Object rows, Object files) {
    this.rows = (PythonRows) rows;
    this.files = (CatalogFiles) files;
    this.hiveFormats = new HashSet(hiveFormats);
    this.python = python;
    this.server = (py4j.GatewayServer) server;
    this.sources = new HashSet(sources);
  }

  /** Returns a catalog, opened. */
  public CatalogPlugin open(String name, String type, Map options, Set secrets) throws Exception {
    ObjectNode request = request("open", "");
    request.put("name", name);
    request.put("type", type);
    request.set("options", json.valueToTree(options));
    request.set("secrets", json.valueToTree(secrets));
    String schema = (String) options.get("default-database");
    if (schema == null) schema = (String) options.get("defaultDatabase"); // Paimon's name for it
    return new Catalog(this, name, call(name, request).asText(), schema);
  }

  /** Releases what Python holds for a catalog. */
  public void close(CatalogPlugin catalog) {
    if (!(catalog instanceof Catalog)) return;
    Catalog known = (Catalog) catalog;
    call(known.name(), request("close", known.handle));
  }

  private ObjectNode request(String method, String handle) {
    ObjectNode request = json.createObjectNode();
    request.put("method", method);
    request.put("catalog", handle);
    return request;
  }

  private JsonNode call(String name, ObjectNode request) {
    if (!reachesPython()) {
      throw failure(name, "failed", "it was used on a thread that Spark had started");
    }
    JsonNode answer;
    try {
      answer = json.readTree((String) python.apply(json.writeValueAsString(request)));
    } catch (com.fasterxml.jackson.core.JsonProcessingException failed) {
      throw failure(name, "failed", failed.getOriginalMessage());
    }
    if (answer.has("failure")) {
      throw failure(name, answer.get("failure").asText(), answer.get("reason").asText());
    }
    return answer.get("value");
  }

  /** Returns whether Python started what this thread does, or was called by it before. */
  private boolean reachesPython() {
    py4j.Py4JPythonClientPerThread client =
        (py4j.Py4JPythonClientPerThread) server.getCallbackClient();
    if (client.getPerThreadConnection() != null) return true;
    // PySpark replaces the client when the first stream calls Python. The new one does not know
    // the threads of earlier connections, but reaches Python from them.
    StackTraceElement[] frames = Thread.currentThread().getStackTrace();
    for (int i = frames.length - 1; i >= 0; i--) {
      if (frames[i].getClassName().equals("py4j.ClientServerConnection")) return true;
    }
    return false;
  }

  private static RuntimeException failure(String name, String kind, String reason) {
    return new IllegalStateException(FAILED + name + FIELD + kind + FIELD + reason);
  }

  private static scala.collection.immutable.Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
  }

  private static scala.collection.immutable.Map scalaMap(Map map) {
    return scala.collection.immutable.Map$.MODULE$.from(
        scala.jdk.javaapi.CollectionConverters.asScala(map));
  }

  private static Map texts(JsonNode node) {
    Map found = new HashMap();
    Iterator all = node.fields();
    while (all.hasNext()) {
      Map.Entry one = (Map.Entry) all.next();
      found.put(one.getKey(), ((JsonNode) one.getValue()).asText());
    }
    return found;
  }

  private static String text(JsonNode node, String key) {
    JsonNode found = node.get(key);
    return found == null || found.isNull() ? null : found.asText();
  }

  private static JsonNode item(JsonNode node, int index) {
    return (JsonNode) node.get(index); // Janino finds the method of an interface of JsonNode
  }

  public static Identifier identifier(String[] namespace, String name) {
    try {
      // Janino does not call static methods of interfaces.
      return (Identifier)
          Identifier.class.getMethod("of", new Class[] {String[].class, String.class})
              .invoke(null, new Object[] {namespace, name});
    } catch (ReflectiveOperationException failed) {
      throw new IllegalStateException(failed);
    }
  }

  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  private static scala.Option option(Object value) {
    return scala.Option$.MODULE$.apply(value);
  }

  /** One catalog; its schemas have one level. */
  public static class Catalog implements StagingTableCatalog, SupportsNamespaces {
    private final PythonCatalogs all;
    private final String name;
    private final String handle;
    private final String schema;

    /** @param schema the current schema after USE CATALOG; null if there is none. */
    Catalog(PythonCatalogs all, String name, String handle, String schema) {
      this.all = all;
      this.name = name;
      this.handle = handle;
      this.schema = schema;
    }

    public String[] defaultNamespace() {
      return schema == null ? new String[0] : new String[] {schema};
    }

    public void initialize(String name, CaseInsensitiveStringMap options) {}

    public String name() {
      return name;
    }

    // ---- schemas -----------------------------------------------------------------------------

    public String[][] listNamespaces() {
      JsonNode found = call(request("schemas"));
      String[][] names = new String[found.size()][];
      for (int i = 0; i < names.length; i++) names[i] = new String[] {item(found, i).asText()};
      return names;
    }

    public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
      if (parent.length == 0) return listNamespaces();
      if (!namespaceExists(parent)) throw new NoSuchNamespaceException(parent);
      return new String[0][];
    }

    public boolean namespaceExists(String[] namespace) {
      if (namespace.length != 1) return false;
      String[][] known = listNamespaces();
      for (int i = 0; i < known.length; i++) {
        if (known[i][0].equals(namespace[0])) return true;
      }
      return false;
    }

    public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
      if (!namespaceExists(namespace)) throw new NoSuchNamespaceException(namespace);
      return new HashMap();
    }

    public void createNamespace(String[] namespace, Map metadata)
        throws NamespaceAlreadyExistsException {
      if (namespace.length != 1) {
        throw failure(name, "refused", "it has no schemas within schemas");
      }
      if (namespaceExists(namespace)) throw new NamespaceAlreadyExistsException(namespace);
      Map properties = new HashMap(metadata);
      properties.remove("owner");
      ObjectNode request = request("create_schema");
      request.put("schema", namespace[0]);
      request.set("properties", all.json.valueToTree(properties));
      call(request);
    }

    public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
      throw failure(name, "refused", "its schemas cannot be altered");
    }

    public boolean dropNamespace(String[] namespace, boolean cascade)
        throws NoSuchNamespaceException, NonEmptyNamespaceException {
      if (!namespaceExists(namespace)) throw new NoSuchNamespaceException(namespace);
      Identifier[] tables = listTables(namespace);
      if (tables.length > 0 && !cascade) throw new NonEmptyNamespaceException(namespace);
      for (int i = 0; i < tables.length; i++) dropTable(tables[i]);
      ObjectNode request = request("drop_schema");
      request.put("schema", namespace[0]);
      call(request);
      return true;
    }

    // ---- tables ------------------------------------------------------------------------------

    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
      if (!namespaceExists(namespace)) throw new NoSuchNamespaceException(namespace);
      ObjectNode request = request("tables");
      request.put("schema", namespace[0]);
      JsonNode found = call(request);
      Identifier[] names = new Identifier[found.size()];
      for (int i = 0; i < names.length; i++) {
        names[i] = identifier(namespace, item(found, i).asText());
      }
      return names;
    }

    public boolean tableExists(Identifier table) {
      return find(table) != null;
    }

    public Table loadTable(Identifier table) throws NoSuchTableException {
      JsonNode found = find(table);
      if (found == null) throw new NoSuchTableException(table);
      if (isRows(found)) return rows(table, found, null, null);
      CatalogTable entry = entry(table, found);
      if (isReadOnly(found)) {
        return files(table, found, isDelta(found) ? delta(entry, option(null)) : null);
      }
      if (isDelta(found)) return delta(entry, option(null));
      uncache(table);
      return new V1Table(entry);
    }

    /** Drops what Spark caches: relations by name, with the files and options that they had. */
    private void uncache(Identifier table) {
      SparkSession.active().sessionState().catalog().invalidateCachedTable(
          new QualifiedTableName(name, table.namespace()[0], table.name()));
    }

    /** Loads a table that a statement changes. */
    public Table loadTable(Identifier table, Set privileges) throws NoSuchTableException {
      JsonNode found = find(table);
      if (found != null && isReadOnly(found)) throw readOnly();
      return loadTable(table);
    }

    public Table loadTable(Identifier table, String version) throws NoSuchTableException {
      return travel(table, version, 0);
    }

    public Table loadTable(Identifier table, long timestamp) throws NoSuchTableException {
      return travel(table, null, timestamp);
    }

    private Table travel(Identifier table, String version, long timestamp)
        throws NoSuchTableException {
      JsonNode found = find(table);
      if (found == null) throw new NoSuchTableException(table);
      if (isRows(found)) {
        return rows(table, found, version, version == null ? new Long(timestamp / 1000) : null);
      }
      if (!isDelta(found)) {
        throw failure(name, "refused", "only its Delta tables have versions");
      }
      Identifier path = identifier(BY_PATH, text(found, "location"));
      String[] before = enter();
      try {
        Table past = version == null
            ? deltaCatalog().loadTable(path, timestamp) : deltaCatalog().loadTable(path, version);
        Table delta = delta(entry(table, found), ((DeltaTableV2) past).timeTravelOpt());
        return isReadOnly(found) ? files(table, found, delta) : delta;
      } finally {
        leave(before);
      }
    }

    /** Returns what is known of the rows of a table, as JSON: facts and a version, or a place. */
    public String state(Identifier table) throws Exception {
      JsonNode found = find(table);
      if (found == null) throw new NoSuchTableException(table);
      ObjectNode state = all.json.createObjectNode();
      state.put("facts", found.toString());
      ObjectNode request = request("version", table);
      JsonNode version = call(request);
      if (version.get("known").asBoolean()) {
        state.set("version", version.get("version"));
      } else if (isDelta(found)) {
        DeltaTableV2 delta = (DeltaTableV2) delta(entry(table, found), option(null));
        state.put("version",
            delta.initialSnapshot().metadata().id() + " " + delta.initialSnapshot().version());
      } else {
        state.put("format", text(found, "format"));
        ArrayNode places = state.putArray("places");
        if (text(found, "location") != null) places.add(text(found, "location"));
        JsonNode partitions = isReadOnly(found) ? partitions(table) : null;
        for (int i = 0; partitions != null && i < partitions.size(); i++) {
          places.add(text(item(partitions, i), "location"));
        }
        if (partitions != null) state.put("partitions", partitions.toString());
      }
      return all.json.writeValueAsString(state);
    }

    public Table createTable(
        Identifier table, StructType schema, Transform[] partitions, Map properties)
        throws TableAlreadyExistsException, NoSuchNamespaceException {
      return createTable(
          table, CatalogV2Util.structTypeToV2Columns(schema), partitions, properties);
    }

    public Table createTable(
        Identifier table, Column[] columns, Transform[] partitions, Map properties)
        throws TableAlreadyExistsException, NoSuchNamespaceException {
      if (!namespaceExists(table.namespace())) {
        throw new NoSuchNamespaceException(table.namespace());
      }
      if (tableExists(table)) throw new TableAlreadyExistsException(table);
      StructType given = CatalogV2Util.v2ColumnsToStructType(columns);
      List keys = keys(partitions, given);
      String provider = (String) properties.get("provider");
      ObjectNode request = request("create_table", table);
      request.set("table", definition(provider, ordered(given, keys), keys, properties));
      JsonNode made = call(request);
      Table complete = null;
      try {
        if (isRows(made)) complete = rows(table, made, null, null);
        else if (isDelta(made)) {
          CatalogTable entry = entry(table, made);
          createLog(made, given, partitions, properties);
          complete = delta(entry, option(null));
        } else complete = new V1Table(entry(table, made));
      } finally {
        if (complete == null) dropIncomplete(table);
      }
      return complete;
    }

    // CREATE TABLE AS SELECT

    public StagedTable stageCreate(
        Identifier table, StructType schema, Transform[] partitions, Map properties)
        throws TableAlreadyExistsException, NoSuchNamespaceException {
      return stageCreate(
          table, CatalogV2Util.structTypeToV2Columns(schema), partitions, properties);
    }

    public StagedTable stageCreate(
        Identifier table, Column[] columns, Transform[] partitions, Map properties)
        throws TableAlreadyExistsException, NoSuchNamespaceException {
      Table made = createTable(table, columns, partitions, properties);
      return new Staged(this, table, made, columns, fullName(table));
    }

    public StagedTable stageReplace(
        Identifier table, StructType schema, Transform[] partitions, Map properties) {
      throw replaced(table);
    }

    public StagedTable stageReplace(
        Identifier table, Column[] columns, Transform[] partitions, Map properties) {
      throw replaced(table);
    }

    public StagedTable stageCreateOrReplace(
        Identifier table, StructType schema, Transform[] partitions, Map properties)
        throws NoSuchNamespaceException {
      return stageCreateOrReplace(
          table, CatalogV2Util.structTypeToV2Columns(schema), partitions, properties);
    }

    public StagedTable stageCreateOrReplace(
        Identifier table, Column[] columns, Transform[] partitions, Map properties)
        throws NoSuchNamespaceException {
      try {
        return stageCreate(table, columns, partitions, properties);
      } catch (TableAlreadyExistsException exists) {
        throw replaced(table);
      }
    }

    /** Returns the error of a replacement, which could not be undone if it failed halfway. */
    private RuntimeException replaced(Identifier table) {
      return failure(name, "refused",
          "it cannot replace the table " + table + ": drop it, and create it again");
    }

    /** Drops a table whose creation failed; the user sees that failure, not one of this drop. */
    private void dropIncomplete(Identifier table) {
      try {
        dropTable(table);
      } catch (RuntimeException second) {
        org.slf4j.LoggerFactory.getLogger(PythonCatalogs.class)
            .warn("The table " + table + " stays in the catalog " + name, second);
      }
    }

    public Table alterTable(Identifier table, TableChange[] changes) throws NoSuchTableException {
      JsonNode found = find(table);
      if (found == null) throw new NoSuchTableException(table);
      if (isReadOnly(found)) throw readOnly();
      if (isDelta(found)) return alterLog(table, found, changes);
      for (int i = 0; i < changes.length; i++) refuse(changes[i]);
      scala.Option provider = isRows(found) ? option(null) : entry(table, found).provider();
      scala.collection.immutable.Seq all = seq(Arrays.asList((Object[]) changes));
      StructType schema = CatalogV2Util.applySchemaChanges(
          structure(found), all, provider, "ALTER TABLE");
      Map properties = CatalogV2Util.applyPropertiesChanges(properties(found), all);
      List keys = strings(found.get("partition_keys"));
      ObjectNode request = request("alter_table", table);
      request.set("table",
          definition(text(found, "format"), ordered(schema, keys), keys, properties));
      call(request);
      return loadTable(table);
    }

    /** Refuses what Spark refuses for its own tables of files, whose rows would not follow. */
    private void refuse(TableChange change) {
      boolean known = change instanceof TableChange.SetProperty
          || change instanceof TableChange.RemoveProperty
          || change instanceof TableChange.UpdateColumnComment;
      if (change instanceof TableChange.AddColumn) {
        TableChange.AddColumn added = (TableChange.AddColumn) change;
        known = added.position() == null && added.fieldNames().length == 1 && added.isNullable()
            && added.defaultValue() == null;
      }
      if (known) return;
      throw failure(name, "refused",
          "only Delta tables allow this change: of other tables, columns are only added at the "
              + "end, and comments and properties changed");
    }

    public boolean dropTable(Identifier table) {
      return call(request("drop_table", table)).asBoolean();
    }

    public void renameTable(Identifier before, Identifier after)
        throws NoSuchTableException, TableAlreadyExistsException {
      if (find(before) == null) throw new NoSuchTableException(before);
      if (find(after) != null) throw new TableAlreadyExistsException(after);
      ObjectNode request = request("rename_table", before);
      request.put("new_schema", schema(after));
      request.put("new_name", after.name());
      call(request);
    }

    // ---- Delta -------------------------------------------------------------------------------

    private static boolean isDelta(JsonNode found) {
      return DELTA.equalsIgnoreCase(text(found, "format"));
    }

    private static Table delta(CatalogTable entry, scala.Option past) {
      return new DeltaTableV2(
          SparkSession.active(), new Path((java.net.URI) entry.storage().locationUri().get()),
          option(entry), option(entry.identifier().nameParts().mkString(".")), past,
          entry.storage().properties());
    }

    private static TableCatalog deltaCatalog() {
      return (TableCatalog)
          SparkSession.active().sessionState().catalogManager().catalog("spark_catalog");
    }

    /** Lets Delta take paths as names, for the engine itself; returns what was before. */
    private static String[] enter() {
      SparkSession session = SparkSession.active();
      String[] before = new String[] {
          session.sparkContext().getLocalProperty(ADMISSION),
          session.sessionState().conf().getConfString(ON_FILES, "true")};
      session.sparkContext().setLocalProperty(ADMISSION, OWN);
      session.sessionState().conf().setConfString(ON_FILES, "true");
      return before;
    }

    private static void leave(String[] before) {
      SparkSession session = SparkSession.active();
      session.sparkContext().setLocalProperty(ADMISSION, before[0]);
      session.sessionState().conf().setConfString(ON_FILES, before[1]);
    }

    private static void createLog(
        JsonNode made, StructType schema, Transform[] partitions, Map properties)
        throws TableAlreadyExistsException, NoSuchNamespaceException {
      Map given = new HashMap(properties);
      given.remove("location");
      given.put("provider", DELTA);
      String[] before = enter();
      try {
        deltaCatalog().createTable(
            identifier(BY_PATH, text(made, "location")), schema, partitions, given);
      } finally {
        leave(before);
      }
    }

    private Table alterLog(Identifier table, JsonNode found, TableChange[] changes)
        throws NoSuchTableException {
      for (int i = 0; i < changes.length; i++) {
        boolean moves = changes[i] instanceof TableChange.SetProperty
            && ((TableChange.SetProperty) changes[i]).property().equals("location");
        if (moves) throw failure(name, "refused", "its Delta tables cannot be moved");
      }
      String[] before = enter();
      try {
        deltaCatalog().alterTable(identifier(BY_PATH, text(found, "location")), changes);
      } finally {
        leave(before);
      }
      return loadTable(table);
    }

    // ---- files that are only read ------------------------------------------------------------

    private static boolean isReadOnly(JsonNode found) {
      return found.has("read_only") && found.get("read_only").asBoolean();
    }

    private RuntimeException readOnly() {
      return failure(name, "refused", CatalogFiles.READ_ONLY);
    }

    /** Returns a table that is only read; {@code delta} is null for other formats. */
    private Table files(final Identifier table, JsonNode found, Table delta) {
      CatalogFiles.Caller caller = new CatalogFiles.Caller() {
        public JsonNode partitions() {
          return Catalog.this.partitions(table);
        }

        public RuntimeException refused(String reason) {
          return failure(Catalog.this.name, "refused", reason);
        }
      };
      CatalogTable entry = entry(table, found);
      String fullName = name + "." + table.namespace()[0] + "." + table.name();
      JsonNode derivation = found.get("derivation");
      if (derivation == null || derivation.isNull()) {
        return all.files.table(caller, fullName, entry, properties(found), delta);
      }
      ObjectNode source = (ObjectNode) found.deepCopy();
      source.set("columns", derivation.get("source"));
      uncache(table);
      return all.files.derived(
          caller, fullName, entry, properties(found), entry(table, source), derivation);
    }

    /** Returns the partitions that the catalog knows. */
    private JsonNode partitions(Identifier table) {
      return call(request("partitions", table));
    }

    // ---- rows that Python reads --------------------------------------------------------------

    private static boolean isRows(JsonNode found) {
      return ROWS.equals(text(found, "format"));
    }

    /** Returns a table at a version; the newest one that there is now, if none is named. */
    private PythonRows.Rows rows(
        final Identifier table, JsonNode found, String version, Long millis) {
      PythonRows.Caller caller = new PythonRows.Caller() {
        public ObjectNode request(String method) {
          return Catalog.this.request(method, table);
        }

        public JsonNode call(ObjectNode request) {
          return Catalog.this.call(request);
        }

        public RuntimeException refused(String reason) {
          return failure(name, "refused", reason);
        }
      };
      ObjectNode request = request("table_version", table);
      request.put("at_version", version);
      request.put("at_millis", millis);
      JsonNode state = call(request);
      if (state.isNull()) throw failure(name, "refused", table + " was dropped meanwhile");
      String[] keys =
          (String[]) strings(found.get("partition_keys")).toArray(new String[0]);
      return all.rows.table(
          caller, name + "." + table.namespace()[0] + "." + table.name(),
          CharVarcharUtils.replaceCharVarcharWithStringInSchema(structure(found)), keys,
          properties(found), state);
    }

    /** Returns the newest version of a table, its columns and place, as JSON; else nothing. */
    public String rowsVersion(Identifier table) {
      JsonNode found = find(table);
      if (found == null || !isRows(found)) return "";
      PythonRows.Rows rows = rows(table, found, null, null);
      ObjectNode state = rows.state();
      state.put("location", text(found, "location"));
      ArrayNode columns = state.putArray("columns");
      String[] names = rows.schema().fieldNames();
      for (int i = 0; i < names.length; i++) columns.add(names[i]);
      return state.toString();
    }

    /** Returns what identifies a version of a table; null if it does not exist any more. */
    public String rowsCommit(Identifier table, long version) {
      JsonNode found = find(table);
      if (found == null || !isRows(found)) return null;
      try {
        return rows(table, found, String.valueOf(version), null).state().get("commit").asText();
      } catch (IllegalStateException refused) {
        return null;
      }
    }

    /** Returns the rows that differ between two versions of a table. */
    public PythonRows.Changed rowsChanged(Identifier table, long before, long after)
        throws NoSuchTableException {
      JsonNode found = find(table);
      if (found == null || !isRows(found)) throw new NoSuchTableException(table);
      return rows(table, found, String.valueOf(after), null).after(before);
    }

    // ---- definitions -------------------------------------------------------------------------

    private CatalogTable entry(Identifier table, JsonNode found) {
      String format = text(found, "format");
      Map options = texts(found.get("options"));
      Map properties = texts(found.get("properties"));
      JsonNode serde = found.get("serde");
      boolean hive = CatalogFiles.HIVE.equals(format) && serde != null && !serde.isNull();
      if (hive) requireFormats(serde);
      else requireSource(format);
      String location = text(found, "location");
      if (location != null && !new Path(location).isAbsolute()) {
        throw failure(name, "failed", "the location " + location + " is not absolute");
      }
      if (location == null && isDelta(found)) {
        throw failure(name, "failed", "its Delta table " + table + " has no location");
      }
      Object place = location == null ? null : new Path(location).toUri();
      CatalogStorageFormat storage = new CatalogStorageFormat(
          option(place), option(hive ? text(serde, "input_format") : null),
          option(hive ? text(serde, "output_format") : null),
          option(hive ? text(serde, "serde") : null), false, scalaMap(options));
      StructType schema = structure(found);
      return new CatalogTable(
          new TableIdentifier(table.name(), option(table.namespace()[0]), option(name)),
          CatalogTableType.EXTERNAL(), storage,
          CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema), option(format),
          seq(strings(found.get("partition_keys"))), option(null), "", 0L, -1L, "",
          scalaMap(properties), option(null), option(null), option(text(found, "comment")),
          option(null), seq(Collections.EMPTY_LIST), false, true, scalaMap(new HashMap()),
          option(null));
    }

    /** Refuses a data source that the gate does not know, or that is not for users. */
    private void requireSource(String format) {
      String found;
      try {
        found = DataSource.lookupDataSource(
            format, SparkSession.active().sessionState().conf()).getName();
      } catch (Throwable unknown) {
        throw failure(name, "failed", "there is no data source " + format);
      }
      boolean misnamed = found.equals(DELTA_SOURCE) && !format.equalsIgnoreCase(DELTA);
      if (misnamed || !all.sources.contains(found)) {
        throw failure(name, "failed", "its tables cannot have the format " + format);
      }
    }

    /** Refuses classes of Hive that the gate does not know. */
    private void requireFormats(JsonNode serde) {
      String[] fields = new String[] {"input_format", "output_format", "serde"};
      for (int i = 0; i < fields.length; i++) {
        if (!all.hiveFormats.contains(text(serde, fields[i]))) {
          throw failure(name, "failed",
              "its tables cannot have the format " + text(serde, fields[i]));
        }
      }
    }

    private ObjectNode definition(String format, StructType schema, List keys, Map properties) {
      ObjectNode table = all.json.createObjectNode();
      table.put("format", format == null ? "" : format);
      ArrayNode columns = table.putArray("columns");
      StructField[] fields = schema.fields();
      for (int i = 0; i < fields.length; i++) {
        ObjectNode column = columns.addObject();
        column.put("name", fields[i].name());
        column.put("type", fields[i].dataType().sql());
        column.put("nullable", fields[i].nullable());
        scala.Option comment = fields[i].getComment();
        column.put("comment", comment.isDefined() ? (String) comment.get() : null);
      }
      table.set("partition_keys", all.json.valueToTree(keys));
      table.put("location", (String) properties.get("location"));
      table.put("comment", (String) properties.get("comment"));
      Map options = new HashMap();
      Map others = new HashMap();
      for (Object one : properties.entrySet()) {
        Map.Entry entry = (Map.Entry) one;
        String key = (String) entry.getKey();
        if (key.startsWith(TableCatalog.OPTION_PREFIX)) {
          options.put(key.substring(TableCatalog.OPTION_PREFIX.length()), entry.getValue());
        } else if (!RESERVED.contains(key)) others.put(key, entry.getValue());
      }
      // Spark gives each option twice, once without the prefix.
      for (Object key : options.keySet()) others.remove(key);
      table.set("options", all.json.valueToTree(options));
      table.set("properties", all.json.valueToTree(others));
      return table;
    }

    /** Returns options, comment and location among the properties, as Spark has them. */
    private static Map properties(JsonNode found) {
      Map known = texts(found.get("properties"));
      for (Object one : texts(found.get("options")).entrySet()) {
        Map.Entry entry = (Map.Entry) one;
        known.put(TableCatalog.OPTION_PREFIX + entry.getKey(), entry.getValue());
      }
      if (text(found, "comment") != null) known.put("comment", text(found, "comment"));
      if (text(found, "location") != null) known.put("location", text(found, "location"));
      return known;
    }

    private StructType structure(JsonNode found) {
      StructType schema = new StructType();
      JsonNode columns = found.get("columns");
      for (int i = 0; i < columns.size(); i++) {
        JsonNode column = item(columns, i);
        DataType type;
        try {
          type = DataType.fromDDL(text(column, "type"));
        } catch (Exception wrong) {
          throw failure(name, "failed", "the column " + text(column, "name")
              + " cannot have the type " + text(column, "type"));
        }
        String comment = text(column, "comment");
        boolean nullable = column.get("nullable").asBoolean();
        schema = comment == null ? schema.add(text(column, "name"), type, nullable)
            : schema.add(text(column, "name"), type, nullable, comment);
      }
      return schema;
    }

    /** Returns the columns that a table is partitioned by, as the columns are written. */
    private List keys(Transform[] partitions, StructType schema) {
      List keys = new ArrayList();
      for (int i = 0; i < partitions.length; i++) {
        boolean column = partitions[i].name().equals("identity")
            && partitions[i].references()[0].fieldNames().length == 1;
        if (!column) throw failure(name, "refused", "its tables are partitioned by columns only");
        keys.add(written(partitions[i].references()[0].fieldNames()[0], schema));
      }
      return keys;
    }

    private String written(String key, StructType schema) {
      String[] names = schema.fieldNames();
      for (int i = 0; i < names.length; i++) {
        if (names[i].equalsIgnoreCase(key)) return names[i];
      }
      throw failure(name, "refused", "there is no column " + key + " to partition by");
    }

    /** Returns the columns with the partition keys last, as tables of files have them. */
    private static StructType ordered(StructType schema, List keys) {
      StructType ordered = new StructType();
      StructField[] fields = schema.fields();
      for (int i = 0; i < fields.length; i++) {
        if (!keys.contains(fields[i].name())) ordered = ordered.add(fields[i]);
      }
      for (Object key : keys) ordered = ordered.add(schema.apply((String) key));
      return ordered;
    }

    private static List strings(JsonNode node) {
      List found = new ArrayList();
      for (int i = 0; i < node.size(); i++) found.add(item(node, i).asText());
      return found;
    }

    // ---- calls -------------------------------------------------------------------------------

    private JsonNode find(Identifier table) {
      if (table.namespace().length != 1) return null;
      JsonNode found = call(request("get_table", table));
      return found.isNull() ? null : found;
    }

    private ObjectNode request(String method) {
      return all.request(method, handle);
    }

    private ObjectNode request(String method, Identifier table) {
      ObjectNode request = request(method);
      request.put("schema", schema(table));
      request.put("table_name", table.name());
      return request;
    }

    private String schema(Identifier table) {
      if (table.namespace().length == 1) return table.namespace()[0];
      throw failure(name, "refused", "it has no schemas within schemas");
    }

    private scala.collection.immutable.Seq fullName(Identifier table) {
      return seq(Arrays.asList((Object[]) new String[] {
          name, table.namespace()[0], table.name()}));
    }

    private JsonNode call(ObjectNode request) {
      return all.call(name, request);
    }
  }

  /** A table that CREATE TABLE AS SELECT has created: rows are inserted by its name. */
  public static class Staged implements StagedTable, SupportsWrite {
    private final Catalog catalog;
    private final Identifier identifier;
    private final Table table;
    /** In the order of the query; partition keys are the last columns of the table. */
    private final Column[] columns;
    private final scala.collection.immutable.Seq fullName;

    Staged(
        Catalog catalog, Identifier identifier, Table table, Column[] columns,
        scala.collection.immutable.Seq fullName) {
      this.catalog = catalog;
      this.identifier = identifier;
      this.table = table;
      this.columns = columns;
      this.fullName = fullName;
    }

    public String name() {
      return table.name();
    }

    public StructType schema() {
      return CatalogV2Util.v2ColumnsToStructType(columns);
    }

    public Column[] columns() {
      return columns;
    }

    public Transform[] partitioning() {
      return table.partitioning();
    }

    public Map properties() {
      return table.properties();
    }

    public Set capabilities() {
      return new HashSet(Arrays.asList(new Object[] {
          TableCapability.V1_BATCH_WRITE, TableCapability.TRUNCATE}));
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return new Insertion(table.columns(), fullName);
    }

    public void commitStagedChanges() {}

    public void abortStagedChanges() {
      catalog.dropTable(identifier);
    }
  }

  /** Inserts the rows of a query into a table that has none. */
  static class Insertion implements SupportsTruncate, V1Write, InsertableRelation {
    private final Column[] columns;
    private final scala.collection.immutable.Seq fullName;

    Insertion(Column[] columns, scala.collection.immutable.Seq fullName) {
      this.columns = columns;
      this.fullName = fullName;
    }

    public WriteBuilder truncate() {
      return this;
    }

    public Write build() {
      return this;
    }

    public InsertableRelation toInsertableRelation() {
      return this;
    }

    public void insert(org.apache.spark.sql.Dataset rows, boolean overwrite) {
      List names = new ArrayList();
      for (int i = 0; i < columns.length; i++) {
        names.add(rows.col(quoted(columns[i].name())));
      }
      Dataset ordered = (Dataset) rows.select(seq(names));
      UnresolvedRelation target =
          new UnresolvedRelation(fullName, CaseInsensitiveStringMap.empty(), false);
      Dataset.ofRows(
          ordered.sparkSession(),
          new InsertIntoStatement(
              target, scalaMap(new HashMap()), seq(Collections.EMPTY_LIST),
              ordered.queryExecution().analyzed(), false, false, false));
    }
  }
}
