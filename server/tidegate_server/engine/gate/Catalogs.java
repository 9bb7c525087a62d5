package tidegate;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The catalogs and connections, each a catalog of every session.
 *
 * <p>Their options, with passwords, are in these catalogs alone. As settings of a session, as Spark
 * has them otherwise, they could be read there.
 *
 * <p>A catalog is loaded when a statement first mentions it, since that may connect to another
 * system. One that cannot be loaded is replaced by a catalog that throws the reason, and is tried
 * again later; other statements do not notice.
 */
public class Catalogs {
  /** Before the name of a catalog, and the reason, in messages of exceptions. */
  public static final String UNAVAILABLE = "tidegate.catalog.unavailable:";
  static final String FIELD = "\u001f";
  private static final String VERSION_QUERY = "versionQuery";
  private static final String DATABASE =
      "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog";
  private static final long RETRY_MILLISECONDS = 5000;
  private static final int CAUSES = 8;
  private static final String GONE = "it does not exist any more";
  /** The session catalog, in the place of a class: the catalog is an alias of it. */
  private static final String SESSION = "spark_catalog";
  /** The parts of a name with a catalog, by the class of the parsed node that has it first. */
  private static final Map NAMED = new HashMap();

  static {
    String[] tables = {
      "UnresolvedRelation", "UnresolvedTable", "UnresolvedView", "UnresolvedTableOrView",
      "UnresolvedIdentifier", "UnresolvedFunctionName", "UnresolvedFunction",
      "UnresolvedTableValuedFunction", "UnresolvedStar", "UnresolvedStarExceptOrReplace"
    };
    for (int i = 0; i < tables.length; i++) NAMED.put(tables[i], new Integer(3));
    NAMED.put("UnresolvedNamespace", new Integer(1));
    NAMED.put("UnresolvedAttribute", new Integer(4));
  }

  private Map entries = new HashMap();
  /** The names that sessions may have a catalog of. */
  private final Set given = new HashSet();
  private int version = 0;
  private PythonCatalogs python;

  /** Sets what opens the catalogs that are written in Python. */
  public void connect(PythonCatalogs python) {
    this.python = python;
  }

  /** One catalog, by its definition. */
  public static class Entry {
    final String name;
    final String kind;
    private final String className;
    /** The type of a catalog that is written in Python; empty for a class. */
    private final String pythonType;
    private final Map options;
    private final Set secrets;
    private final String problem;
    private final PythonCatalogs python;
    /** What shows that a table of a database has not changed; null if it is not an option. */
    private final String versionQuery;
    /** What loading it led to; null before. Read without a lock: loading may take long. */
    private volatile Loaded loaded;

    Entry(
        String name, String kind, String className, String pythonType, Map options, Set secrets,
        String problem, PythonCatalogs python) {
      this.name = name;
      this.kind = kind;
      this.className = className;
      this.pythonType = pythonType;
      this.python = python;
      this.options = options;
      this.secrets = secrets;
      this.problem = problem;
      // Drivers reject properties that they do not know.
      this.versionQuery = className.equals(DATABASE) ? removeOption(options, VERSION_QUERY) : null;
    }

    private static String removeOption(Map options, String name) {
      for (Object key : new ArrayList(options.keySet())) {
        if (name.equalsIgnoreCase((String) key)) return (String) options.remove(key);
      }
      return null;
    }

    boolean isSame(Entry other) {
      return other != null && kind.equals(other.kind) && className.equals(other.className)
          && pythonType.equals(other.pythonType) && options.equals(other.options)
          && java.util.Objects.equals(versionQuery, other.versionQuery)
          && problem.equals(other.problem);
    }

    boolean isPython() {
      return !pythonType.isEmpty();
    }

    /** Returns whether it is an alias of the session catalog. */
    boolean isAlias() {
      return className.equals(SESSION);
    }

    CatalogPlugin build() throws Exception {
      if (isAlias()) return null;
      if (isPython()) return python.open(name, pythonType, options, secrets);
      return Catalogs.build(className, name, options);
    }

