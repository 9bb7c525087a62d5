package tidegate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.PythonBatchWriterFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriterCommitMessage;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.sources.StringStartsWith;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tables whose rows a catalog written in Python reads and writes itself.
 *
 * <p>The catalog plans on the thread of the statement; its functions run in Spark's workers of
 * Python, as those of Spark's own data sources in Python do.
 */
public class PythonRows {
  /** What the catalog is asked with; the requests are those of {@link PythonCatalogs}. */
  public abstract static class Caller {
    /** Returns a request for a method, with the names of the table. */
    public abstract ObjectNode request(String method);

    public abstract JsonNode call(ObjectNode request);

    /** Returns the error for what the catalog cannot do. */
    public abstract RuntimeException refused(String reason);
  }

  private UserDefinedPythonDataSource source;

  /** Sets how workers of Python are started. */
  public void connect(Object source) {
    this.source = (UserDefinedPythonDataSource) source;
  }

  /** Returns a table as it is at a version. */
  public Rows table(
      Caller caller, String name, StructType schema, String[] keys, Map properties,
      JsonNode version) {
    return new Rows(this, caller, name, schema, keys, properties, version);
  }

  private static byte[] decoded(String text) {
    return Base64.getDecoder().decode(text);
  }

  private static scala.Option nothing() {
    return scala.Option$.MODULE$.apply(null);
  }

  /** A table at one of its versions. */
  public static class Rows implements SupportsRead, SupportsWrite {
    final PythonRows all;
    final Caller caller;
    private final String name;
    final StructType schema;
    private final String[] keys;
    private final Map properties;
    private final JsonNode version;

    Rows(
        PythonRows all, Caller caller, String name, StructType schema, String[] keys,
        Map properties, JsonNode version) {
      this.all = all;
      this.caller = caller;
      this.name = name;
      this.schema = schema;
      this.keys = keys;
      this.properties = properties;
      this.version = version;
    }

    public String name() {
      return name;
    }

    public StructType schema() {
      return schema;
    }

    public Transform[] partitioning() {
      Transform[] found = new Transform[keys.length];
      for (int i = 0; i < keys.length; i++) found[i] = Expressions.identity(quoted(keys[i]));
      return found;
    }

    public Map properties() {
      return properties;
    }

    public Set capabilities() {
      return new HashSet(Arrays.asList(new Object[] {
          TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.TRUNCATE,
          TableCapability.OVERWRITE_DYNAMIC}));
    }

    /** Returns the identity of the table, which one of the same name does not have. */
    public String tableId() {
      return version.get("table_id").asText();
    }

    /** Returns the number of the version that is read. */
    public long versionNumber() {
      return version.get("newest").asLong();
    }

    /** Returns what is known of this version. */
    public ObjectNode state() {
      return (ObjectNode) version.deepCopy();
    }

    /** Returns a scan of this version, as a request without columns. */
    ObjectNode scan() {
      ObjectNode scan = state();
      scan.removeAll();
      scan.put("version", versionNumber());
      return scan;
    }

    /** Returns the rows that were added or removed after a version, with their weights. */
    public Changed after(long before) {
      return new Changed(this, before);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      requireNone(options);
      return new Reading(all, caller, schema, scan());
    }

    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      requireNone(info.options());
      return new Writing(all, caller, info.schema());
    }

    /** Refuses options after WITH, which nothing would read. */
    private void requireNone(CaseInsensitiveStringMap options) {
      if (options.isEmpty()) return;
      throw caller.refused("its tables have no option " + options.keySet().iterator().next());
    }

