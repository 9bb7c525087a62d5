package tidegate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
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
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
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
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.InsertableRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType$;
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
      Pattern.compile("SELECT /\\* connector=[a-z]+ (\\{.*?\\}) \\*/ .*", Pattern.DOTALL);
  /** The names of the functions that expressions may call. */
  static final Set FUNCTIONS =
      new HashSet(Arrays.asList(new String[] {
          "array", "array_join", "concat", "decode", "encode", "map", "map_entries", "named_struct",
          "replace", "struct", "to_csv", "to_json", "transform"}));
  static final ObjectMapper JSON = new ObjectMapper();

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
      scala.collection.immutable.Seq name =
          ((UnresolvedRelation) node.table()).multipartIdentifier();
      CatalogTable view = view(name);
      if (view == null || !view.viewText().isDefined()) return node;
      Matcher mark = MARK.matcher((String) view.viewText().get());
      if (!mark.matches()) return node;
      Sink sink = null;
      try {
        JsonNode said = JSON.readTree(mark.group(1));
        if (!said.has("columns")) return node; // it cannot be written
        sink = new Sink(session, view, name.mkString("."), said, node.partitionSpec());
      } catch (Exception invalid) {
        fail(name.mkString("."), mark.group(1));
      }
      LogicalPlan target =
          DataSourceV2Relation.create(sink, scala.Option.empty(), scala.Option.empty());
      return node.copy(
          target, node.partitionSpec(), node.userSpecifiedCols(), node.query(), node.overwrite(),
          node.ifPartitionNotExists(), node.byName());
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
      path = at(said, "path").asText();
      Iterator given = at(said, "options").fieldNames();
      while (given.hasNext()) {
        String key = (String) given.next();
        options.put(key, at(at(said, "options"), key).asText());
      }
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
      return columns;
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
      Dataset rows = (Dataset) data.selectExpr(sink.expressions);
      if (sink.connector.equals("kafka")) {
        produce(rows);
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

    private void produce(Dataset rows) {
      CreatableRelationProvider kafka;
      try {
        kafka = (CreatableRelationProvider) DataSource.lookupDataSource(
            "kafka", sink.session.sessionState().conf()).newInstance();
      } catch (InstantiationException failed) {
        throw new IllegalStateException(failed);
      } catch (IllegalAccessException failed) {
        throw new IllegalStateException(failed);
      }
      kafka.createRelation(sink.session.sqlContext(), SaveMode.Append, scalaMap(sink.options), rows);
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