    /** Releases what the catalog holds in Python. */
    void close(CatalogPlugin catalog) {
      if (isPython() && catalog != null) python.close(catalog);
    }

    /** Loads it unless that was done, or failed a moment ago; returns whether it changed. */
    synchronized boolean load() {
      Loaded before = loaded;
      long now = System.currentTimeMillis();
      if (before != null && (before.failure == null || now - before.at < RETRY_MILLISECONDS)) {
        return false;
      }
      try {
        if (!problem.isEmpty()) throw new IllegalArgumentException(problem);
        loaded = new Loaded(build(), null, now);
      } catch (Throwable failed) {
        String failure = reason(failed);
        loaded = new Loaded(new Unavailable(name, failure), failure, System.currentTimeMillis());
      }
      return true;
    }

    boolean isReady() {
      Loaded now = loaded;
      return isAlias() || now != null && now.failure == null;
    }

    CatalogPlugin catalog() {
      Loaded now = loaded;
      return now == null ? null : now.catalog;
    }

    String state() {
      Loaded now = loaded;
      if (isAlias()) return "READY" + FIELD;
      if (now == null) return "UNUSED" + FIELD;
      return now.failure == null ? "READY" + FIELD : "FAILED" + FIELD + now.failure;
    }

    /** Returns what an exception and its causes say, without secrets. */
    String reason(Throwable failed) {
      StringBuilder text = new StringBuilder();
      Throwable one = failed;
      for (int i = 0; one != null && i < CAUSES; i++, one = one.getCause()) {
        String message = one.getMessage();
        boolean known = message != null && text.indexOf(message) >= 0;
        if (message != null && message.startsWith(PythonCatalogs.FAILED)) {
          message = message.substring(message.lastIndexOf(FIELD) + 1);
        }
        if (one instanceof ClassNotFoundException) message = "there is no class " + message;
        if (message == null) message = one.getClass().getSimpleName();
        if (known) continue;
        if (text.length() > 0) text.append(": ");
        text.append(message.split("\n", 2)[0]);
      }
      String all = text.toString();
      for (Object secret : secrets) {
        if (!((String) secret).isEmpty()) all = all.replace((String) secret, "*****");
      }
      return all;
    }
  }

  /** A catalog that was loaded, or what stands for one that failed. */
  static class Loaded {
    final CatalogPlugin catalog;
    final String failure;
    final long at;

    Loaded(CatalogPlugin catalog, String failure, long at) {
      this.catalog = catalog;
      this.failure = failure;
      this.at = at;
    }
  }

  /**
   * Returns a catalog for {@link #replace} and {@link #check}.
   *
   * @param pythonType serves if there is no such class.
   */
  public Entry entry(
      String name, String kind, String className, String pythonType, Map options, List secrets,
      String problem) {
    boolean jar = pythonType.isEmpty() || exists(className);
    return new Entry(
        name, kind, jar ? className : "", jar ? "" : pythonType, new HashMap(options),
        new HashSet(secrets), problem, python);
  }

  private static boolean exists(String className) {
    try {
      Class.forName(className, false, SparkSession.class.getClassLoader());
      return true;
    } catch (ClassNotFoundException missing) {
      return false;
    }
  }

  /** Returns why a catalog cannot be loaded, after its class if that is missing; or nothing. */
  public String check(Entry entry) {
    try {
      entry.close(entry.build());
      return "";
    } catch (Throwable failed) {
      Throwable one = failed;
      while (one != null && !(one instanceof ClassNotFoundException)) one = one.getCause();
      boolean missing = one != null || failed instanceof NoClassDefFoundError;
      return (missing ? "missing" : "failed") + FIELD + entry.reason(failed);
    }
  }

  static CatalogPlugin build(String className, String name, Map options) throws Exception {
    Class found = Class.forName(className, true, SparkSession.class.getClassLoader());
    Object made = found.getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
    if (!(made instanceof CatalogPlugin)) {
      throw new IllegalArgumentException(className + " is no catalog of Spark");
    }
    CatalogPlugin catalog = (CatalogPlugin) made;
    catalog.initialize(name, new CaseInsensitiveStringMap(options));
    return catalog;
  }