    private static String quoted(String name) {
      return "`" + name.replace("`", "``") + "`";
    }
  }

  /** The rows that differ between two versions of a table; no name leads to them. */
  public static class Changed implements SupportsRead {
    private final Rows table;
    private final long before;

    Changed(Rows table, long before) {
      this.table = table;
      this.before = before;
    }

    public String name() {
      return table.name();
    }

    public StructType schema() {
      return table.schema.add("__weight", "bigint", false);
    }

    public Set capabilities() {
      return new HashSet(Arrays.asList(new Object[] {TableCapability.BATCH_READ}));
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      ObjectNode scan = table.scan();
      scan.put("after", before);
      return new Reading(table.all, table.caller, schema(), scan);
    }

    /** Returns how many rows differ, how many of them were removed, and bytes: as JSON. */
    public String counts() {
      return ((Reading) newScanBuilder(CaseInsensitiveStringMap.empty())).counts();
    }
  }

  // ---- reading -----------------------------------------------------------------------------

  /** Collects what is read of a table. */
  static class Reading implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
    private final PythonRows all;
    private final Caller caller;
    private final ObjectNode scan;
    private StructType columns;
    private Filter[] pushed = new Filter[0];

    Reading(PythonRows all, Caller caller, StructType columns, ObjectNode scan) {
      this.all = all;
      this.caller = caller;
      this.columns = columns;
      this.scan = scan;
    }

    public Filter[] pushFilters(Filter[] filters) {
      ArrayNode conditions = scan.putArray("filters");
      List known = new ArrayList();
      for (int i = 0; i < filters.length; i++) {
        ObjectNode condition = condition(filters[i]);
        if (condition == null) continue;
        conditions.add(condition);
        known.add(filters[i]);
      }
      pushed = (Filter[]) known.toArray(new Filter[0]);
      return filters; // Spark tests all of them again
    }

    public Filter[] pushedFilters() {
      return pushed;
    }

    public void pruneColumns(StructType required) {
      // Batches of Arrow need a column to have rows.
      if (required.fields().length > 0) columns = required;
    }

    public Scan build() {
      return new Planned(all, columns, plan(), pushed);
    }

    String counts() {
      ObjectNode found = (ObjectNode) plan();
      found.remove(Arrays.asList(new Object[] {"function", "parts"}));
      return found.toString();
    }

    private JsonNode plan() {
      if (!scan.has("filters")) scan.putArray("filters");
      ArrayNode names = scan.putArray("columns");
      String[] all = columns.fieldNames();
      for (int i = 0; i < all.length; i++) names.add(all[i]);
      ObjectNode request = caller.request("read_rows");
      request.set("scan", scan);
      request.put("columns", columns.json());
      return caller.call(request);
    }

    private ObjectNode condition(Filter filter) {
      if (filter instanceof And) {
        return joined("and", ((And) filter).left(), ((And) filter).right());
      }
      if (filter instanceof Or) return joined("or", ((Or) filter).left(), ((Or) filter).right());
      if (filter instanceof IsNull) return compared("is null", ((IsNull) filter).attribute(), null);
      if (filter instanceof IsNotNull) {
        return compared("is not null", ((IsNotNull) filter).attribute(), null);
      }
      if (filter instanceof EqualTo) {
        return compared("=", ((EqualTo) filter).attribute(), one(((EqualTo) filter).value()));
      }
      if (filter instanceof LessThan) {
        return compared("<", ((LessThan) filter).attribute(), one(((LessThan) filter).value()));
      }
      if (filter instanceof LessThanOrEqual) {
        LessThanOrEqual found = (LessThanOrEqual) filter;
        return compared("<=", found.attribute(), one(found.value()));
      }
      if (filter instanceof GreaterThan) {
        GreaterThan found = (GreaterThan) filter;
        return compared(">", found.attribute(), one(found.value()));
      }
      if (filter instanceof GreaterThanOrEqual) {
        GreaterThanOrEqual found = (GreaterThanOrEqual) filter;
        return compared(">=", found.attribute(), one(found.value()));
      }
      if (filter instanceof In) return compared("in", ((In) filter).attribute(), ((In) filter).values());
      if (filter instanceof StringStartsWith) {
        StringStartsWith found = (StringStartsWith) filter;
        return compared("starts with", found.attribute(), one(found.value()));
      }
      return null;
    }

    private static Object[] one(Object value) {
      return new Object[] {value};
    }

    private ObjectNode joined(String op, Filter left, Filter right) {
      ObjectNode first = condition(left);
      ObjectNode second = condition(right);
      if (first == null || second == null) return null;
      ObjectNode found = scan.objectNode();
      found.put("op", op);
      found.putArray("parts").add(first).add(second);
      return found;
    }

    /** Returns a condition on a column; null if it is on a part of one, or compares with NULL. */
    private ObjectNode compared(String op, String column, Object[] values) {
      if (Arrays.asList(columns.fieldNames()).indexOf(column) < 0) return null;
      ObjectNode found = scan.objectNode();
      found.put("op", op);
      found.put("column", column);
      ArrayNode all = found.putArray("values");
      for (int i = 0; values != null && i < values.length; i++) {
        if (values[i] == null) return null;
        all.add(values[i].toString());
      }
      return found;
    }
  }

  /** A scan whose parts are known. */
  static class Planned implements Scan, Batch, SupportsReportStatistics, Statistics {
    private final PythonRows all;
    private final StructType columns;
    private final JsonNode plan;
    private final Filter[] pushed;

    Planned(PythonRows all, StructType columns, JsonNode plan, Filter[] pushed) {
      this.all = all;
      this.columns = columns;
      this.plan = plan;
      this.pushed = pushed;
    }

    public StructType readSchema() {
      return columns;
    }

    public String description() {
      return "rows read in Python, filters: " + Arrays.toString(pushed);
    }

    public Batch toBatch() {
      return this;
    }

    public Statistics estimateStatistics() {
      return this;
    }

    public OptionalLong sizeInBytes() {
      return OptionalLong.of(plan.get("size").asLong());
    }

    public OptionalLong numRows() {
      return OptionalLong.of(plan.get("rows").asLong());
    }

    public InputPartition[] planInputPartitions() {
      JsonNode parts = plan.get("parts");
      InputPartition[] found = new InputPartition[parts.size()];
      for (int i = 0; i < found.length; i++) {
        found[i] = new PythonInputPartition(i, decoded(((JsonNode) parts.get(i)).asText()));
      }
      return found;
    }

    public PartitionReaderFactory createReaderFactory() {
      return new PythonPartitionReaderFactory(
          all.source, decoded(plan.get("function").asText()), columns, nothing(), nothing());
    }
  }

  // ---- writing -----------------------------------------------------------------------------

  /** Collects which rows a write replaces. */
  static class Writing implements SupportsTruncate, SupportsDynamicOverwrite {
    private final PythonRows all;
    private final Caller caller;
    private final StructType schema;
    private String overwrite = "nothing";

    Writing(PythonRows all, Caller caller, StructType schema) {
      this.all = all;
      this.caller = caller;
      this.schema = schema;
    }

    public WriteBuilder truncate() {
      overwrite = "all";
      return this;
    }

    public WriteBuilder overwriteDynamicPartitions() {
      overwrite = "partitions";
      return this;
    }

    public Write build() {
      ObjectNode request = caller.request("write_rows");
      request.put("overwrite", overwrite);
      return new Written(all, caller, schema, overwrite, caller.call(request));
    }
  }

  /** A write, which is visible when it is committed. */
  static class Written implements RequiresDistributionAndOrdering, BatchWrite {
    private final PythonRows all;
    private final Caller caller;
    private final StructType schema;
    private final String overwrite;
    private final JsonNode plan;

    Written(
        PythonRows all, Caller caller, StructType schema, String overwrite, JsonNode plan) {
      this.all = all;
      this.caller = caller;
      this.schema = schema;
      this.overwrite = overwrite;
      this.plan = plan;
    }

    public Distribution requiredDistribution() {
      JsonNode keys = plan.get("cluster_by");
      if (keys.size() == 0) return Distributions.unspecified();
      Expression[] columns = new Expression[keys.size()];
      for (int i = 0; i < columns.length; i++) {
        columns[i] = Expressions.column(Rows.quoted(((JsonNode) keys.get(i)).asText()));
      }
      return Distributions.clustered(columns);
    }

    public int requiredNumPartitions() {
      return plan.get("one_task").asBoolean() ? 1 : 0;
    }

    public SortOrder[] requiredOrdering() {
      return new SortOrder[0];
    }

    public BatchWrite toBatch() {
      return this;
    }

    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
      return new PythonBatchWriterFactory(
          all.source, decoded(plan.get("function").asText()), schema, nothing(), nothing());
    }

    public void commit(WriterCommitMessage[] messages) {
      finish("commit_rows", messages);
    }

    public void abort(WriterCommitMessage[] messages) {
      finish("discard_rows", messages);
    }

    private void finish(String method, WriterCommitMessage[] messages) {
      ObjectNode request = caller.request(method);
      request.put("overwrite", overwrite);
      ArrayNode written = request.putArray("written");
      for (int i = 0; i < messages.length; i++) {
        if (messages[i] == null) continue; // of a task that failed
        byte[] message = ((PythonWriterCommitMessage) messages[i]).pickledMessage();
        written.add(Base64.getEncoder().encodeToString(message));
      }
      caller.call(request);
    }
  }
}
