package tidegate;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsOverwrite;
import org.apache.spark.sql.connector.write.V1Write;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.command.DDLUtils;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions;
import org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils$;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTable;
import org.apache.spark.sql.jdbc.JdbcDialect;
import org.apache.spark.sql.jdbc.JdbcDialects$;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.StructType$;
import org.apache.spark.unsafe.Platform;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Makes the tables of connectors, which are views, targets of INSERT.
 *
 * <p>Before Spark resolves names, the target of an INSERT that is such a view is replaced by a table
 * that can only be written. Spark then treats column lists, types and OVERWRITE as for any table.
 * How rows are written is in a comment at the beginning of the view's text, which only the owner of
 * the view can change. It is checked nevertheless: anybody may write such a comment into a view.
 */
public class ConnectorSinks {
  /** What the comment says of a connector; {@code core/connectors/sinks.py} writes it. */
  static final Pattern MARK =
      Pattern.compile("SELECT /\\* connector=[a-z-]+ (\\{.*?\\}) \\*/ .*", Pattern.DOTALL);
  /** The names of the functions that expressions may call. */
  static final Set FUNCTIONS =
      new HashSet(Arrays.asList(new String[] {
          "array", "array_join", "concat", "current_timezone", "encode", "from_utc_timestamp",
          "map", "map_entries", "named_struct", "replace", "to_avro", "to_csv", "to_json",
          "transform", "unix_millis"}));
  /** Marks a name that is not that of a connector's table. */
  static final TreeNodeTag OTHER = new TreeNodeTag("tidegate.other");
  /** As strict as what reads it in Python, so that both see the same path. */
  static final ObjectMapper JSON =
      new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  /** Before what is not done, and why, in messages of exceptions. */
  static final String REFUSED = "tidegate.refused:";
  static final String FIELD = "\u001f";
  /** The catalogs and connections of all sessions. */
  static volatile Catalogs catalogs;
  /** The sessions of jobs that write changes, in which targets also have the column DELETED. */
  static final Map changing = java.util.Collections.synchronizedMap(new java.util.WeakHashMap());
  /** Whether a row is one to delete, by its key; {@code core/connectors/changes.py} names it. */
  static final String DELETED = "__deleted";
  /** Registers a schema, by URL and subject, and returns what records with it begin with. */
  static volatile scala.Function3 registry;

  /** Sets the catalogs and connections, which lead to the tables of other databases. */
  public void connect(Catalogs all, scala.Function3 schemas) {
    catalogs = all;
    registry = schemas;
  }

  /** Has the targets in a session also have the column DELETED from now on. */
  public void acceptChanges(Object session) {
    changing.put(session, Boolean.TRUE);
  }

  /** Returns what builds the rule that replaces the targets, for each session. */
  public Object targets() {
    return new Rules(false);
  }

  /**
   * Returns what builds the rule that lets INSERT OVERWRITE replace the partitions written, whatever
   * Spark's setting for tables says.
   */
  public Object overwriting() {
    return new Rules(true);
  }

  static class Rules extends scala.runtime.AbstractFunction1 {
    private final boolean overwriting;

    Rules(boolean overwriting) {
      this.overwriting = overwriting;
    }

    public Object apply(Object session) {
      return new SinkRule((SparkSession) session, overwriting);
    }
  }

  static class SinkRule extends Rule {
    private final SparkSession session;
    private final boolean overwriting;

    SinkRule(SparkSession session, boolean overwriting) {
      this.session = session;
      this.overwriting = overwriting;
    }

    public TreeNode apply(TreeNode plan) {
      return ((LogicalPlan) plan).resolveOperatorsDown(new Replacement(session, overwriting));
    }
  }

  static class Replacement extends scala.runtime.AbstractPartialFunction {
    private final SparkSession session;
    private final boolean overwriting;

    Replacement(SparkSession session, boolean overwriting) {
      this.session = session;
      this.overwriting = overwriting;
    }

