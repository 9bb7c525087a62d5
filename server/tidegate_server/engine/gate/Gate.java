package tidegate;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.PersistedView$;
import org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.ResolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.ResolvedPartitionSpec;
import org.apache.spark.sql.catalyst.analysis.ResolvedPersistentFunc;
import org.apache.spark.sql.catalyst.analysis.ResolvedPersistentView;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.analysis.SQLFunctionNode;
import org.apache.spark.sql.catalyst.analysis.SQLScalarFunction;
import org.apache.spark.sql.catalyst.analysis.SQLTableFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedNamespace;
import org.apache.spark.sql.catalyst.analysis.UnresolvedPartitionSpec;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedView;
import org.apache.spark.sql.catalyst.catalog.CatalogDatabase;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.HiveTableRelation;
import org.apache.spark.sql.catalyst.catalog.SQLFunction;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.expressions.CreateMap;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.plans.logical.FormatClasses;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SerdeInfo;
import org.apache.spark.sql.catalyst.plans.logical.TableSpec;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedTableSpec;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DeltaLogFileIndex;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.delta.commands.CloneSource;
import org.apache.spark.sql.delta.commands.cdc.CDCReader;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.execution.command.CreateTableLikeCommand;
import org.apache.spark.sql.execution.command.CreateViewCommand;
import org.apache.spark.sql.execution.command.DescribeQueryCommand;
import org.apache.spark.sql.execution.command.ExplainCommand;
import org.apache.spark.sql.execution.command.ResetCommand;
import org.apache.spark.sql.execution.command.SetCommand;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileTable;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;

/**
 * Sees every plan that Spark has analyzed, lists what it accesses, and refuses what was not
 * admitted.
 *
 * Spark calls the rule at the end of each analysis, also for the plans inside commands. The plan
 * that passes is the one that runs: nothing in it is resolved again.
 *
 * <p>The thread's local property {@link #PROPERTY} names the admission that applies. Spark passes
 * it on to the threads it starts. Sessions of users are marked; in those, a plan without an
 * admission is refused.
 */
public class Gate extends scala.runtime.AbstractFunction1 {
  public static final String PROPERTY = PythonCatalogs.ADMISSION;
  public static final String MARK = "spark.tidegate.gated";
  static final String OWN = PythonCatalogs.OWN;
  /**
   * Needs of classes that are judged by what is in them, if at all. What is unresolved cannot run;
   * fields of commands may contain it, to be analyzed later.
   */
  static final Set NOTHING =
      new HashSet(java.util.Arrays.asList(
          new String[] {"free", "internal", "relations", "objects", "unresolved"}));
  /** Before the name of a catalog or connection among the places that may be read. */
  static final String CATALOG = "catalog:";
  /** The changed rows of tables of catalogs, which have no name in SQL: only a refresh reads them. */
  static final Set CHANGED =
      new HashSet(java.util.Arrays.asList(
          new String[] {
            "org.apache.iceberg.spark.source.SparkRewriteTable", "tidegate.PythonRows$Changed"}));
  /** Begins the names of the classes of Kafka's source. */
  static final String KAFKA = "org.apache.spark.sql.kafka010.";
  /** The target of an INSERT into the table of a connector; its properties say what it writes. */
  static final String SINK = "tidegate.ConnectorSinks$Sink";
  /** What a reader may say of how a table of a database is read, in lower case. */
  static final Set OF_READING =
      new HashSet(java.util.Arrays.asList(
          new String[] {
            "fetchsize", "partitioncolumn", "numpartitions", "lowerbound", "upperbound"}));
  static final Set READS =
      new HashSet(java.util.Arrays.asList(new String[] {"SELECT", "DESCRIBE", "READ"}));
  static final String ON_FILES = PythonCatalogs.ON_FILES;
  /** Prefix of the properties of a view with the settings under which it is analyzed. */
  static final String VIEW_SETTING = "view.sqlconfig.";
  static final String FIELD = "\u001f";
  static final String RECORD = "\u001e";

  private final Map needs = new HashMap();
  private final Map commands = new HashMap();
  private final Map sources = new HashMap();
  private final Set formats = new HashSet();
  private final Map functions = new HashMap();
  private final Keys properties = new Keys();
  private final Keys options = new Keys();
  private final Map admissions = new ConcurrentHashMap();
  private final Places places = new Places();
  private final Catalogs catalogs = new Catalogs();
  /** Whether a name is that of a data source. */
  private final Map named = new ConcurrentHashMap();

  public Gate() {
    admissions.put(OWN, new Admission("paths", "", null, false));
  }

  /** Adds lines of the lists of what plans may contain. */
  public void configure(String lines) {
    String[] all = lines.split(RECORD);
    for (int i = 0; i < all.length; i++) {
      String[] line = all[i].split(FIELD, -1);
      if (line[0].equals("class")) needs.put(line[1], line[2]);
      else if (line[0].equals("source")) sources.put(line[1], line[2]);
      else if (line[0].equals("format")) formats.add(line[1]);
      else if (line[0].equals("function")) functions.put(line[1], line[2]);
      else if (line[0].equals("property")) properties.add(line);
      else if (line[0].equals("option")) options.add(line);
      else if (line[0].equals("command")) {
        List rows = (List) commands.get(line[1]);
        if (rows == null) {
          rows = new ArrayList();
          commands.put(line[1], rows);
        }
        if (line.length > 2) rows.add(line);
      } else throw new IllegalArgumentException(all[i]);
    }
  }

  /** What keys of properties or options need; the first pattern that matches decides. */
  static class Keys {
    private final List patterns = new ArrayList();
    private final Map values = new HashMap();
    String otherwise;

    void add(String[] line) {
      if (line[1].equals("pattern")) {
        patterns.add(new Object[] {java.util.regex.Pattern.compile(line[2]), line[3]});
      } else if (line[1].equals("value")) {
        Set known = (Set) values.get(line[2]);
        if (known == null) {
          known = new HashSet();
          values.put(line[2], known);
        }
        known.add(line[3]);
      } else otherwise = line[2];
    }

    String need(String key, Object value) {
      Set known = (Set) values.get(key);
      if (known != null && !known.contains(String.valueOf(value).toLowerCase(Locale.ROOT))) {
        return "jar-functions";
      }
      for (Object one : patterns) {
        Object[] row = (Object[]) one;
        if (((java.util.regex.Pattern) row[0]).matcher(key).matches()) return (String) row[1];
      }
      return otherwise;
    }
  }

  /**
   * Begins an admission for the plans of this thread; returns the one before.
   *
   * @param readable the places of which the analysis may open files while accesses are collected,
   *     and the catalogs that it may use, each after {@link #CATALOG}.
   * @param admitted the accesses; "*" to collect instead of refusing.
   * @param mark whether the session is a user's.
   * @param exact whether what was admitted in a view is admitted nowhere else. False for queries
   *     that have the texts of views written into them.
   */
  public String begin(
      SparkSession session, String id, String features, String readable, String admitted,
      boolean mark, boolean exact) {
    Admission admission = new Admission(features, readable, admitted, exact);
    admissions.put(id, admission);
    if (mark) {
      session.sessionState().conf().setConfString(MARK, "true");
      // Only after OutsideRule has seen them.
      session.sessionState().conf().setConfString(ON_FILES, String.valueOf(admission.files));
    }
    return change(session.sparkContext(), id);
  }

  /** Ends an admission; returns what plans accessed, and after an empty record what was refused. */
  public String end(SparkSession session, String id, String before) {
    session.sparkContext().setLocalProperty(PROPERTY, before);
    return ((Admission) admissions.remove(id)).report();
  }

