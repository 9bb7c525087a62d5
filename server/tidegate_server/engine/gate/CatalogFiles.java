package tidegate;

import com.fasterxml.jackson.databind.JsonNode;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.UnresolvedStar;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.catalog.UnresolvedCatalogRelation;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnaryNode;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionPath;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileDataSourceV2;
import org.apache.spark.sql.hive.execution.HiveTableScanExec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tables of files of catalogs written in Python that are only read.
 *
 * <p>A rule of the analysis replaces each by the relation with which Spark reads the same files in
 * its own catalog. Where the catalog knows the partitions, those are read, wherever their
 * directories are, and no others.
 */
public class CatalogFiles {
  /** The format of tables that a SerDe of Hive reads. */
  public static final String HIVE = "hive";
  /** Why a statement that changes a table is refused. */
  public static final String READ_ONLY = "its tables are only read";
  /** What a partition is called whose value is NULL. */
  private static final String NULL = "__HIVE_DEFAULT_PARTITION__";

  /** Asks the catalog for what a statement needs beyond the definition of the table. */
  public abstract static class Caller {
    /** Returns the partitions as JSON; null if the names of directories tell them. */
    public abstract JsonNode partitions();

    /** Returns the error for what the catalog cannot do. */
    public abstract RuntimeException refused(String reason);
  }

  /** Returns what builds the rule that replaces the tables, for each session. */
  public Object rules() {
    return new Rules();
  }

  /** Returns a table of files; those of Delta are in {@code delta}, or else null. */
  public Files table(
      Caller caller, String name, CatalogTable entry, Map properties, Table delta) {
    return new Files(caller, name, entry, properties, delta, null, null);
  }

  /**
   * Returns a table whose columns are computed.
   *
   * @param source the table as its data source has it.
   * @param derivation the expressions, as JSON.
   */
  public Files derived(
      Caller caller, String name, CatalogTable entry, Map properties, CatalogTable source,
      JsonNode derivation) {
    return new Files(caller, name, entry, properties, null, source, derivation);
  }

  private static scala.collection.immutable.Seq seq(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
  }

  private static scala.collection.immutable.Map scalaMap(Map map) {
    return scala.collection.immutable.Map$.MODULE$.from(
        scala.jdk.javaapi.CollectionConverters.asScala(map));
  }

  private static scala.Option option(Object value) {
    return scala.Option$.MODULE$.apply(value);
  }

  /** A table that is only read. */
  public static class Files implements SupportsPartitionManagement, TruncatableTable {
    private final Caller caller;
    private final String name;
    private final CatalogTable entry;
    private final Map properties;
    private final Table delta;
    private final CatalogTable source;
    private final JsonNode derivation;

    Files(
        Caller caller, String name, CatalogTable entry, Map properties, Table delta,
        CatalogTable source, JsonNode derivation) {
      this.caller = caller;
      this.name = name;
      this.entry = entry;
      this.properties = properties;
      this.delta = delta;
      this.source = source;
      this.derivation = derivation;
    }

    public String name() {
      return name;
    }

    public StructType schema() {
      return delta == null ? entry.schema() : delta.schema();
    }

    public Column[] columns() {
      return CatalogV2Util.structTypeToV2Columns(schema());
    }

    public Transform[] partitioning() {
      if (delta != null) return delta.partitioning();
      scala.collection.immutable.Seq keys = entry.partitionColumnNames();
      Transform[] found = new Transform[keys.size()];
      for (int i = 0; i < found.length; i++) {
        found[i] = Expressions.identity("`" + ((String) keys.apply(i)).replace("`", "``") + "`");
      }
      return found;
    }

    public Map properties() {
      Map found = new HashMap(properties);
      found.put("provider", entry.provider().get());
      return found;
    }

    public Set capabilities() {
      return new HashSet(Arrays.asList(new Object[] {TableCapability.BATCH_READ}));
    }

    public boolean truncateTable() {
      throw readOnly();
    }

    private RuntimeException readOnly() {
      return caller.refused(READ_ONLY);
    }

    // SHOW PARTITIONS

    public StructType partitionSchema() {
      return delta == null ? entry.partitionSchema() : new StructType();
    }

    public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow values) {
      StructType keys = partitionSchema();
      List known = partitions();
      List found = new ArrayList();
      for (int i = 0; known != null && i < known.size(); i++) {
        InternalRow row = ((CatalogTablePartition) known.get(i)).toRow(keys, zone());
        boolean wanted = true;
        for (int k = 0; k < names.length; k++) {
          int place = keys.fieldIndex(names[k]);
          DataType type = keys.apply(place).dataType();
          wanted &= java.util.Objects.equals(row.get(place, type), values.get(k, type));
        }
        if (wanted) found.add(row);
      }
      return (InternalRow[]) found.toArray(new InternalRow[0]);
    }