    public boolean isDefinedAt(Object node) {
      return overwriting ? node instanceof OverwritePartitionsDynamic
          : node instanceof InsertIntoStatement;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      return overwriting ? overwritten((OverwritePartitionsDynamic) node)
          : inserted((InsertIntoStatement) node);
    }

    private LogicalPlan overwritten(OverwritePartitionsDynamic node) {
      boolean sink = node.table() instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) node.table()).table() instanceof Sink;
      if (!sink) return node;
      Expression all = Literal.create(Boolean.TRUE, org.apache.spark.sql.types.DataTypes.BooleanType);
      return new OverwriteByExpression(
          node.table(), all, node.query(), node.writeOptions(), node.isByName(),
          scala.Option.empty(), scala.Option.empty());
    }

    private LogicalPlan inserted(InsertIntoStatement node) {
      if (!(node.table() instanceof UnresolvedRelation)) return node;
      UnresolvedRelation target = (UnresolvedRelation) node.table();
      // The rules run until nothing changes; the metastore is asked once.
      if (target.getTagValue(OTHER).isDefined()) return node;
      Sink sink = sink(target.multipartIdentifier(), node.partitionSpec());
      if (sink == null) {
        target.setTagValue(OTHER, Boolean.TRUE);
        return node;
      }
      LogicalPlan written =
          DataSourceV2Relation.create(sink, scala.Option.empty(), scala.Option.empty());
      return node.copy(
          written, node.partitionSpec(), node.userSpecifiedCols(), node.query(), node.overwrite(),
          node.ifPartitionNotExists(), node.byName());
    }

    /** Returns how rows are inserted into the view of a name; null if it is not such a view. */
    private Sink sink(
        scala.collection.immutable.Seq name, scala.collection.immutable.Map partition) {
      CatalogTable view = view(name);
      if (view == null || !view.viewText().isDefined()) return null;
      Matcher mark = MARK.matcher((String) view.viewText().get());
      if (!mark.matches()) return null;
      try {
        JsonNode said = JSON.readTree(mark.group(1));
        if (!said.has("columns")) return null; // it cannot be written
        return new Sink(session, view, name.mkString("."), said, partition);
      } catch (Exception invalid) {
        fail(name.mkString("."), mark.group(1));
        return null;
      }
    }

    /** Reports a comment other than those that the server itself writes. */
    private static void fail(String view, String text) {
      Map parameters = new HashMap();
      parameters.put("viewName", view);
      parameters.put("viewText", text);
      Platform.throwException(new AnalysisException("INVALID_VIEW_TEXT", scalaMap(parameters)));
    }

    /** Returns the view that a name means; null if it is none of the session's or its catalog's. */
    private CatalogTable view(scala.collection.immutable.Seq parts) {
      SessionCatalog catalog = session.sessionState().catalog();
      scala.Option temporary = catalog.getRawLocalOrGlobalTempView(parts);
      if (temporary.isDefined()) return ((TemporaryViewRelation) temporary.get()).tableMeta();
      CatalogManager all = session.sessionState().catalogManager();
      int size = parts.size();
      String first = parts.head().toString();
      boolean qualified = size == 3 && first.equalsIgnoreCase("spark_catalog");
      boolean current = size < 3 && all.currentCatalog().name().equals("spark_catalog")
          && (size == 1 || !all.isCatalogRegistered(first));
      if (!qualified && !current) return null;
      String schema = size == 1 ? catalog.getCurrentDatabase() : parts.apply(size - 2).toString();
      try {
        CatalogTable found = catalog.getTableRawMetadata(
            new TableIdentifier(parts.last().toString(), new scala.Some(schema)));
        return found.tableType().name().equals("VIEW") ? found : null;
      } catch (Exception missing) {
        return null; // Spark reports it
      }
    }
  }

  /** The target of an INSERT. Its properties tell the check of plans what it writes, and for whom. */
  static class Sink implements SupportsWrite {
    final SparkSession session;
    final String connector;
    final StructType columns;
    final String[] expressions;
    final List partitions;
    final Map options = new HashMap();
    final String format;
    final String path;
    /** The connection to the database of the table; empty for files and topics. */
    final String connection;
    final List table;
    final List key;
    final int batch;
    /** Whether rows are inserted or deleted, as their last column says. */
    final boolean changes;
    private final String name;
    private final Map properties = new HashMap();
    /** The values of PARTITION (key = value), as they were written. */
    final Map fixed = new HashMap();

    Sink(SparkSession session, CatalogTable view, String name, JsonNode said,
        scala.collection.immutable.Map partition) throws Exception {
      this.session = session;
      this.name = name;
      connector = at(said, "connector").asText();
      columns = StructType$.MODULE$.fromDDL(at(said, "columns").asText());
      expressions = (String[]) texts(at(said, "expressions")).toArray(new String[0]);
      for (int i = 0; i < expressions.length; i++) {
        check(session.sessionState().sqlParser().parseExpression(expressions[i]));
      }
      partitions = texts(at(said, "partitions"));
      format = at(said, "format").asText();
      path = at(said, "path").isTextual() ? at(said, "path").asText() : "";
      Set folded = new HashSet();
      Iterator given = at(said, "options").fieldNames();
      while (given.hasNext()) {
        String key = (String) given.next();
        // What is checked would not be what Spark uses.
        if (!folded.add(key.toLowerCase(Locale.ROOT))) throw new SecurityException(key);
        options.put(key, at(at(said, "options"), key).asText());
      }
      connection = at(said, "connection").asText();
      table = texts(at(said, "table"));
      key = texts(at(said, "key"));
      batch = at(said, "batch").asInt();
      changes = changing.containsKey(session);
      boolean placed = connector.equals("kafka")
          ? options.containsKey("kafka.bootstrap.servers") && options.containsKey("topic")
          : connector.equals("filesystem") != path.isEmpty();
      boolean connected = !connection.isEmpty() && !table.isEmpty() && path.isEmpty();
      if (!placed || connector.equals("jdbc") != connected) throw new SecurityException(connector);
      scala.collection.Iterator parts = partition.iterator();
      while (parts.hasNext()) {
        scala.Tuple2 part = (scala.Tuple2) parts.next();
        if (((scala.Option) part._2()).isDefined()) {
          fixed.put(part._1().toString().toLowerCase(Locale.ROOT), ((scala.Option) part._2()).get());
        }
      }
      if (view.identifier().database().isDefined() && !isTemporary(view)) {
        properties.put("view.schema", view.identifier().database().get());
        properties.put("view.name", view.identifier().table());
        properties.put("view.owner", view.owner());
      }
      properties.put("connector", connector);
      if (!path.isEmpty()) properties.put("path", path);
      if (!connection.isEmpty()) properties.put("connection", connection);
      for (Object one : options.entrySet()) {
        Map.Entry option = (Map.Entry) one;
        properties.put("option." + option.getKey(), option.getValue());
      }
    }

    private boolean isTemporary(CatalogTable view) {
      return session.sessionState().catalog().isTempView(view.identifier());
    }

    private static JsonNode at(JsonNode node, String key) {
      return (JsonNode) node.path(key);
    }

    private static List texts(JsonNode array) {
      List found = new ArrayList();
      for (int i = 0; i < array.size(); i++) found.add(((JsonNode) array.get(i)).asText());
      return found;
    }

    /** Refuses functions and queries that the server itself does not write. */
    private void check(Expression node) {
      boolean called = node instanceof UnresolvedFunction;
      if (called) {
        scala.collection.immutable.Seq function = ((UnresolvedFunction) node).nameParts();
        called = function.size() > 1
            || !FUNCTIONS.contains(function.head().toString().toLowerCase(Locale.ROOT));
      }
      if (called || node instanceof PlanExpression) throw new SecurityException(node.toString());
      scala.collection.Iterator children = node.children().iterator();
      while (children.hasNext()) check((Expression) children.next());
    }

    public String name() {
      return name;
    }

    public String toString() {
      return "connector " + connector + " " + path;
    }

    public StructType schema() {
      return changes
          ? columns.add(DELETED, org.apache.spark.sql.types.DataTypes.BooleanType, false) : columns;
    }

    public Transform[] partitioning() {
      Transform[] found = new Transform[partitions.size()];
      for (int i = 0; i < found.length; i++) found[i] = Expressions.identity((String) partitions.get(i));
      return found;
    }

    public Map properties() {
      return properties;
    }

    public Set capabilities() {
      Set found = new HashSet();
      found.add(TableCapability.V1_BATCH_WRITE);
      if (connector.equals("filesystem")) {
        found.add(TableCapability.TRUNCATE);
        found.add(TableCapability.OVERWRITE_BY_FILTER);
        found.add(TableCapability.OVERWRITE_DYNAMIC);
      }
      return found;
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      return connector.equals("filesystem") ? new Overwriting(this) : new Appending(this);
    }
  }

  static class Appending implements WriteBuilder, V1Write, InsertableRelation {
    private final Sink sink;

    Appending(Sink sink) {
      this.sink = sink;
    }

    public Write build() {
      return this;
    }

    public InsertableRelation toInsertableRelation() {
      return this;
    }

    public void insert(org.apache.spark.sql.Dataset data, boolean overwrite) {
      String[] expressions = sink.connector.equals("kafka") ? registered() : sink.expressions;
      Dataset rows = sink.changes
          ? changed(data, expressions) : (Dataset) data.selectExpr(expressions);
      if (sink.connector.equals("kafka")) {
        produce(rows);
      } else if (sink.connector.equals("jdbc")) {
        try {
          new Database(sink).write(rows);
        } catch (Exception failed) {
          Platform.throwException(failed);
        }
      } else if (sink.connector.equals("print")) {
        org.slf4j.Logger log = org.slf4j.LoggerFactory.getLogger("tidegate.print");
        Iterator lines = rows.toLocalIterator();
        while (lines.hasNext()) {
          String line = ((org.apache.spark.sql.Row) lines.next()).getString(0);
          log.info(line.replace("\r", "\\r").replace("\n", "\\n"));
        }
      } else if (sink.connector.equals("blackhole")) {
        rows.queryExecution().toRdd().count();
      } else {
        throw new SecurityException(sink.connector);
      }
    }

    /** Returns the expressions with the ids of schemas before keys and values, if they need one. */
    private String[] registered() {
      String[] found = (String[]) sink.expressions.clone();
      for (int i = 0; i < found.length; i++) {
        String part = found[i].substring(found[i].lastIndexOf(' ') + 1);
        String url = (String) sink.options.get(part + "SchemaRegistry");
        if (url == null) continue;
        String value = found[i].substring(0, found[i].length() - part.length() - 4);
        Object id = registry.apply(
            url, sink.options.get(part + "Subject"), sink.options.get(part + "Schema"));
        found[i] = "concat(" + id + ", " + value + ") AS " + part;
      }
      return found;
    }

    /** Returns what is written of changes: for a deleted row, a record without a value. */
    private Dataset changed(org.apache.spark.sql.Dataset data, String[] expressions) {
      int size = expressions.length;
      String[] all = (String[]) Arrays.copyOf(expressions, size + 1);
      all[size] = DELETED;
      if (sink.connector.equals("print")) all[0] = all[0] + " AS line";
      Dataset rows = (Dataset) data.selectExpr(all);
      if (sink.connector.equals("jdbc")) return rows; // it deletes the row
      String[] written = (String[]) Arrays.copyOf(rows.columns(), size);
      for (int i = 0; i < size; i++) {
        if (written[i].equals("value")) written[i] = "if(" + DELETED + ", NULL, value) AS value";
        if (written[i].equals("line")) {
          written[i] = "if(" + DELETED + ", overlay(line, '-D[', locate('+I[', line)), line)";
        }
      }
      return (Dataset) rows.selectExpr(written);
    }

    private void produce(Dataset rows) {
      Class source = DataSource.lookupDataSource("kafka", sink.session.sessionState().conf());
      try {
        if (Arrays.asList(rows.columns()).contains("timestamp")) {
          new Records(source.getClassLoader(), sink.options).write(rows);
          return;
        }
        CreatableRelationProvider kafka = (CreatableRelationProvider) source.newInstance();
        kafka.createRelation(
            sink.session.sqlContext(), SaveMode.Append, scalaMap(sink.options), rows);
      } catch (Exception failed) {
        Platform.throwException(failed);
      }
    }
  }

  /**
   * Writes records with their times, which Spark's writer does not set, from the driver. The classes
   * of Kafka are there only with engine.kafka.
   */
  static class Records {
    static final String KAFKA = "org.apache.kafka.";
    /** How many records are sent before it is checked that they have arrived. */
    static final int PENDING = 10000;

    private final ClassLoader classes;
    private final Map options;

    Records(ClassLoader classes, Map options) {
      this.classes = classes;
      this.options = options;
    }

    void write(Dataset rows) throws Exception {
      Class serializer = classes.loadClass(KAFKA + "common.serialization.Serializer");
      Class bytes = classes.loadClass(KAFKA + "common.serialization.ByteArraySerializer");
      Class type = classes.loadClass(KAFKA + "clients.producer.KafkaProducer");
      Class recorded = classes.loadClass(KAFKA + "clients.producer.ProducerRecord");
      Map settings = new HashMap();
      for (Object one : options.entrySet()) {
        Map.Entry option = (Map.Entry) one;
        String key = (String) option.getKey();
        if (key.startsWith("kafka.")) settings.put(key.substring(6), option.getValue());
      }
      Object producer = type
          .getConstructor(new Class[] {Map.class, serializer, serializer})
          .newInstance(new Object[] {settings, bytes.newInstance(), bytes.newInstance()});
      try {
        java.lang.reflect.Method send = type.getMethod("send", new Class[] {recorded});
        List pending = new ArrayList();
        Iterator all = rows.toLocalIterator();
        while (all.hasNext()) {
          Object record = record(recorded, (org.apache.spark.sql.Row) all.next());
          pending.add(send.invoke(producer, new Object[] {record}));
          if (pending.size() == PENDING || !all.hasNext()) {
            for (Object one : pending) ((java.util.concurrent.Future) one).get();
            pending.clear();
          }
        }
      } finally {
        type.getMethod("close", new Class[0]).invoke(producer, new Object[0]);
      }
    }

    private Object record(Class type, org.apache.spark.sql.Row row) throws Exception {
      Class[] fields = new Class[] {
          String.class, Integer.class, Long.class, Object.class, Object.class, Iterable.class};
      return type.getConstructor(fields).newInstance(new Object[] {
          options.get("topic"), null, field(row, "timestamp"), bytes(field(row, "key")),
          bytes(field(row, "value")), headers(field(row, "headers"))});
    }

    /** Returns the headers in an array of structs; null without any. */
    private List headers(Object given) throws Exception {
      if (given == null) return null;
      Class type = classes.loadClass(KAFKA + "common.header.internals.RecordHeader");
      List found = new ArrayList();
      for (Object one : CollectionConverters.asJava((scala.collection.Seq) given)) {
        org.apache.spark.sql.Row header = (org.apache.spark.sql.Row) one;
        found.add(type
            .getConstructor(new Class[] {String.class, byte[].class})
            .newInstance(new Object[] {header.get(0), header.get(1)}));
      }
      return found;
    }

    private static Object field(org.apache.spark.sql.Row row, String name) {
      int index = Arrays.asList(row.schema().fieldNames()).indexOf(name);
      return index < 0 ? null : row.get(index);
    }

    private static byte[] bytes(Object value) {
      if (value instanceof String) {
        return ((String) value).getBytes(java.nio.charset.StandardCharsets.UTF_8);
      }
      return (byte[]) value;
    }
  }

  /** Writes rows into the table of another database: all or none, in one transaction. */
  static class Database {
    static final int BATCH = 1000;
    private final Sink sink;

    Database(Sink sink) {
      this.sink = sink;
    }

    void write(Dataset rows) throws Exception {
      JDBCTable table = table();
      JDBCOptions options = table.jdbcOptions();
      JdbcDialect dialect = JdbcDialects$.MODULE$.get(options.url());
      StructField[] fields = new StructField[sink.expressions.length];
      String[] values = new String[fields.length];
      for (int i = 0; i < fields.length; i++) {
        fields[i] = column(table, rows.columns()[i]);
        values[i] = "CAST(" + sink.expressions[i] + " AS " + fields[i].dataType().sql() + ")";
      }
      String[] selected = values;
      if (sink.changes) {
        selected = (String[]) Arrays.copyOf(values, fields.length + 1);
        selected[fields.length] = "NOT " + DELETED + " AS " + DELETED;
      }
      Dataset written = (Dataset) rows.selectExpr(selected);
      // Rows are deleted first, so that others may have what is unique besides the key.
      if (sink.changes) written = (Dataset) written.sort(DELETED, new String[0]);
      String statement = statement(options, dialect, fields);
      Iterator all = written.toLocalIterator();
      Connection connection =
          (Connection) dialect.createConnectionFactory(options).apply(Integer.valueOf(-1));
      boolean done = false;
      try {
        boolean transactions = connection.getMetaData().supportsTransactions();
        if (transactions) connection.setAutoCommit(false);
        PreparedStatement inserting = connection.prepareStatement(statement);
        inserting.setQueryTimeout(options.queryTimeout());
        PreparedStatement deleting = null;
        if (sink.changes) {
          deleting = connection.prepareStatement(deletion(options, dialect, fields));
          deleting.setQueryTimeout(options.queryTimeout());
        }
        PreparedStatement current = null;
        int most = sink.batch > 0 ? sink.batch : options.parameters().contains("batchsize")
            ? Integer.parseInt((String) options.parameters().apply("batchsize")) : BATCH;
        int waiting = 0;
        while (all.hasNext()) {
          org.apache.spark.sql.Row row = (org.apache.spark.sql.Row) all.next();
          boolean deletes = sink.changes && !row.getBoolean(fields.length);
          PreparedStatement next = deletes ? deleting : inserting;
          if (waiting == most || waiting > 0 && next != current) {
            current.executeBatch();
            waiting = 0;
          }
          current = next;
          int place = 0;
          for (int i = 0; i < fields.length; i++) {
            if (deletes && !isKey(fields[i].name())) continue;
            set(current, ++place, row.get(i), fields[i].dataType(), dialect);
          }
          current.addBatch();
          waiting++;
        }
        if (waiting > 0) current.executeBatch();
        if (transactions) connection.commit();
        done = true;
      } finally {
        try {
          if (!done && !connection.getAutoCommit()) connection.rollback();
        } finally {
          connection.close();
        }
      }
    }

    private JDBCTable table() throws Exception {
      if (!catalogs.isDatabase(sink.connection)) {
        throw refused(sink.connection + " is no connection to a database");
      }
      catalogs.use(sink.session, sink.connection);
      TableCatalog found = (TableCatalog)
          sink.session.sessionState().catalogManager().catalog(sink.connection);
      int last = sink.table.size() - 1;
      String[] schema = (String[]) sink.table.subList(0, last).toArray(new String[0]);
      String name = (String) sink.table.get(last);
      return (JDBCTable) found.loadTable(PythonCatalogs.identifier(schema, name));
    }

    private UnsupportedOperationException refused(String reason) {
      return new UnsupportedOperationException(
          REFUSED + "An INSERT into the table " + sink.name() + FIELD + reason);
    }

    /** Returns a column of the table in the database, whose name may be written differently. */
    private StructField column(JDBCTable table, String name) {
      StructField[] all = table.schema().fields();
      StructField found = null;
      for (int i = 0; i < all.length; i++) {
        if (all[i].name().equals(name)) return all[i];
        if (all[i].name().equalsIgnoreCase(name)) found = all[i];
      }
      if (found == null) throw refused("its table " + table.name() + " has no column " + name);
      return found;
    }

    private String deletion(JDBCOptions options, JdbcDialect dialect, StructField[] fields) {
      StringBuilder key = new StringBuilder();
      for (int i = 0; i < fields.length; i++) {
        if (!isKey(fields[i].name())) continue;
        key.append(key.length() == 0 ? "" : " AND ");
        key.append(dialect.quoteIdentifier(fields[i].name())).append(" = ?");
      }
      return "DELETE FROM " + options.tableOrQuery() + " WHERE " + key;
    }

    private String statement(JDBCOptions options, JdbcDialect dialect, StructField[] fields) {
      String insert = dialect.insertIntoTable(options.tableOrQuery(), fields);
      if (sink.key.isEmpty()) return insert;
      boolean mysql = options.url().startsWith("jdbc:mysql:"); // MariaDB's is made one of these
      boolean postgresql = options.url().startsWith("jdbc:postgresql:")
          || options.url().startsWith("jdbc:sqlite:");
      if (!mysql && !postgresql) {
        throw refused("rows replace others by a primary key only in PostgreSQL, MySQL, MariaDB and"
            + " SQLite; without PRIMARY KEY they are added");
      }
      StringBuilder key = new StringBuilder();
      StringBuilder changes = new StringBuilder();
      for (int i = 0; i < fields.length; i++) {
        String name = dialect.quoteIdentifier(fields[i].name());
        boolean identifies = isKey(fields[i].name());
        if (identifies) key.append(key.length() == 0 ? "" : ", ").append(name);
        // MySQL changes nothing by it, and has no word for that which does not hide errors.
        if (identifies && !(mysql && sink.key.size() == fields.length)) continue;
        changes.append(changes.length() == 0 ? "" : ", ").append(name).append(" = ")
            .append(mysql ? "VALUES(" + name + ")" : "EXCLUDED." + name);
      }
      if (mysql) return insert + " ON DUPLICATE KEY UPDATE " + changes;
      return insert + " ON CONFLICT (" + key + ") DO "
          + (changes.length() == 0 ? "NOTHING" : "UPDATE SET " + changes);
    }

    private boolean isKey(String name) {
      for (Object one : sink.key) {
        if (name.equalsIgnoreCase((String) one)) return true;
      }
      return false;
    }

    private static void set(
        PreparedStatement statement, int index, Object value, DataType type, JdbcDialect dialect)
        throws Exception {
      if (value == null) {
        statement.setNull(index, JdbcUtils$.MODULE$.getJdbcType(type, dialect).jdbcNullType());
      } else if (value instanceof Byte) {
        statement.setInt(index, ((Byte) value).intValue());
      } else if (value instanceof java.time.LocalDateTime) {
        statement.setTimestamp(
            index,
            dialect.convertTimestampNTZToJavaTimestamp((java.time.LocalDateTime) value));
      } else if (value instanceof java.time.Instant) {
        statement.setTimestamp(index, java.sql.Timestamp.from((java.time.Instant) value));
      } else if (value instanceof java.time.LocalDate) {
        statement.setDate(index, java.sql.Date.valueOf((java.time.LocalDate) value));
      } else if (value instanceof byte[]) {
        statement.setBytes(index, (byte[]) value);
      } else {
        statement.setObject(index, value);
      }
    }
  }

  /** Writes files; what OVERWRITE replaces follows from the partitions, not from the filters. */
  static class Overwriting implements SupportsOverwrite, V1Write, InsertableRelation {
    private final Sink sink;
    private boolean overwrite = false;

    Overwriting(Sink sink) {
      this.sink = sink;
    }

    public WriteBuilder overwrite(Filter[] filters) {
      return truncate();
    }

    public WriteBuilder truncate() {
      overwrite = true;
      return this;
    }

    public Write build() {
      return this;
    }

    public InsertableRelation toInsertableRelation() {
      return this;
    }

    public void insert(org.apache.spark.sql.Dataset data, boolean never) {
      Dataset rows = (Dataset) data.selectExpr(sink.expressions);
      LogicalPlan query = rows.queryExecution().analyzed();
      List keys = new ArrayList();
      List names = new ArrayList();
      Map fixed = new HashMap();
      scala.collection.Iterator columns = query.output().iterator();
      while (columns.hasNext()) {
        Attribute column = (Attribute) columns.next();
        names.add(column.name());
        if (!sink.partitions.contains(column.name())) continue;
        keys.add(column);
        Object value = sink.fixed.get(column.name().toLowerCase(Locale.ROOT));
        if (value != null) fixed.put(column.name(), partition((String) value, column.name()));
      }
      Map options = new HashMap(sink.options);
      // Of partitions, INSERT OVERWRITE replaces those that it writes.
      options.put("partitionOverwriteMode", "dynamic");
      Path path = qualified();
      boolean whole = overwrite && (keys.isEmpty() || fixed.size() == keys.size());
      if (whole) DDLUtils.verifyNotReadPath(query, path, scala.Option.empty());
      Dataset.ofRows(
          sink.session,
          new InsertIntoHadoopFsRelationCommand(
              path, overwrite ? scalaMap(fixed) : scalaMap(new HashMap()), false, seq(keys),
              scala.Option.empty(), format(), scalaMap(options), query,
              overwrite ? SaveMode.Overwrite : SaveMode.Append, scala.Option.empty(),
              scala.Option.empty(), seq(names)));
    }

    private Path qualified() {
      Path path = new Path(sink.path);
      try {
        return path.getFileSystem(sink.session.sessionState().newHadoopConf()).makeQualified(path);
      } catch (java.io.IOException unknown) {
        return path; // Spark reports it
      }
    }

    /** Returns the value of a partition as it is in the name of its directory. */
    private String partition(String text, String column) {
      DataType type = sink.columns.apply(column).dataType();
      scala.Option zone =
          new scala.Some(sink.session.sessionState().conf().sessionLocalTimeZone());
      Expression value =
          new Cast(Literal.create(text, StringType$.MODULE$), type, zone);
      return String.valueOf(new Cast(value, StringType$.MODULE$, zone).eval(null));
    }

    private FileFormat format() {
      if (sink.format.equals("json")) {
        return new org.apache.spark.sql.execution.datasources.json.JsonFileFormat();
      }
      if (sink.format.equals("csv")) {
        return new org.apache.spark.sql.execution.datasources.csv.CSVFileFormat();
      }
      if (sink.format.equals("parquet")) {
        return new org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat();
      }
      if (sink.format.equals("orc")) {
        return new org.apache.spark.sql.execution.datasources.orc.OrcFileFormat();
      }
      if (sink.format.equals("avro")) {
        return new org.apache.spark.sql.avro.AvroFileFormat();
      }
      if (sink.format.equals("text")) {
        return new org.apache.spark.sql.execution.datasources.text.TextFileFormat();
      }
      throw new SecurityException(sink.format);
    }
  }

  static scala.collection.immutable.Map scalaMap(Map map) {
    return (scala.collection.immutable.Map)
        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(map));
  }

  static scala.collection.immutable.Seq seq(List values) {
    return CollectionConverters.asScala(values).toSeq();
  }
}