  /** Lets the engine's own statements pass on this thread; returns the admission before. */
  public String suspend(SparkContext context) {
    return change(context, OWN);
  }

  public String change(SparkContext context, String id) {
    String before = context.getLocalProperty(PROPERTY);
    context.setLocalProperty(PROPERTY, id);
    return before;
  }

  /** Lists what a parsed plan accesses as far as it says so before its analysis. */
  public String inspect(SparkSession session, LogicalPlan parsed) {
    return join(walk(new Walker(session, true), parsed));
  }

  /** Lists the names of tables and views that a parsed plan mentions, one record each. */
  public String names(SparkSession session, LogicalPlan parsed) throws Exception {
    Walker walker = new Walker(session, true);
    walker.plan(parsed, "");
    return join(walker.names);
  }

  /** Lists the nodes of a parsed plan whose names are computed. */
  public List computed(SparkSession session, LogicalPlan parsed) throws Exception {
    Walker walker = new Walker(session, true);
    walker.plan(parsed, "");
    return walker.computed;
  }

  private Set walk(Walker walker, LogicalPlan plan) {
    try {
      walker.plan(plan, "");
    } catch (RuntimeException failed) {
      throw failed;
    } catch (Exception failed) {
      throw new IllegalStateException(failed);
    }
    return walker.found;
  }

  public Object apply(Object session) {
    return new Rule((SparkSession) session);
  }

  /** Returns what builds the rule that runs before the others of the analysis. */
  public Object outsideRule() {
    return new OutsideRules();
  }

  /** Returns the catalogs, which each session has from its next analysis on. */
  public Catalogs catalogs() {
    return catalogs;
  }

  /** Returns where a path without its pattern is. */
  public String place(SparkSession session, String path) {
    return places.resolve(hadoop(session), places.fixed(new Path(path)));
  }

  static Configuration hadoop(SparkSession session) {
    return session.sparkContext().hadoopConfiguration();
  }

  private boolean isSource(SparkSession session, String name) {
    Boolean known = (Boolean) named.get(name);
    if (known != null) return known.booleanValue();
    boolean found;
    try {
      DataSource.lookupDataSource(name, session.sessionState().conf());
      found = true;
    } catch (Throwable unknown) {
      found = false;
    }
    if (named.size() > 1000) named.clear();
    named.put(name, Boolean.valueOf(found));
    return found;
  }

  Admission current(SparkSession session) {
    String id = session.sparkContext().getLocalProperty(PROPERTY);
    Admission admission = id == null ? null : (Admission) admissions.get(id);
    if (admission != null) return admission;
    boolean marked = session.sessionState().conf().getConfString(MARK, "").equals("true");
    return marked ? new Admission("", "", "", true) : null;
  }

  /** Wraps a built-in function that is refused when it is constructed: Spark evaluates constant
   * arguments during the analysis, before the plan can be checked. */
  public Object guarded(SparkSession session, String name, String feature, Object builder) {
    return new Guarded(session, name, feature, (scala.Function1) builder);
  }

  static String join(Set lines) {
    StringBuilder out = new StringBuilder();
    for (Object line : lines) {
      if (out.length() > 0) out.append(RECORD);
      out.append(line);
    }
    return out.toString();
  }

  class Guarded extends scala.runtime.AbstractFunction1 {
    private final SparkSession session;
    private final String name;
    private final String feature;
    private final scala.Function1 builder;

    Guarded(SparkSession session, String name, String feature, scala.Function1 builder) {
      this.session = session;
      this.name = name;
      this.feature = feature;
      this.builder = builder;
    }

    public Object apply(Object arguments) {
      Admission admission = current(session);
      if (admission == null || admission.everything) return builder.apply(arguments);
      if (!feature.equals("options")) {
        require(admission, feature);
        return builder.apply(arguments);
      }
      Object built = builder.apply(arguments);
      Walker walker = new Walker(session, false);
      walker.given(((scala.collection.Iterable) arguments).iterator());
      if (built instanceof scala.Product) walker.given(((scala.Product) built).productIterator());
      for (Object use : walker.found) require(admission, ((String) use).split(FIELD, -1)[2]);
      return built;
    }

    private void require(Admission admission, String feature) {
      String use = access("USE", "FEATURE", feature, "function " + name, "", "", "", "");
      admission.take(use);
      // Even if accesses are only collected: it would be evaluated before they are judged.
      if (!admission.features.contains(feature)) admission.refuse(use);
    }
  }

  class Rule extends scala.runtime.AbstractFunction1 {
    private final SparkSession session;

    Rule(SparkSession session) {
      this.session = session;
    }

    public Object apply(Object plan) {
      Admission admission = current(session);
      if (admission != null && !admission.everything && !isPart()) {
        Walker walker = new Walker(session, false);
        walker.enforces = !admission.collects;
        for (Object one : walk(walker, (LogicalPlan) plan)) {
          admission.take((String) one);
          if (!admission.collects) linked(admission, ((String) one).split(FIELD, -1));
        }
      }
      return scala.runtime.BoxedUnit.UNIT;
    }

    /** Refuses links that lead from an admitted directory to one that is not. */
    private void linked(Admission admission, String[] one) {
      if (!one[1].equals("PATH") || admission.isFree(one[0])) return;
      try {
        for (Object target : places.linked(one[4])) {
          admission.take(access(one[0], "PATH", "", "", (String) target, "", one[6], ""));
        }
      } catch (java.io.IOException failed) {
        throw new SecurityException(failed.toString());
      }
    }

    /**
     * Whether Spark checks a part of a plan alone, before it checks the whole: the text of a view,
     * or a subquery. In the whole it is clear which view or function the part belongs to.
     */
    private boolean isPart() {
      StackTraceElement[] frames = Thread.currentThread().getStackTrace();
      int checks = 0;
      for (int i = 0; i < frames.length; i++) {
        String name = frames[i].getClassName();
        if (name.endsWith(".ViewResolution$")) return true;
        boolean check = name.endsWith(".Analyzer") && frames[i].getMethodName().equals("checkAnalysis0");
        if (check) checks++;
      }
      return checks > 1;
    }
  }

  class OutsideRules extends scala.runtime.AbstractFunction1 {
    public Object apply(Object session) {
      return new OutsideRule((SparkSession) session);
    }
  }

  /**
   * Refuses names that are paths or in catalogs before the analysis opens files or calls other
   * systems, also names that were computed. The analysis applies it to each text that it reads,
   * before anything in it is resolved. What the text of a view names is left to the rule above,
   * since its owner could read it.
   */
  class OutsideRule extends org.apache.spark.sql.catalyst.rules.Rule {
    private final SparkSession session;
    private int version = 0;

    OutsideRule(SparkSession session) {
      this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
      LogicalPlan named = catalogs.withoutAliases((LogicalPlan) plan);
      judge(named);
      version = catalogs.install(session, version, named);
      return named;
    }

    private void judge(TreeNode plan) {
      Admission admission = current(session);
      if (admission == null || admission.everything) return;
      if (AnalysisContext.get().catalogAndNamespace().nonEmpty()) return;
      Walker walker = new Walker(session, true);
      walker.outsideOnly = true;
      for (Object one : walk(walker, (LogicalPlan) plan)) {
        admission.take((String) one);
        if (admission.collects && !admission.mayAnalyze(((String) one).split(FIELD, -1))) {
          admission.refuse((String) one);
        }
      }
    }
  }