    public Map loadPartitionMetadata(InternalRow values) {
      return new HashMap();
    }

    public void createPartition(InternalRow values, Map properties) {
      throw readOnly();
    }

    public boolean dropPartition(InternalRow values) {
      throw readOnly();
    }

    public void replacePartitionMetadata(InternalRow values, Map properties) {
      throw readOnly();
    }

    private static String zone() {
      return SparkSession.active().sessionState().conf().sessionLocalTimeZone();
    }

    // Reading

    /** Returns the relation that reads the table, with the columns that a plan refers to. */
    LogicalPlan relation(DataSourceV2Relation node) {
      if (!node.options().isEmpty()) {
        throw caller.refused(
            "its tables have no option " + node.options().keySet().iterator().next());
      }
      if (delta != null) {
        return node.copy(
            delta, node.output(), node.catalog(), node.identifier(), node.options(),
            node.timeTravelSpec());
      }
      SparkSession session = SparkSession.active();
      if (derivation != null) return computed(session, node);
      List partitions = partitions();
      return entry.provider().get().equals(HIVE)
          ? hive(node, partitions) : files(session, node, partitions);
    }

    /** Returns the relation of the data source with the columns computed from its own. */
    private LogicalPlan computed(SparkSession session, DataSourceV2Relation node) {
      ParserInterface parser = session.sessionState().sqlParser();
      List values = new ArrayList();
      values.add(new UnresolvedStar(option(null)));
      java.util.Iterator named = derivation.get("values").fields();
      while (named.hasNext()) {
        Map.Entry one = (Map.Entry) named.next();
        values.add(alias(
            parsed(parser, ((JsonNode) one.getValue()).asText()), (String) one.getKey(),
            NamedExpression$.MODULE$.newExprId(), seq(new ArrayList()), null));
      }
      LogicalPlan relation =
          new UnresolvedCatalogRelation(source, CaseInsensitiveStringMap.empty(), false);
      List columns = new ArrayList();
      for (int i = 0; i < node.output().size(); i++) {
        AttributeReference column = (AttributeReference) node.output().apply(i);
        String text = ((JsonNode) derivation.get("columns").get(i)).asText();
        columns.add(alias(
            new Cast(parsed(parser, text), column.dataType(), option(zone())),
            column.name(), column.exprId(), column.qualifier(), column.metadata()));
      }
      return new Project(seq(columns), new Project(seq(values), relation));
    }

    private Expression parsed(ParserInterface parser, String text) {
      try {
        return parser.parseExpression(text);
      } catch (org.apache.spark.sql.catalyst.parser.ParseException invalid) {
        throw caller.refused("the expression of a column is invalid: " + invalid.getMessage());
      }
    }

    private static Alias alias(
        Expression value, String name, ExprId id, scala.collection.immutable.Seq qualifier,
        Metadata metadata) {
      return new Alias(value, name, id, qualifier, option(metadata), seq(new ArrayList()));
    }

    /** Reads the keys of partitions as texts: Spark would take that of NULL for a value. */
    private LogicalPlan hive(DataSourceV2Relation node, List partitions) {
      scala.collection.immutable.Seq output = node.output();
      StructType keys = entry.partitionSchema();
      int data = output.size() - keys.length();
      StructType columns = entry.dataSchema();
      List texts = new ArrayList();
      List shown = new ArrayList();
      for (int i = 0; i < data; i++) shown.add(output.apply(i));
      for (int i = 0; i < keys.length(); i++) {
        AttributeReference key = (AttributeReference) output.apply(data + i);
        AttributeReference text = (AttributeReference) DataTypeUtils.toAttribute(
            new StructField(key.name(), StringType$.MODULE$, true, Metadata.empty()));
        columns = columns.add(key.name(), StringType$.MODULE$);
        texts.add(text);
        Expression known = new If(
            new EqualTo(text, Literal.create(NULL, StringType$.MODULE$)),
            Literal.create(null, StringType$.MODULE$), text);
        Expression value = new Cast(known, key.dataType(), option(zone()));
        shown.add(alias(value, key.name(), key.exprId(), key.qualifier(), key.metadata()));
      }
      CatalogTable read = entry.copy(
          entry.identifier(), entry.tableType(), entry.storage(), columns, entry.provider(),
          entry.partitionColumnNames(), entry.bucketSpec(), entry.owner(), entry.createTime(),
          entry.lastAccessTime(), entry.createVersion(), entry.properties(), entry.stats(),
          entry.viewText(), entry.comment(), entry.collation(), entry.unsupportedFeatures(),
          entry.tracksPartitionsInCatalog(), entry.schemaPreservesCase(),
          entry.ignoredProperties(), entry.viewOriginalText());
      LogicalPlan relation = new HiveTableRelation(
          read, (scala.collection.immutable.Seq) output.take(data), seq(texts), option(null),
          partitions == null ? option(null) : option(seq(partitions)));
      return partitions == null ? relation : new Project(seq(shown), relation);
    }