  /** Replaces all catalogs; those whose definitions are the same stay loaded. */
  public void replace(List all) {
    for (Object one : exchange(all)) {
      Entry entry = (Entry) one;
      entry.close(entry.catalog());
    }
  }

  /** Returns the entries that are not needed any more. */
  private synchronized List exchange(List all) {
    Map before = entries;
    Map after = new HashMap();
    for (Object one : all) {
      Entry entry = (Entry) one;
      Entry known = (Entry) before.get(entry.name);
      after.put(entry.name, entry.isSame(known) ? known : entry);
    }
    entries = after;
    version++;
    List gone = new ArrayList();
    for (Object one : before.values()) {
      if (after.get(((Entry) one).name) != one) gone.add(one);
    }
    return gone;
  }

  /** Returns whether a name is that of a catalog, in any case. */
  public boolean has(String name) {
    return find(name) != null;
  }

  /** Returns whether a name is that of a catalog that is written in Python. */
  public boolean isPython(String name) {
    Entry found = find(name);
    return found != null && found.isPython();
  }

  /** Returns whether a name is that of an alias of the session catalog. */
  public boolean isAlias(String name) {
    Entry found = find(name);
    return found != null && found.isAlias();
  }

  /** Returns whether a name is that of a database, which Spark reads by JDBC. */
  public boolean isDatabase(String name) {
    Entry found = find(name);
    return found != null && found.className.equals(DATABASE);
  }

  /** Returns CATALOG or CONNECTION; null if there is none of this name. */
  public String kind(String name) {
    Entry found = find(name);
    return found == null ? null : found.kind;
  }

  /** Returns the options of a database, with secrets; null if there is none of this name. */
  public Map options(String name) {
    Entry found = find(name);
    return found == null || !isDatabase(name) ? null : new HashMap(found.options);
  }

  /** Returns the option versionQuery of a database; null if it has none. */
  public String versionQuery(String name) {
    Entry found = find(name);
    return found == null ? null : found.versionQuery;
  }

  /** Returns UNUSED, READY or FAILED, and the reason; empty if there is none of this name. */
  public String state(String name) {
    Entry found = find(name);
    return found == null ? "" : found.state();
  }

  private synchronized Entry find(String name) {
    return (Entry) entries.get(name.toLowerCase(Locale.ROOT));
  }

  private synchronized List missing() {
    List found = new ArrayList();
    for (Object one : entries.values()) {
      if (!((Entry) one).isReady()) found.add(one);
    }
    return found;
  }

  /** Loads a catalog for a session, which makes it the current one. */
  public void use(SparkSession session, String name) {
    Entry found = find(name);
    if (found != null) load(found);
    install(session, -1);
  }

  /**
   * Loads the catalogs that a plan mentions, and gives a session the catalogs as they are now.
   *
   * @param installed the version that the session has, at first 0.
   * @return the version that it has then.
   */
  public int install(SparkSession session, int installed, Object plan) {
    List missing = missing();
    if (!missing.isEmpty()) {
      Set mentioned = new HashSet();
      collect(plan, mentioned, new IdentityHashMap());
      for (Object one : missing) {
        if (mentioned.contains(((Entry) one).name)) load((Entry) one);
      }
    }
    return install(session, installed);
  }

  private void load(Entry entry) {
    // Other statements go on meanwhile: it may wait for another system.
    if (!entry.load()) return;
    synchronized (this) {
      version++;
    }
  }