  /** What plans may access: act, kind and name of each object; "*" collects instead. */
  static class Admission {
    final boolean everything;
    final boolean collects;
    private final boolean exact;
    final Set features = new HashSet();
    private final Set admitted = new HashSet();
    private final Set owned = new HashSet();
    /** Functions and views whose texts are part of the statement. */
    private final Set created = new HashSet();
    private final Set places = new HashSet();
    /** Those of the places above in which files may be written. */
    private final Set writable = new HashSet();
    private final Set readable = new HashSet();
    /** Whether names may be paths. */
    final boolean files;
    private final Set found = Collections.synchronizedSet(new LinkedHashSet());
    private final Set refused = Collections.synchronizedSet(new LinkedHashSet());

    Admission(String features, String readable, String admitted, boolean exact) {
      this.exact = exact;
      everything = admitted == null;
      collects = "*".equals(admitted);
      Collections.addAll(this.features, features.split(FIELD));
      if (!readable.isEmpty()) Collections.addAll(this.readable, readable.split(FIELD));
      boolean paths = collects || this.features.contains("paths");
      String[] lines =
          everything || collects || admitted.isEmpty() ? new String[0] : admitted.split(RECORD);
      for (int i = 0; i < lines.length; i++) {
        String[] one = lines[i].split(FIELD, -1);
        this.admitted.add(key(one));
        if (one[0].equals("OWN") || one[0].equals("CREATE")) owned.add(object(one));
        if (one[0].equals("CREATE") && (one[1].equals("FUNCTION") || one[1].equals("VIEW"))) {
          created.add(one[2] + "." + one[3] + "." + one[4]);
        }
        boolean path = one[1].equals("PATH");
        String place = path ? one[4] : one[7];
        if (path) paths = true;
        if (place.isEmpty() || one[1].equals("DIRECTORY")) continue;
        places.add(place);
        if (!READS.contains(one[0])) writable.add(place);
      }
      files = paths;
    }

    /** Whether an analysis that collects accesses may make one. */
    boolean mayAnalyze(String[] one) {
      if (one[1].equals("CONNECTION") || one[1].equals("CATALOG")) {
        return readable.contains(CATALOG + one[4]);
      }
      if (one[1].equals("FEATURE")) return features.contains(one[2]);
      return isFree("READ") || isIn(readable, one[4]);
    }

    private static boolean isIn(Set directories, String place) {
      for (Object one : directories) {
        if (Places.contains((String) one, place)) return true;
      }
      return false;
    }

    void take(String access) {
      if (everything) return;
      if (found.size() < 10000) found.add(access);
      if (collects || admits(access.split(FIELD, -1))) return;
      refuse(access);
    }

    void refuse(String access) {
      refused.add(access);
      throw new SecurityException("not admitted: " + access.replace(FIELD, " "));
    }

    private boolean admits(String[] one) {
      if (admitted.contains(key(one)) || owned.contains(object(one))) return true;
      if (one[1].equals("FEATURE")) return features.contains(one[2]);
      if (one[1].equals("DIRECTORY")) return true; // compared when accesses were collected
      if (!one[1].equals("PATH")) return false;
      return isFree(one[0]) || isIn(one[0].equals("READ") ? places : writable, one[4]);
    }

    /** Whether a feature allows an act on any path. */
    boolean isFree(String act) {
      return features.contains(act.equals("READ") ? "paths" : "locations");
    }

    private String key(String[] one) {
      String via = created.contains(one[6]) ? "" : one[6];
      return one[0] + FIELD + object(one) + (exact ? FIELD + via : "");
    }

    private static String object(String[] one) {
      return one[1] + FIELD + one[2] + FIELD + one[3] + FIELD + one[4];
    }

    String report() {
      return join(found) + RECORD + RECORD + join(refused);
    }
  }

  static String access(
      String act, String kind, String a, String b, String c, String owner, String via, String at) {
    String[] parts = new String[] {act, kind, a, b, c, owner, via, at};
    // Names of users may contain the separators.
    for (int i = 0; i < parts.length; i++) {
      parts[i] = parts[i].replace(FIELD, "\ufffd").replace(RECORD, "\ufffd");
    }
    return String.join(FIELD, parts);
  }

  /** Walks one plan with everything inside it. */
  class Walker {
    final Set found = new LinkedHashSet();
    final Set names = new LinkedHashSet();
    final List computed = new ArrayList();
    /** The default locations of tables that the statement creates. */
    private final Set made = new HashSet();
    private final SparkSession session;
    private final boolean parsed;
    private final Map seen = new IdentityHashMap();
    /** Whether only names that are paths or in catalogs are listed. */
    boolean outsideOnly;
    /** Whether what was not admitted is refused. */
    boolean enforces;
    /** Whether the command that is judged is about a table of a catalog. */
    private boolean inCatalog;

    Walker(SparkSession session, boolean parsed) {
      this.session = session;
      this.parsed = parsed;
    }

    private void add(
        String act, String kind, String a, String b, String c, String owner, String via, String at) {
      found.add(access(act, kind, a, b, c, owner == null ? "" : owner, via, at));
    }

    private void feature(String name, String what) {
      add("USE", "FEATURE", name, what, "", "", "", "");
    }

    // ---- plans and expressions --------------------------------------------------------------

    void plan(LogicalPlan node, String via) throws Exception {
      if (seen.put(node, "") != null) return;
      String inner = via;
      if (outsideOnly) {
        outside(node);
      } else if (node instanceof View) {
        View view = (View) node;
        if (!view.isTempView()) {
          catalogTable(view.desc(), "SELECT", via);
          TableIdentifier name = view.desc().identifier();
          inner = full(name.catalog(), name.database(), name.table());
        }
      } else if (node instanceof LogicalRelation) {
        relation((LogicalRelation) node, "SELECT", via);
      } else if (node instanceof HiveTableRelation) {
        catalogTable(((HiveTableRelation) node).tableMeta(), "SELECT", via);
      } else if (node instanceof DataSourceV2Relation) {
        relation((DataSourceV2Relation) node, "SELECT", via);
      } else if (node instanceof StreamingRelation) {
        stream(((StreamingRelation) node).dataSource(), via);
      } else if (node instanceof StreamingRelationV2) {
        StreamingRelationV2 stream = (StreamingRelationV2) node;
        source(stream.sourceName());
        options(stream.extraOptions().asCaseSensitiveMap());
      } else if (node instanceof SQLFunctionNode) {
        inner = function(((SQLFunctionNode) node).function(), via);
      } else if (node instanceof SQLTableFunction) {
        inner = function(((SQLTableFunction) node).function(), via);
      } else if (node instanceof SetCommand) {
        setting((SetCommand) node);
      } else if (node instanceof ResetCommand) {
        scala.Option key = ((ResetCommand) node).config();
        add("SET", "SETTING", "", "", key.isDefined() ? (String) key.get() : "", "", "", "");
      } else if (commands.containsKey(node.getClass().getName())) {
        command(node, via);
      } else {
        if (parsed) named(node);
        else if (node instanceof ResolvedNamespace) {
          catalog("USAGE", ((ResolvedNamespace) node).catalog().name(), via);
        }
        need(node);
      }
      fields(node, inner);
      scala.collection.Iterator children = node.children().iterator();
      while (children.hasNext()) plan((LogicalPlan) children.next(), inner);
      scala.collection.Iterator others = node.innerChildren().iterator();
      while (others.hasNext()) {
        Object other = others.next();
        if (other instanceof LogicalPlan) plan((LogicalPlan) other, inner);
      }
    }