    private LogicalPlan files(SparkSession session, DataSourceV2Relation node, List partitions) {
      StructType keys = entry.partitionSchema();
      List places = new ArrayList();
      if (partitions == null) {
        // A root without columns: what its subdirectories are called says nothing.
        places.add(new PartitionPath(InternalRow.empty(), root()));
      } else {
        for (Object one : partitions) {
          CatalogTablePartition partition = (CatalogTablePartition) one;
          places.add(new PartitionPath(
              partition.toRow(keys, zone()), new Path((URI) partition.storage().locationUri().get())));
        }
      }
      List roots = new ArrayList();
      for (Object one : places) roots.add(((PartitionPath) one).path());
      scala.collection.immutable.Map options = entry.storage().properties();
      InMemoryFileIndex index = new InMemoryFileIndex(
          session, seq(roots), options, option(entry.schema()), NoopCache$.MODULE$,
          option(new PartitionSpec(keys, seq(places))), option(null));
      HadoopFsRelation relation = new HadoopFsRelation(
          index, keys, entry.dataSchema(), option(null), format(session), options, session);
      return new LogicalRelation(relation, node.output(), option(entry), false, option(null));
    }

    private Path root() {
      return new Path((URI) entry.storage().locationUri().get());
    }

    private FileFormat format(SparkSession session) {
      try {
        Object source = DataSource.lookupDataSource(
            (String) entry.provider().get(), session.sessionState().conf())
                .getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
        if (source instanceof FileDataSourceV2) {
          source = ((FileDataSourceV2) source).fallbackFileFormat()
              .getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
        }
        return (FileFormat) source;
      } catch (ReflectiveOperationException failed) {
        throw new IllegalStateException(failed);
      }
    }