  private synchronized int install(SparkSession session, int installed) {
    if (installed == version) return version;
    CatalogManager manager = session.sessionState().catalogManager();
    try {
      Method method = CatalogManager.class.getDeclaredMethod("catalogs", new Class[0]);
      method.setAccessible(true);
      scala.collection.mutable.HashMap known =
          (scala.collection.mutable.HashMap) method.invoke(manager, new Object[0]);
      synchronized (manager) {
        for (Object name : given) {
          if (entries.containsKey(name)) continue;
          // Without its current catalog, a session could not even choose another one.
          if (isCurrent(manager, name)) known.put(name, new Unavailable((String) name, GONE));
          else known.remove(name);
        }
        for (Object one : entries.values()) {
          Entry entry = (Entry) one;
          CatalogPlugin catalog = entry.catalog();
          // An alias has none: see withoutAliases.
          if (catalog == null) known.remove(entry.name);
          else known.put(entry.name, catalog);
          given.add(entry.name);
        }
      }
    } catch (Exception changed) {
      throw new IllegalStateException("Spark keeps its catalogs elsewhere: " + changed);
    }
    return version;
  }

  private static boolean isCurrent(CatalogManager manager, Object name) throws Exception {
    Method method = CatalogManager.class.getDeclaredMethod("_currentCatalogName", new Class[0]);
    method.setAccessible(true);
    scala.Option current = (scala.Option) method.invoke(manager, new Object[0]);
    return current.isDefined() && current.get().equals(name);
  }

  /**
   * Returns a parsed plan in which names have the session catalog instead of its aliases.
   *
   * <p>Spark knows no catalog of an alias, so that a name that was overlooked leads nowhere.
   */
  public LogicalPlan withoutAliases(LogicalPlan plan) {
    Set aliases = new HashSet();
    synchronized (this) {
      for (Object one : entries.values()) {
        if (((Entry) one).isAlias()) aliases.add(((Entry) one).name);
      }
    }
    return aliases.isEmpty() ? plan : (LogicalPlan) renamed(plan, aliases);
  }

  /** Returns how many parts a name has that begins with a catalog; 0 if the part is no name. */
  private static int leastParts(TreeNode node, int part) {
    Object found = part == 0 ? NAMED.get(node.getClass().getSimpleName()) : null;
    return found == null ? 0 : ((Integer) found).intValue();
  }

  private static Object renamed(Object value, Set aliases) {
    if (value instanceof TreeNode) {
      TreeNode node = (TreeNode) value;
      Object[] parts = new Object[node.productArity()];
      boolean changed = false;
      for (int i = 0; i < parts.length; i++) {
        Object part = node.productElement(i);
        int least = leastParts(node, i);
        parts[i] = least > 0 ? renamedName(part, least, aliases) : renamed(part, aliases);
        changed |= parts[i] != part;
      }
      return changed ? node.makeCopy(parts) : node;
    }
    if (value instanceof TableIdentifier) {
      TableIdentifier name = (TableIdentifier) value;
      return isAlias(name.catalog(), aliases)
          ? new TableIdentifier(name.table(), name.database(), scala.Option.apply(SESSION)) : name;
    }
    if (value instanceof FunctionIdentifier) {
      FunctionIdentifier name = (FunctionIdentifier) value;
      return isAlias(name.catalog(), aliases)
          ? new FunctionIdentifier(name.funcName(), name.database(), scala.Option.apply(SESSION))
          : name;
    }
    if (value instanceof scala.Some) {
      Object inner = ((scala.Some) value).value();
      Object found = renamed(inner, aliases);
      return found == inner ? value : scala.Option.apply(found);
    }
    if (value instanceof scala.Tuple2) {
      scala.Tuple2 pair = (scala.Tuple2) value;
      Object first = renamed(pair._1(), aliases);
      Object second = renamed(pair._2(), aliases);
      return first == pair._1() && second == pair._2() ? value : new scala.Tuple2(first, second);
    }
    if (value instanceof scala.Tuple3) {
      scala.Tuple3 three = (scala.Tuple3) value;
      Object first = renamed(three._1(), aliases);
      Object second = renamed(three._2(), aliases);
      Object third = renamed(three._3(), aliases);
      boolean same = first == three._1() && second == three._2() && third == three._3();
      return same ? value : new scala.Tuple3(first, second, third);
    }
    if (!(value instanceof scala.collection.immutable.Seq)) return value;
    List found = new ArrayList();
    boolean changed = false;
    scala.collection.Iterator items = ((scala.collection.immutable.Seq) value).iterator();
    while (items.hasNext()) {
      Object item = items.next();
      Object after = renamed(item, aliases);
      changed |= after != item;
      found.add(after);
    }
    return changed ? sequence(found) : value;
  }