    private void expression(Expression node, String via) throws Exception {
      if (seen.put(node, "") != null) return;
      String inner = via;
      if (node instanceof SQLScalarFunction) {
        inner = function(((SQLScalarFunction) node).function(), via);
      } else if (node instanceof UnresolvedFunction && parsed) {
        scala.collection.immutable.Seq name = ((UnresolvedFunction) node).nameParts();
        if (name.size() > 1) catalogOf(name, 2);
        if (!outsideOnly) need(node);
      } else if (!outsideOnly) {
        need(node);
      }
      fields(node, inner);
      scala.collection.Iterator children = node.children().iterator();
      while (children.hasNext()) expression((Expression) children.next(), inner);
    }

    private void need(TreeNode node) {
      String name = node.getClass().getName();
      String need = (String) needs.get(name);
      if (need == null) {
        if (!parsed) feature("administrators", name);
      } else if (parsed && node.nodeName().startsWith("UnresolvedPathBased")) {
        return; // its path is listed by its name
      } else if (need.equals("options")) {
        given(((scala.Product) node).productIterator());
      } else if (!NOTHING.contains(need)) {
        feature(need, node.nodeName());
      }
    }

    /** Judges the options among the arguments of a function: a map of literals, or else any. */
    void given(scala.collection.Iterator arguments) {
      while (arguments.hasNext()) {
        Object argument = arguments.next();
        if (argument instanceof scala.collection.immutable.Map) {
          keys(options, (scala.collection.Map) argument);
        } else if (argument instanceof CreateMap) {
          scala.collection.Iterator parts = ((CreateMap) argument).children().iterator();
          while (parts.hasNext()) {
            Object key = parts.next();
            Object value = parts.next();
            if (key instanceof Literal && value instanceof Literal) {
              key(options, String.valueOf(((Literal) key).value()), ((Literal) value).value());
            } else feature("paths", "computed options");
          }
        } else if (argument instanceof Expression && ((Expression) argument).resolved()
            && ((Expression) argument).dataType() instanceof MapType) {
          feature("paths", "computed options");
        }
      }
    }

    /** Walks the plans and expressions in the fields of a node, however deep. */
    private void fields(scala.Product node, String via) throws Exception {
      // Their plans are not analyzed yet; they are, and are checked, when they run.
      boolean later = node instanceof ExplainCommand || node instanceof DescribeQueryCommand;
      if (later && !parsed) return;
      int count = node.productArity();
      for (int i = 0; i < count; i++) field(node.productElement(i), via);
    }

    private void field(Object value, String via) throws Exception {
      if (value == null || value instanceof String || value instanceof Number
          || value instanceof DataType) return;
      if (value instanceof Expression) expression((Expression) value, via);
      else if (value instanceof LogicalPlan) plan((LogicalPlan) value, via);
      else if (parsed && value instanceof TableIdentifier) {
        names.add(((TableIdentifier) value).nameParts().mkString(FIELD));
      } else if (value instanceof scala.collection.Iterable) {
        scala.collection.Iterator items = ((scala.collection.Iterable) value).iterator();
        while (items.hasNext()) field(items.next(), via);
      } else if (value instanceof scala.Product && !(value instanceof HadoopFsRelation)
          && !(value instanceof org.apache.spark.sql.sources.BaseRelation)
          && !(value instanceof Table)) {
        if (seen.put(value, "") == null) fields((scala.Product) value, via);
      }
    }

    private scala.collection.immutable.Seq parts(LogicalPlan node) {
      if (node instanceof UnresolvedRelation) {
        return ((UnresolvedRelation) node).multipartIdentifier();
      }
      if (node instanceof UnresolvedTable) return ((UnresolvedTable) node).multipartIdentifier();
      if (node instanceof UnresolvedTableOrView) {
        return ((UnresolvedTableOrView) node).multipartIdentifier();
      }
      if (node instanceof UnresolvedView) return ((UnresolvedView) node).multipartIdentifier();
      return null;
    }

    /** Adds an act on a catalog or connection; false if none has the name. */
    private boolean catalog(String act, String name, String via) {
      String kind = catalogs.kind(name);
      if (kind == null) return false;
      add(uses(act) ? "USE" : "MODIFY", kind, "", "", lower(name), "", via, "");
      return true;
    }

    private boolean uses(String act) {
      return READS.contains(act) || act.equals("USAGE") || act.equals("USE");
    }

    /** Adds the use of the catalog that a name in a parsed node is in; false for the session's. */
    private boolean catalogOf(scala.collection.immutable.Seq parts, int least) {
      boolean named = parts.size() >= least && catalogs.has(parts.head().toString());
      // The current catalog is asked for names without one.
      String name = named ? parts.head().toString()
          : session.sessionState().catalogManager().currentCatalog().name();
      if (catalog("USE", name, "")) {
        scala.collection.Iterator all = parts.iterator();
        while (all.hasNext()) inside(name, all.next().toString());
      }
      return named;
    }

    /** Refuses a part of a name that may lead out of the directory of a catalog. */
    private void inside(String catalog, String part) {
      boolean leads = part.indexOf('/') >= 0 || part.equals(".") || part.equals("..");
      if (leads && "CATALOG".equals(catalogs.kind(catalog))) {
        feature("administrators", "the name " + part);
      }
    }

    /** Adds what a catalog has under a name, which may be a materialized table. */
    private void within(String act, String catalog, Identifier name, String via) throws Exception {
      String[] parts = name.namespace();
      for (int i = 0; i < parts.length; i++) inside(catalog, parts[i]);
      inside(catalog, name.name());
      object(act, "CATALOG_TABLE", catalog, namespace(name), name.name(), "", via, "");
    }

    /** Adds the path or the catalog in the name of a parsed node. */
    private void outside(LogicalPlan node) throws Exception {
      if (node.nodeName().startsWith("UnresolvedPathBased")) {
        path("READ", new Path((String) value(node, "path")), "");
        return;
      }
      boolean created = node instanceof UnresolvedIdentifier;
      scala.collection.immutable.Seq parts =
          created ? ((UnresolvedIdentifier) node).nameParts() : parts(node);
      if (node instanceof UnresolvedNamespace) {
        catalogOf(((UnresolvedNamespace) node).multipartIdentifier(), 1);
        return;
      }
      if (node instanceof UnresolvedTableValuedFunction) {
        reader((UnresolvedTableValuedFunction) node);
        return;
      }
      if (parts == null) return;
      if (catalogOf(parts, 2)) return;
      String last = parts.last().toString();
      boolean path = last.indexOf('/') >= 0;
      if (!path && !created && parts.size() == 2 && isSource(session, parts.head().toString())) {
        TableIdentifier table = new TableIdentifier(last, new scala.Some(parts.head().toString()));
        path = !session.sessionState().catalog().tableExists(table);
      }
      if (path) path(created ? "CREATE" : "READ", new Path(last), "");
    }

    /** Adds the files or topics that a call of read_files or read_kafka reads. */
    private void reader(UnresolvedTableValuedFunction call) throws Exception {
      String name = lower((String) call.name().last());
      if (!name.equals("read_files") && !name.equals("read_kafka")) return;
      Map given = arguments(call);
      String path = (String) given.remove("path");
      if (path != null) path("READ", new Path(path), "");
      if (name.equals("read_kafka")) topics(given, "");
      options(given);
    }