    /** Returns the partitions of the table; null if it has none. */
    private List partitions() {
      scala.collection.immutable.Seq keys = entry.partitionColumnNames();
      if (keys.isEmpty()) return null;
      JsonNode known = caller.partitions();
      List found = new ArrayList();
      for (int i = 0; i < known.size(); i++) {
        JsonNode one = (JsonNode) known.get(i);
        JsonNode values = one.get("values");
        if (values.size() != keys.size()) {
          throw caller.refused("a partition of " + name + " has not one value for each key");
        }
        Map spec = new HashMap();
        for (int k = 0; k < keys.size(); k++) {
          JsonNode value = (JsonNode) values.get(k);
          spec.put(keys.apply(k), value.isNull() ? NULL : value.asText());
        }
        Path place = new Path(one.get("location").asText());
        if (!place.isAbsolute()) throw caller.refused("the location " + place + " is not absolute");
        CatalogStorageFormat table = entry.storage();
        found.add(new CatalogTablePartition(
            scalaMap(spec),
            new CatalogStorageFormat(
                option(place.toUri()), table.inputFormat(), table.outputFormat(), table.serde(),
                false, table.properties()),
            scalaMap(Collections.EMPTY_MAP), 0L, -1L, option(null)));
      }
      return found;
    }
  }

  static class Rules extends scala.runtime.AbstractFunction1 {
    public Object apply(Object session) {
      return new ReadRule();
    }
  }

  static class ReadRule extends Rule {
    public TreeNode apply(TreeNode plan) {
      return ((LogicalPlan) plan).resolveOperators(new Replacement());
    }
  }

  static class Replacement extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) node).table() instanceof Files;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      DataSourceV2Relation relation = (DataSourceV2Relation) node;
      return ((Files) relation.table()).relation(relation);
    }
  }

  // ---- tables of Hive ----------------------------------------------------------------------

  /** Returns what builds the strategy that plans the scans of tables that a SerDe reads. */
  public Object strategies() {
    return new Strategies();
  }

  static class Strategies extends scala.runtime.AbstractFunction1 {
    public Object apply(Object session) {
      return new Scans();
    }
  }

  /**
   * Plans scans of tables that a SerDe reads, whose partitions the catalog has listed.
   *
   * <p>Spark's own strategy takes listed partitions for those that a condition leaves, and tests the
   * condition no more; or it asks the metastore of the session.
   */
  static class Scans extends SparkStrategy {
    public scala.collection.immutable.Seq apply(LogicalPlan plan) {
      List needed = new ArrayList();
      LogicalPlan node = plan;
      boolean projected = false;
      while (node instanceof Project || node instanceof Filter) {
        projected |= node instanceof Project;
        needed.add(node.references());
        node = (LogicalPlan) ((UnaryNode) node).child();
      }
      boolean ours = node instanceof HiveTableRelation
          && ((HiveTableRelation) node).prunedPartitions().isDefined()
          && isElsewhere(((HiveTableRelation) node).tableMeta());
      List found = new ArrayList();
      if (ours) found.add(planned(plan, columns((HiveTableRelation) node, needed, projected)));
      return seq(found);
    }

    private static boolean isElsewhere(CatalogTable table) {
      scala.Option catalog = table.identifier().catalog();
      return catalog.isDefined() && !catalog.get().equals("spark_catalog");
    }

    private static List columns(HiveTableRelation relation, List needed, boolean projected) {
      List found = new ArrayList();
      scala.collection.immutable.Seq output = relation.output();
      for (int i = 0; i < output.size(); i++) {
        boolean named = !projected;
        for (Object one : needed) named |= ((AttributeSet) one).contains((Attribute) output.apply(i));
        if (named) found.add(output.apply(i));
      }
      return found;
    }

    private static SparkPlan planned(LogicalPlan plan, List columns) {
      if (plan instanceof Project) {
        Project node = (Project) plan;
        return new ProjectExec(node.projectList(), planned((LogicalPlan) node.child(), columns));
      }
      if (plan instanceof Filter) {
        Filter node = (Filter) plan;
        LogicalPlan child = (LogicalPlan) node.child();
        if (child instanceof HiveTableRelation) child = pruned((HiveTableRelation) child, node);
        return new FilterExec(node.condition(), planned(child, columns));
      }
      return new HiveTableScanExec(
          seq(columns), present((HiveTableRelation) plan), seq(new ArrayList()),
          SparkSession.active());
    }

    /** Returns a relation without the partitions that have no directory, and thus no rows. */
    private static HiveTableRelation present(HiveTableRelation relation) {
      Configuration hadoop = SparkSession.active().sessionState().newHadoopConf();
      scala.collection.Iterator all =
          ((scala.collection.immutable.Seq) relation.prunedPartitions().get()).iterator();
      List found = new ArrayList();
      while (all.hasNext()) {
        CatalogTablePartition one = (CatalogTablePartition) all.next();
        Path place = new Path((URI) one.storage().locationUri().get());
        try {
          if (place.getFileSystem(hadoop).exists(place)) found.add(one);
        } catch (java.io.IOException failed) {
          throw new java.io.UncheckedIOException(failed);
        }
      }
      return with(relation, seq(found));
    }

    /** Returns a relation with the partitions that the conditions on keys alone leave. */
    private static HiveTableRelation pruned(HiveTableRelation relation, Filter node) {
      AttributeSet keys = AttributeSet$.MODULE$.apply(relation.partitionCols());
      List on = new ArrayList();
      parts(node.condition(), keys, on);
      if (on.isEmpty()) return relation;
      scala.collection.immutable.Seq left = ExternalCatalogUtils.prunePartitionsByFilter(
          relation.tableMeta(),
          (scala.collection.immutable.Seq) relation.prunedPartitions().get(), seq(on),
          Files.zone());
      return with(relation, left);
    }

    private static HiveTableRelation with(
        HiveTableRelation relation, scala.collection.immutable.Seq partitions) {
      return relation.copy(
          relation.tableMeta(), relation.dataCols(), relation.partitionCols(),
          relation.tableStats(), option(partitions));
    }

    private static void parts(Expression condition, AttributeSet keys, List found) {
      if (condition instanceof And) {
        parts(((And) condition).left(), keys, found);
        parts(((And) condition).right(), keys, found);
      } else if (condition.deterministic() && !condition.references().isEmpty()
          && condition.references().subsetOf(keys)
          && !SubqueryExpression.hasSubquery(condition)) {
        found.add(condition);
      }
    }
  }
}
