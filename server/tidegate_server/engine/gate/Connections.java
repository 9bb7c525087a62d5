package tidegate;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The connections, each a catalog of every session.
 *
 * <p>Their options, with passwords, are in these catalogs alone. As settings of a session, as Spark
 * has them otherwise, they could be read there.
 */
public class Connections {
  private Map catalogs = new HashMap();
  private int version = 0;

  /** Returns the catalog of a connection; throws an exception if its options are unusable. */
  public Object build(String name, Map options) {
    JDBCTableCatalog catalog = new JDBCTableCatalog();
    catalog.initialize(name, new CaseInsensitiveStringMap(options));
    return catalog;
  }

  /** Replaces all connections by these catalogs, by name. */
  public synchronized void replace(Map catalogs) {
    this.catalogs = new HashMap(catalogs);
    version++;
  }

  public synchronized boolean has(String name) {
    return catalogs.containsKey(name);
  }

  /**
   * Gives a session the catalogs as they are now.
   *
   * @param installed the version that the session has, at first 0.
   * @return the version that it has then.
   */
  public synchronized int install(SparkSession session, int installed) {
    if (installed == version) return version;
    CatalogManager manager = session.sessionState().catalogManager();
    try {
      Method method = CatalogManager.class.getDeclaredMethod("catalogs", new Class[0]);
      method.setAccessible(true);
      scala.collection.mutable.HashMap known =
          (scala.collection.mutable.HashMap) method.invoke(manager, new Object[0]);
      synchronized (manager) {
        for (Object name : names(known)) {
          if (known.apply(name) instanceof JDBCTableCatalog) known.remove(name);
        }
        for (Object one : catalogs.entrySet()) {
          known.put(((Map.Entry) one).getKey(), ((Map.Entry) one).getValue());
        }
      }
    } catch (Exception changed) {
      throw new IllegalStateException("Spark keeps its catalogs elsewhere: " + changed);
    }
    return version;
  }

  private static List names(scala.collection.mutable.HashMap catalogs) {
    List found = new ArrayList();
    scala.collection.Iterator all = catalogs.keysIterator();
    while (all.hasNext()) found.add(all.next());
    return found;
  }
}