    /** Returns the path and the options of a call, as far as they are literals, in lower case. */
    private Map arguments(UnresolvedTableValuedFunction call) {
      Map found = new HashMap();
      scala.collection.Iterator all = call.functionArgs().iterator();
      while (all.hasNext()) {
        Object one = all.next();
        String key = "path";
        if (one instanceof NamedArgumentExpression) {
          key = lower(((NamedArgumentExpression) one).key());
          one = ((NamedArgumentExpression) one).value();
        }
        if (key.equals("format") || key.equals("schema") || !(one instanceof Literal)) continue;
        if (key.equals("bootstrapservers")) key = "kafka.bootstrap.servers";
        if (key.equals("filenamepattern")) key = "pathglobfilter";
        found.put(key, String.valueOf(((Literal) one).value()));
      }
      return found;
    }

    /** Adds topics of Kafka as a path, which external locations and views may cover. */
    private void topics(Map options, String via) {
      Object servers = options.get("kafka.bootstrap.servers");
      Object topics = options.get("subscribe");
      if (topics == null) topics = options.get("subscribepattern");
      if (topics == null) topics = options.get("assign");
      add("READ", "PATH", "", "", "kafka://" + servers + "/" + topics, "", via, "");
      registries(options, "READ", via);
    }

    /** Adds the registries with the schemas of records, which the analysis or an INSERT asks. */
    private void registries(Map options, String act, String via) {
      for (Object one : options.entrySet()) {
        Map.Entry option = (Map.Entry) one;
        if (!lower((String) option.getKey()).endsWith("schemaregistry")) continue;
        add(act, "PATH", "", "", (String) option.getValue(), "", via, "");
      }
    }

    /**
     * Adds what an INSERT into the table of a connector writes, in the name of the owner of its view.
     * A temporary one is the user's own.
     */
    private void sink(Map said, String act, String via) throws Exception {
      String inner = via;
      if (said.containsKey("view.name")) {
        TableIdentifier name = new TableIdentifier(
            (String) said.get("view.name"), new scala.Some(said.get("view.schema")));
        identifier(act, "VIEW", name, (String) said.get("view.owner"), via, "");
        inner = full(scala.Option.empty(), name.database(), name.table());
      }
      Map given = new HashMap();
      for (Object one : said.entrySet()) {
        Map.Entry entry = (Map.Entry) one;
        String key = (String) entry.getKey();
        if (key.startsWith("option.")) given.put(key.substring(7), entry.getValue());
      }
      if (said.containsKey("connection")) {
        String name = (String) said.get("connection");
        // One that does not exist is refused as one that the owner may not use.
        if (!catalog("MODIFY", name, inner)) {
          add("MODIFY", "CONNECTION", "", "", lower(name), "", inner, "");
        }
      } else if (said.get("connector").equals("kafka")) {
        add("WRITE", "PATH", "", "", "kafka://" + given.get("kafka.bootstrap.servers") + "/"
            + given.get("topic"), "", inner, "");
        registries(given, "WRITE", inner);
      } else if (said.containsKey("path")) {
        path("WRITE", new Path((String) said.get("path")), inner);
      }
      for (Object one : given.entrySet()) {
        Map.Entry entry = (Map.Entry) one;
        String need = options.need(lower((String) entry.getKey()), entry.getValue());
        if (!NOTHING.contains(need)) {
          add("USE", "FEATURE", need, "property " + entry.getKey(), "", "", inner, "");
        }
      }
    }

    /** Notes the name in a parsed node. */
    private void named(LogicalPlan node) throws Exception {
      outside(node);
      scala.collection.immutable.Seq parts = parts(node);
      if (node instanceof UnresolvedRelation) {
        // Before the analysis opens files with them.
        options(
            ((UnresolvedRelation) node).options().asCaseSensitiveMap(),
            parts.size() > 1 ? parts.head().toString() : "");
      } else if (parts != null) {
        // a name alone
      } else if (node instanceof PlanWithUnresolvedIdentifier) {
        PlanWithUnresolvedIdentifier named = (PlanWithUnresolvedIdentifier) node;
        computed.add(node);
        Object any = scala.jdk.javaapi.CollectionConverters.asScala(
            Collections.singletonList("name")).toSeq();
        Object built = named.planBuilder().apply(any, named.children());
        if (built instanceof UnresolvedRelation) {
          options(((UnresolvedRelation) built).options().asCaseSensitiveMap());
        }
        return;
      } else {
        if (node instanceof UnresolvedTableValuedFunction) {
          UnresolvedTableValuedFunction called = (UnresolvedTableValuedFunction) node;
          Object name = called.name().last();
          String need = (String) functions.get(lower((String) name));
          if (need != null) feature(need, "function " + name);
        }
        return;
      }
      names.add(parts.mkString(FIELD));
    }

    // ---- relations -------------------------------------------------------------------------

    private void relation(LogicalRelation node, String act, String via) throws Exception {
      Object relation = node.relation();
      if (node.catalogTable().isDefined()) {
        CatalogTable table = (CatalogTable) node.catalogTable().get();
        catalogTable(table, act, via);
        if (relation instanceof HadoopFsRelation) added((HadoopFsRelation) relation, table);
      } else if (relation instanceof HadoopFsRelation) {
        FileIndex files = ((HadoopFsRelation) relation).location();
        if (files instanceof DeltaLogFileIndex) return; // only Delta reads its log
        if (files instanceof TahoeFileIndex) {
          path(act, ((TahoeFileIndex) files).path(), via);
          if (enforces) elsewhere(act, (TahoeFileIndex) files, via);
          return;
        }
        scala.collection.Iterator roots = files.rootPaths().iterator();
        while (roots.hasNext()) path(act, (Path) roots.next(), via);
      } else if (relation instanceof CDCReader.DeltaCDFRelation) {
        CDCReader.DeltaCDFRelation feed = (CDCReader.DeltaCDFRelation) relation;
        if (feed.catalogTableOpt().isDefined()) {
          catalogTable((CatalogTable) feed.catalogTableOpt().get(), act, via);
        } else {
          path(act, feed.snapshotWithSchemaMode().snapshot().deltaLog().dataPath(), via);
        }
      } else {
        String name = relation.getClass().getName();
        feature(name.endsWith(".JDBCRelation") ? "connections" : "administrators", name);
      }
    }

    private void relation(DataSourceV2Relation node, String act, String via) throws Exception {
      if (node.table().getClass().getName().startsWith(KAFKA)) {
        topics(node.options(), via);
        // Those in the text of a view were judged when it was created.
        if (via.isEmpty()) options(node.options().asCaseSensitiveMap());
        return;
      }
      if (node.table().getClass().getName().equals(SINK)) {
        sink(node.table().properties(), act, via);
        return;
      }
      options(
          node.options().asCaseSensitiveMap(),
          node.catalog().isDefined()
              ? ((org.apache.spark.sql.connector.catalog.CatalogPlugin) node.catalog().get()).name()
              : "");
      if (node.table() instanceof DeltaTableV2) {
        table((DeltaTableV2) node.table(), act, via);
      } else if (node.identifier().isDefined() && node.catalog().isDefined()) {
        Identifier name = (Identifier) node.identifier().get();
        String catalog = ((org.apache.spark.sql.connector.catalog.CatalogPlugin)
            node.catalog().get()).name();
        if (catalog(act, catalog, via)) {
          within(act, catalog, name, via);
          return;
        }
        object(act, "TABLE", catalog, namespace(name), name.name(), owner(node.table()), via, "");
      } else if (node.table() instanceof FileTable) {
        scala.collection.Iterator roots =
            ((FileTable) node.table()).fileIndex().rootPaths().iterator();
        while (roots.hasNext()) path(act, (Path) roots.next(), via);
      } else if (!CHANGED.contains(node.table().getClass().getName())) {
        feature("administrators", node.table().getClass().getName());
      }
    }

