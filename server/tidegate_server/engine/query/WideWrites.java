package tidegate;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.commands.MergeIntoCommand;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.Iterator;

/**
 * Has statements that write many columns keep fewer values of each in memory.
 *
 * <p>Parquet's writer keeps the values of a column until its first page ends, and then a dictionary
 * of up to 1 MiB of them, in objects that take several times as much. In each task, 200 columns
 * take some 700 MB, which Spark does not account for. So the limits are divided among the columns
 * beyond those for which Parquet's own are fine.
 */
public class WideWrites extends scala.runtime.AbstractFunction1 {
  private static final int MANY = 50;
  private static final int PAGE_ROWS = 20000;
  private static final int LEAST_PAGE_ROWS = 1000;
  private static final int DICTIONARY = 1 << 20;
  private static final int LEAST_DICTIONARY = 64 << 10;
  private static final String[] KEYS = {
    "parquet.page.row.count.limit", "parquet.dictionary.page.size"
  };

  /** For each session whose commands are adapted, the value of each setting, or null. */
  private final Map adapted = Collections.synchronizedMap(new WeakHashMap());

  /**
   * Adapts settings to the commands of a session until {@link #end}, except those that the session
   * or the engine's configuration has set.
   *
   * @return false if another statement of the session has already begun
   */
  public boolean begin(SparkSession session) {
    SQLConf conf = session.sessionState().conf();
    Map values = new HashMap();
    for (int i = 0; i < KEYS.length; i++) {
      boolean configured = session.sparkContext().hadoopConfiguration().get(KEYS[i]) != null;
      if (!configured && !conf.contains(KEYS[i])) values.put(KEYS[i], null);
    }
    return adapted.putIfAbsent(conf, values) == null;
  }

  public void end(SparkSession session) {
    SQLConf conf = session.sessionState().conf();
    set(conf, (Map) adapted.remove(conf), new HashMap());
  }

  /** Returns the settings with which a table is written; none if it has few columns. */
  public Map settings(int columns) {
    Map settings = new HashMap();
    if (columns > MANY) {
      int rows = Math.max(PAGE_ROWS * MANY / columns, LEAST_PAGE_ROWS);
      int bytes = Math.max(DICTIONARY / columns * MANY, LEAST_DICTIONARY);
      settings.put(KEYS[0], String.valueOf(rows));
      settings.put(KEYS[1], String.valueOf(bytes));
    }
    return settings;
  }

  /** Returns the rule that looks at the plans of a session. */
  public Object apply(Object session) {
    return new Adaptation((SparkSession) session);
  }

  class Adaptation extends scala.runtime.AbstractFunction1 {
    private final SparkSession session;

    Adaptation(SparkSession session) {
      this.session = session;
    }

    public Object apply(Object plan) {
      if (plan instanceof Command) adapt(session.sessionState().conf(), (QueryPlan) plan);
      return scala.runtime.BoxedUnit.UNIT;
    }
  }

  private void adapt(SQLConf conf, QueryPlan command) {
    Map values = (Map) adapted.get(conf);
    if (values != null) set(conf, values, settings(columns(command)));
  }

  /** Sets what was not set, except by an earlier call. */
  private static synchronized void set(SQLConf conf, Map values, Map settings) {
    for (Object one : values.entrySet()) {
      Map.Entry entry = (Map.Entry) one;
      String key = (String) entry.getKey();
      String earlier = (String) entry.getValue();
      String now = (String) settings.get(key);
      boolean own = conf.contains(key)
          ? conf.getConfString(key).equals(earlier)
          : earlier == null;
      if (!own) continue;
      if (now != null) conf.setConfString(key, now);
      else if (earlier != null) conf.unsetConf(key);
      entry.setValue(now);
    }
  }

  private static int columns(QueryPlan command) {
    int most = Math.max(most(command.children()), most(command.innerChildren()));
    if (!(command instanceof MergeIntoCommand)) return most;
    return Math.max(most, ((MergeIntoCommand) command).target().output().size());
  }

  private static int most(scala.collection.immutable.Seq plans) {
    int most = 0;
    Iterator each = plans.iterator();
    while (each.hasNext()) most = Math.max(most, ((QueryPlan) each.next()).output().size());
    return most;
  }
}