  /** Returns the parts of a name, or the optional parts, with the catalog's own name. */
  private static Object renamedName(Object name, int least, Set aliases) {
    if (name instanceof scala.Some) {
      Object inner = ((scala.Some) name).value();
      Object found = renamedName(inner, least, aliases);
      return found == inner ? name : scala.Option.apply(found);
    }
    if (!(name instanceof scala.collection.immutable.Seq)) return name;
    scala.collection.immutable.Seq parts = (scala.collection.immutable.Seq) name;
    if (parts.size() < least || !aliases.contains(lower(parts.head()))) return name;
    List found = new ArrayList();
    scala.collection.Iterator items = parts.iterator();
    while (items.hasNext()) found.add(items.next());
    found.set(0, SESSION);
    return sequence(found);
  }

  private static boolean isAlias(scala.Option catalog, Set aliases) {
    return catalog.isDefined() && aliases.contains(lower(catalog.get()));
  }

  private static String lower(Object text) {
    return text.toString().toLowerCase(Locale.ROOT);
  }

  private static scala.collection.immutable.Seq sequence(List items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items).toSeq();
  }

  /** Adds all texts in a plan, in lower case: the names in it, and more. */
  private static void collect(Object value, Set found, IdentityHashMap seen) {
    if (value instanceof String) found.add(((String) value).toLowerCase(Locale.ROOT));
    else if (value instanceof scala.collection.Iterable) {
      scala.collection.Iterator items = ((scala.collection.Iterable) value).iterator();
      while (items.hasNext()) collect(items.next(), found, seen);
    } else if (value instanceof scala.Product && !(value instanceof Table)
        && !(value instanceof org.apache.spark.sql.sources.BaseRelation)) {
      if (seen.put(value, "") != null) return;
      scala.collection.Iterator parts = ((scala.Product) value).productIterator();
      while (parts.hasNext()) collect(parts.next(), found, seen);
    }
  }

  /** A catalog that could not be loaded, and says why when it is used. */
  static class Unavailable implements TableCatalog, SupportsNamespaces, FunctionCatalog {
    private final String name;
    private final String reason;

    Unavailable(String name, String reason) {
      this.name = name;
      this.reason = reason;
    }

    private RuntimeException failure() {
      return new IllegalStateException(UNAVAILABLE + name + FIELD + reason);
    }

    public void initialize(String name, CaseInsensitiveStringMap options) {}

    public String name() {
      return name;
    }

    public Identifier[] listTables(String[] namespace) {
      throw failure();
    }

    public Table loadTable(Identifier table) {
      throw failure();
    }

    public Table alterTable(Identifier table, TableChange[] changes) {
      throw failure();
    }

    public boolean dropTable(Identifier table) {
      throw failure();
    }

    public void renameTable(Identifier before, Identifier after) {
      throw failure();
    }

    public String[][] listNamespaces() {
      throw failure();
    }

    public String[][] listNamespaces(String[] parent) {
      throw failure();
    }

    public boolean namespaceExists(String[] namespace) {
      throw failure();
    }

    public Map loadNamespaceMetadata(String[] namespace) {
      throw failure();
    }

    public void createNamespace(String[] namespace, Map metadata) {
      throw failure();
    }

    public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
      throw failure();
    }

    public boolean dropNamespace(String[] namespace, boolean cascade) {
      throw failure();
    }

    public Identifier[] listFunctions(String[] namespace) {
      throw failure();
    }

    public UnboundFunction loadFunction(Identifier function) {
      throw failure();
    }
  }
}