    /** Adds the files of a Delta table that its log names outside of its directory. */
    private void elsewhere(String act, TahoeFileIndex table, String via) throws Exception {
      String directory = table.path().toString();
      String[] all = table.inputFiles();
      for (int i = 0; i < all.length; i++) {
        Path file = new Path(new java.net.URI(all[i]));
        if (!Places.contains(directory, file.toString())) path(act, file, via);
      }
    }

    /** Judges the options that a statement adds to those of a table. */
    private void added(HadoopFsRelation relation, CatalogTable table) {
      boolean delta = relation.location() instanceof TahoeFileIndex;
      scala.collection.Iterator all = relation.options().iterator();
      while (all.hasNext()) {
        scala.Tuple2 option = (scala.Tuple2) all.next();
        String key = (String) option._1();
        boolean known = table.storage().properties().contains(key)
            || table.properties().contains(key) || key.equals("path");
        // Delta reads its own options, and passes on those of file systems.
        if (!known && (!delta || key.indexOf('.') > 0)) key(options, key, option._2());
      }
    }

    private void stream(DataSource source, String via) throws Exception {
      source(source.className());
      placed(source.options(), "READ", via);
      scala.collection.Iterator paths = source.paths().iterator();
      while (paths.hasNext()) path("READ", new Path((String) paths.next()), via);
    }

    private void table(DeltaTableV2 table, String act, String via) throws Exception {
      if (table.catalogTable().isDefined()) {
        catalogTable((CatalogTable) table.catalogTable().get(), act, via);
      } else {
        path(act, table.path(), via);
      }
    }

    private void catalogTable(CatalogTable table, String act, String via) throws Exception {
      String catalog = text(table.identifier().catalog(), "spark_catalog");
      scala.Option place = table.storage().locationUri();
      if (catalogs.has(catalog)) {
        // Some commands of Delta write by the path of their table.
        String at = place.isDefined() && !uses(act)
            ? resolved(new Path((java.net.URI) place.get())) : "";
        add(uses(act) ? "USE" : "MODIFY", catalogs.kind(catalog), "", "", lower(catalog), "", via,
            at);
        inside(catalog, text(table.identifier().database(), ""));
        inside(catalog, table.identifier().table());
        return;
      }
      boolean view = table.tableType().name().equals("VIEW");
      String at = place.isDefined() ? resolved(new Path((java.net.URI) place.get())) : "";
      boolean external = table.tableType().name().equals("EXTERNAL");
      if (external && !at.isEmpty() && !table.properties().contains("tidegate.id")
          && places.isElsewhere(hadoop(session), new Path((java.net.URI) place.get()))) {
        add(READS.contains(act) ? "READ" : "WRITE", "DIRECTORY", "", "", at, table.owner(), via, "");
      }
      identifier(act, view ? "VIEW" : "TABLE", table.identifier(), table.owner(), via, at);
    }

    private void identifier(
        String act, String kind, TableIdentifier name, String owner, String via, String at) throws Exception {
      object(act, kind, text(name.catalog(), "spark_catalog"), text(name.database(), ""),
          name.table(), owner, via, at);
    }

    private void object(
        String act, String kind, String catalog, String schema, String name, String owner,
        String via, String at) throws Exception {
      add(act, kind, lower(catalog), lower(schema), lower(name), owner, via, at);
    }

    private String function(SQLFunction function, String via) throws Exception {
      FunctionIdentifier name = function.name();
      if (name.database().isDefined()) {
        object("EXECUTE", "FUNCTION", text(name.catalog(), "spark_catalog"),
            text(name.database(), ""), name.funcName(), text(function.owner(), ""), via, "");
        return full(name.catalog(), name.database(), name.funcName());
      }
      return via;
    }

    // ---- commands --------------------------------------------------------------------------

    private void setting(SetCommand node) {
      if (!node.kv().isDefined()) {
        add("SHOW", "SETTING", "", "", "", "", "", "");
        return;
      }
      scala.Tuple2 pair = (scala.Tuple2) node.kv().get();
      boolean sets = ((scala.Option) pair._2()).isDefined();
      add(sets ? "SET" : "SHOW", "SETTING", "", "", (String) pair._1(), "", "", "");
    }

    private void command(LogicalPlan node, String via) throws Exception {
      List rows = (List) commands.get(node.getClass().getName());
      boolean before = inCatalog;
      for (Object one : rows) {
        String[] row = (String[]) one;
        if (row.length > 2 && !row[2].isEmpty() && isInCatalog(value(node, row[2]))) {
          inCatalog = true;
        }
      }
      for (Object one : rows) {
        String[] row = (String[]) one; // command, class, field, action, kind, need, other, present
        if (!row[6].isEmpty() && present(value(node, row[6])) != row[7].equals("true")) continue;
        if (row[3].equals("ALTER") && writesMark(node)) row = owned(row);
        if (row[4].equals("CATALOG")) current(value(node, row[2]), node);
        else if (row[3].equals("FEATURE")) feature(row[5], node.nodeName());
        else if (row[3].equals("SET")) given(value(node, row[2]), row[4], via);
        else if (isOfSession(node)) continue;
        else if (!parsed || node instanceof CreateTableLikeCommand) {
          target(value(node, row[2]), row[3], row[4], via);
        }
      }
      inCatalog = before;
      // An insertion does not read its table, which may be an operator of the plan.
      if (node instanceof V2WriteCommand) seen.put(((V2WriteCommand) node).table(), "");
    }

    /**
     * Whether a command creates its object in a catalog to which a provider is only a word. To
     * those that are written in Python, it is a data source of Spark.
     */
    private boolean isInCatalog(Object target) {
      if (target instanceof ResolvedIdentifier) {
        return hasWords(((ResolvedIdentifier) target).catalog().name());
      }
      if (!(target instanceof UnresolvedIdentifier)) return false;
      scala.collection.immutable.Seq parts = ((UnresolvedIdentifier) target).nameParts();
      if (parts.size() > 1 && catalogs.has(parts.head().toString())) {
        return hasWords(parts.head().toString());
      }
      return hasWords(session.sessionState().catalogManager().currentCatalog().name());
    }

    private boolean hasWords(String catalog) {
      return catalogs.has(catalog) && !catalogs.isPython(catalog);
    }

    /** Judges a new current catalog, which is then asked for names without one. */
    private void current(Object catalog, LogicalPlan node) {
      String name = String.valueOf(catalog);
      if (catalog instanceof ResolvedNamespace) name = ((ResolvedNamespace) catalog).catalog().name();
      catalog("USE", name, "");
    }

    /**
     * Whether a command gives a view a text that says how rows are inserted. They are written with
     * the rights of its owner, so only the owner may change it.
     */
    private boolean writesMark(LogicalPlan node) {
      String name = node.getClass().getSimpleName();
      if (!name.equals("AlterViewAs") && !name.equals("AlterViewAsCommand")) return false;
      return String.valueOf(value(node, "originalText")).contains("/* connector=");
    }

    private String[] owned(String[] row) {
      String[] found = (String[]) row.clone();
      found[3] = "OWN";
      return found;
    }

    /** Whether a command makes a temporary view. */
    private boolean isOfSession(LogicalPlan node) {
      return node instanceof CreateViewCommand
          && !(((CreateViewCommand) node).viewType() instanceof PersistedView$);
    }

    private boolean present(Object value) {
      if (value instanceof scala.Option) return ((scala.Option) value).isDefined();
      return value != null && !Boolean.FALSE.equals(value);
    }

    private Object value(LogicalPlan node, String field) {
      try {
        return node.getClass().getMethod(field, new Class[0]).invoke(node, new Object[0]);
      } catch (Exception caught) {
        throw new SecurityException(node.getClass().getName() + "." + field + ": " + caught);
      }
    }

    /** Adds an act on the objects in a field of a command. */
    private void target(Object value, String act, String kind, String via) throws Exception {
      if (kind.equals("TEMPORARY VIEW")) return; // the session's own
      if (value instanceof scala.Option) {
        if (((scala.Option) value).isDefined()) target(((scala.Option) value).get(), act, kind, via);
      } else if (value instanceof ResolvedTable) {
        seen.put(value, "");
        ResolvedTable found = (ResolvedTable) value;
        if (found.table() instanceof DeltaTableV2) table((DeltaTableV2) found.table(), act, via);
        else if (found.table() instanceof V1Table) {
          catalogTable(((V1Table) found.table()).catalogTable(), act, via);
        } else if (catalog(act, found.catalog().name(), via)) {
          within(act, found.catalog().name(), found.identifier(), via);
        } else {
          object(act, "TABLE", found.catalog().name(), namespace(found.identifier()),
              found.identifier().name(), owner(found.table()), via, "");
        }
      } else if (value instanceof ResolvedPersistentView) {
        seen.put(value, "");
        catalogTable(((ResolvedPersistentView) value).metadata(), act, via);
      } else if (value instanceof ResolvedIdentifier) {
        seen.put(value, "");
        ResolvedIdentifier found = (ResolvedIdentifier) value;
        String schema = namespace(found.identifier());
        if (catalog(act, found.catalog().name(), via)) {
          within(act, found.catalog().name(), found.identifier(), via);
          return;
        }
        if (found.identifier().name().indexOf('/') >= 0) {
          path("CREATE", new Path(found.identifier().name()), via);
        } else if (kind.equals("FUNCTION")) {
          named(new FunctionIdentifier(found.identifier().name(), new scala.Some(schema)), act, via);
        } else if (found.catalog().name().equals("spark_catalog")) {
          entry(new TableIdentifier(found.identifier().name(), new scala.Some(schema)), act, kind, via);
        } else {
          object(act, "TABLE", found.catalog().name(), schema, found.identifier().name(), "", via, "");
        }
      } else if (value instanceof ResolvedNamespace) {
        seen.put(value, "");
        ResolvedNamespace found = (ResolvedNamespace) value;
        if (catalog(act, found.catalog().name(), via)) return;
        if (act.equals("CREATE")) return; // every user may make a schema
        scala.Option owner = found.metadata().get("owner");
        schema(act, found.catalog().name(), found.namespace().mkString("."), text(owner, null), via);
      } else if (value instanceof ResolvedPersistentFunc) {
        seen.put(value, "");
        ResolvedPersistentFunc found = (ResolvedPersistentFunc) value;
        if (catalog(act, found.catalog().name(), via)) return;
        object(act, "FUNCTION", found.catalog().name(), namespace(found.identifier()),
            found.identifier().name(), "", via, "");
      } else if (value instanceof TableIdentifier) {
        entry((TableIdentifier) value, act, kind, via);
      } else if (value instanceof CatalogTable) {
        CatalogTable table = (CatalogTable) value;
        // What a command makes has no owner yet; what it replaces has.
        boolean made = act.equals("CREATE") || act.equals("OWN");
        if (made) entry(table.identifier(), act, kind, via);
        else catalogTable(table, act, via);
      } else if (value instanceof FunctionIdentifier) {
        named((FunctionIdentifier) value, act, via);
      } else if (value instanceof LogicalRelation) {
        relation((LogicalRelation) value, act, via);
      } else if (value instanceof DataSourceV2Relation) {
        relation((DataSourceV2Relation) value, act, via);
      } else if (value instanceof HiveTableRelation) {
        catalogTable(((HiveTableRelation) value).tableMeta(), act, via);
      } else if (value instanceof DeltaTableV2) {
        table((DeltaTableV2) value, act, via);
      } else if (value instanceof DeltaLog) {
        path(act, ((DeltaLog) value).dataPath(), via);
      } else if (value instanceof CloneSource) {
        CloneSource source = (CloneSource) value;
        if (source.catalogTable().isDefined()) target(source.catalogTable(), act, kind, via);
        else path(act, source.dataPath(), via);
      } else if (value instanceof View) {
        target(((View) value).child(), act, kind, via);
      } else if (value instanceof LogicalPlan) {
        scala.collection.Iterator children = ((LogicalPlan) value).children().iterator();
        while (children.hasNext()) target(children.next(), act, kind, via);
      } else if (value instanceof scala.collection.Iterable) {
        scala.collection.Iterator items = ((scala.collection.Iterable) value).iterator();
        while (items.hasNext()) target(items.next(), act, kind, via);
      } else if (value != null && kind.equals("PATH")) {
        path(act, new Path(value.toString()), via);
      } else if (value != null && kind.equals("SCHEMA")) {
        schema(act, "spark_catalog", value.toString(), null, via);
      } else if (value != null && !kind.isEmpty()) {
        object(act, kind, "", "", value.toString(), "", via, "");
      } else if (value != null) {
        feature("administrators", value.getClass().getName());
      }
    }

    /** Adds an act on a function; one without a schema belongs to the session. */
    private void named(FunctionIdentifier name, String act, String via) throws Exception {
      if (!name.database().isDefined()) return;
      String schema = text(name.database(), "");
      if (act.equals("CREATE")) schema(act, "spark_catalog", schema, null, via);
      // It is made, or Spark reports that it does not exist.
      boolean exists = session.sessionState().catalog().isPersistentFunction(name);
      if (act.equals("OWN") && !exists) return;
      object(act, "FUNCTION", text(name.catalog(), "spark_catalog"), schema, name.funcName(), "",
          via, "");
    }

    /** Adds an act on a table or view of the session catalog, with its owner if it exists. */
    private void entry(TableIdentifier name, String act, String kind, String via) throws Exception {
      SessionCatalog catalog = session.sessionState().catalog();
      if (catalog.isTempView(name)) return;
      String schema = text(name.database(), catalog.getCurrentDatabase());
      TableIdentifier full = new TableIdentifier(name.table(), new scala.Some(schema));
      if (act.equals("CREATE")) schema("CREATE", "spark_catalog", schema, null, via);
      if (catalog.tableExists(full)) {
        // CREATE is there for a table that is made; for one that is replaced, OWN.
        if (!act.equals("CREATE")) catalogTable(catalog.getTableRawMetadata(full), act, via);
        return;
      }
      if (act.equals("OWN")) return; // it is made, or Spark reports that it does not exist
      String place = "";
      if (act.equals("CREATE") && catalog.databaseExists(schema)) {
        place = resolved(new Path(catalog.defaultTablePath(full)));
        made.add(place);
      }
      identifier(act, kind.isEmpty() ? "TABLE" : kind, full, "", via, place);
    }

    private void schema(String act, String catalog, String name, String owner, String via) throws Exception {
      String at = "";
      if (catalog.equals("spark_catalog") && name.length() > 0) {
        SessionCatalog session = this.session.sessionState().catalog();
        if (session.databaseExists(name)) {
          CatalogDatabase found = session.getDatabaseMetadata(name);
          if (owner == null) owner = text(found.properties().get("owner"), "");
        }
      }
      object(act, "SCHEMA", catalog, "", name, owner, via, at);
    }

    /** Judges what a command gives to a table or schema. */
    private void given(Object value, String kind, String via) throws Exception {
      if (value == null) return;
      if (value instanceof scala.Option) {
        if (((scala.Option) value).isDefined()) given(((scala.Option) value).get(), kind, via);
      } else if (value instanceof TableSpec) {
        TableSpec spec = (TableSpec) value;
        given(spec.provider(), "PROVIDER", via);
        given(spec.location(), "LOCATION", via);
        given(spec.properties(), "PROPERTIES", via);
        placed(spec.options(), "CREATE", via);
        given(spec.serde(), "SERDE", via);
      } else if (value instanceof UnresolvedTableSpec) {
        UnresolvedTableSpec spec = (UnresolvedTableSpec) value;
        given(spec.provider(), "PROVIDER", via);
        given(spec.location(), "LOCATION", via);
        given(spec.properties(), "PROPERTIES", via);
        given(spec.serde(), "SERDE", via);
      } else if (value instanceof SerdeInfo) {
        SerdeInfo serde = (SerdeInfo) value;
        given(serde.serde(), "SERDE", via);
        if (serde.formatClasses().isDefined()) {
          FormatClasses classes = (FormatClasses) serde.formatClasses().get();
          given(classes.input(), "SERDE", via);
          given(classes.output(), "SERDE", via);
        }
        given(serde.serdeProperties(), "OPTIONS", via);
      } else if (value instanceof CatalogTable) {
        CatalogTable table = (CatalogTable) value;
        if (kind.equals("LOCATION")) {
          if (table.tableType().name().equals("EXTERNAL")) {
            given(table.storage().locationUri(), kind, via);
          }
          return;
        }
        given(table.provider(), "PROVIDER", via);
        given(table.storage(), kind, via);
        given(table.properties(), "PROPERTIES", via);
      } else if (value instanceof CatalogStorageFormat) {
        CatalogStorageFormat storage = (CatalogStorageFormat) value;
        if (kind.equals("DIRECTORY")) {
          directory(storage, via);
          return;
        }
        given(storage.inputFormat(), "SERDE", via);
        given(storage.outputFormat(), "SERDE", via);
        given(storage.serde(), "SERDE", via);
        placed(storage.properties(), "CREATE", via);
        given(storage.locationUri(), "LOCATION", via);
      } else if (value instanceof scala.collection.Map) {
        scala.collection.Map map = (scala.collection.Map) value;
        if (kind.equals("READER")) placed(map, "READ", via);
        else keys(kind.equals("OPTIONS") ? options : properties, map);
      } else if (kind.equals("LOCATION") && value instanceof scala.collection.Iterable) {
        scala.collection.Iterator items = ((scala.collection.Iterable) value).iterator();
        while (items.hasNext()) given(items.next(), kind, via);
      } else if (kind.equals("LOCATION") && value instanceof scala.Tuple2) {
        given(((scala.Tuple2) value)._2(), kind, via); // a partition with its location
      } else if (kind.equals("LOCATION") && value instanceof ResolvedPartitionSpec) {
        given(((ResolvedPartitionSpec) value).location(), kind, via);
      } else if (kind.equals("LOCATION") && value instanceof UnresolvedPartitionSpec) {
        given(((UnresolvedPartitionSpec) value).location(), kind, via);
      } else if (kind.equals("LOCATION") && value instanceof java.net.URI) {
        path("CREATE", new Path((java.net.URI) value), via);
      } else if (kind.equals("LOCATION")) {
        path("CREATE", new Path(value.toString()), via);
      } else if (kind.equals("PROVIDER")) {
        if (!inCatalog) source((String) value);
      } else if (kind.equals("SERDE")) {
        if (!formats.contains(value)) feature("administrators", "format " + value);
      } else {
        feature("administrators", kind + " " + value.getClass().getName());
      }
    }

    /** Judges a directory that rows are written to, without a table. */
    private void directory(CatalogStorageFormat storage, String via) throws Exception {
      given(storage.inputFormat(), "SERDE", via);
      given(storage.outputFormat(), "SERDE", via);
      given(storage.serde(), "SERDE", via);
      if (storage.locationUri().isDefined()) {
        path("WRITE", new Path((java.net.URI) storage.locationUri().get()), via);
      }
      placed(storage.properties(), "WRITE", via);
    }

    /** Judges a data source by the class that Spark finds for its name. */
    private void source(String name) {
      String found;
      try {
        found = DataSource.lookupDataSource(name, session.sessionState().conf()).getName();
      } catch (Throwable unknown) {
        return; // Spark does not find it either
      }
      String need = (String) sources.get(found);
      if (need == null) feature("administrators", "source " + name);
      else if (!NOTHING.contains(need)) feature(need, "source " + name);
    }

    /** Judges options of which one may be a path. */
    private void placed(scala.collection.Map map, String act, String via) throws Exception {
      scala.collection.Iterator all = map.iterator();
      while (all.hasNext()) {
        scala.Tuple2 one = (scala.Tuple2) all.next();
        boolean path = lower((String) one._1()).equals("path");
        if (path) path(act, new Path((String) one._2()), via);
        else key(options, (String) one._1(), one._2());
      }
    }

    private void keys(Keys rules, scala.collection.Map map) {
      scala.collection.Iterator all = map.iterator();
      while (all.hasNext()) {
        scala.Tuple2 one = (scala.Tuple2) all.next();
        if (one._1() instanceof String) key(rules, (String) one._1(), one._2());
      }
    }

    /** Judges the options of a table in a catalog. */
    private void options(Map map, String catalog) {
      Map others = new HashMap(map);
      if (catalogs.isDatabase(catalog)) {
        for (Object key : map.keySet()) {
          if (OF_READING.contains(lower((String) key))) others.remove(key);
        }
      }
      options(others);
    }

    private void options(Map map) {
      for (Object one : map.entrySet()) {
        Map.Entry entry = (Map.Entry) one;
        key(options, (String) entry.getKey(), entry.getValue());
      }
    }

    private void key(Keys rules, String key, Object value) {
      String folded = lower(key);
      if (rules == properties && folded.startsWith(VIEW_SETTING)) {
        String setting = key.substring(VIEW_SETTING.length());
        add("SET", "SETTING", "", "", setting, "", "", "");
        return;
      }
      String need = rules.need(folded, value);
      if (need.equals("options")) {
        need = options.need(folded.startsWith("option.") ? folded.substring(7) : folded, value);
      }
      if (!NOTHING.contains(need)) feature(need, "property " + key);
    }

    // ---- names and paths -------------------------------------------------------------------

    private void path(String act, Path path, String via) throws Exception {
      String done = READS.contains(act) ? "READ" : act.equals("CREATE") ? act : "WRITE";
      at(done, resolved(path), via);
      for (Object match : places.expand(hadoop(session), path)) at(done, (String) match, via);
    }

    private void at(String act, String place, String via) {
      if (act.equals("READ") || !made.contains(place)) add(act, "PATH", "", "", place, "", via, "");
    }

    private String resolved(Path path) {
      return places.resolve(hadoop(session), path);
    }

    private String full(scala.Option catalog, scala.Option schema, String name) {
      return lower(text(catalog, "spark_catalog") + "." + text(schema, "") + "." + name);
    }

    private String owner(Table table) {
      Object owner = table.properties().get("owner");
      return owner == null ? "" : (String) owner;
    }

    private String namespace(Identifier name) {
      return String.join(".", name.namespace());
    }

    private String text(scala.Option value, String otherwise) {
      return value.isDefined() ? (String) value.get() : otherwise;
    }

    private String lower(String name) {
      return name.toLowerCase(Locale.ROOT);
    }
  }
}
