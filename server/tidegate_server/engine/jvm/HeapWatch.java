package tidegate;

import com.sun.management.ThreadMXBean;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryUsage;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.memory.MemoryManager;

/**
 * Ends the stage that fills the heap before the JVM has no memory left and ends for everybody.
 *
 * <p>Spark accounts for the memory of sorts, joins and most aggregates, and writes to disk what
 * does not fit. What it does not account for, such as the list of a collect_list or the values of
 * a percentile, grows until the JVM is out of memory. So what is in use, less what Spark accounts
 * for, is compared with a share of the heap. Beyond it, if the old generation is nearly full, a
 * collection shows whether it is garbage. If not, the stage goes whose running tasks have allocated
 * most, if there was much less before it. As long as there is room, nothing ends: writers of files
 * with many columns also take much that Spark does not account for, but they stop growing.
 */
public class HeapWatch extends Thread {
  /** Begins the reason of a stage that was ended; see errors.py. */
  static final String REASON = "tidegate.heap:";
  private static final Pattern TASK =
      Pattern.compile("Executor task launch worker for task .* in stage (\\d+)\\..*");
  private static final long PAUSE = 100;
  /** The share of the heap that may be in use without Spark's account. */
  private static final double MOST = 0.4;
  /** The share of the old generation from which it is nearly full. */
  private static final double FULL = 0.8;
  /** The share by which it has grown if a stage is to blame. */
  private static final double GROWN = 0.25;
  /** The share by which it grows between two collections that are asked for. */
  private static final double STEP = 0.1;

  private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
  private final long size = Runtime.getRuntime().maxMemory();
  private final MemoryPoolMXBean pool = oldGeneration();
  private final GarbageCollectorMXBean collector = collector();
  private SparkContext context;
  /** The number of collections that were judged, and what the last one left in use. */
  private long judged;
  private long left;
  /** The stages with running tasks, by number. */
  private Map stages = new HashMap();
  /** What a thread had allocated when its task was first seen, by the thread's name. */
  private Map began = new HashMap();

  private static class Stage {
    /** What was in use before it, at most: a collection shows whether it was less. */
    long before;
    long allocated;
  }

  /** Begins to watch the tasks that run in this JVM, if its heap has an old generation. */
  public void watch(SparkContext context) {
    if (pool == null || collector == null) return;
    this.context = context;
    setDaemon(true);
    setName("heap-watch");
    start();
  }

  public void run() {
    while (!context.isStopped()) {
      look();
      judgeCollections();
      if (isSuspicious()) {
        System.gc();
        judgeCollections();
      }
      try {
        Thread.sleep(PAUSE);
      } catch (InterruptedException ended) {
        return;
      }
    }
  }

  /** Judges a collection since the last call; Java's own show as much as one that is asked for. */
  private void judgeCollections() {
    long count = collector.getCollectionCount();
    if (count == judged) return;
    judged = count;
    left = pool.getCollectionUsage().getUsed() - accounted();
    judge();
  }

  private boolean isSuspicious() {
    long inUse = inUse();
    return isNearlyFull(pool.getUsage())
        && inUse > MOST * size
        && inUse > left + STEP * size
        && worst(inUse) != null;
  }

  /** Finds the running tasks. */
  private void look() {
    Map running = new HashMap();
    Map tasks = new HashMap();
    ThreadGroup group = Thread.currentThread().getThreadGroup();
    Thread[] found = new Thread[2 * group.activeCount() + 16];
    int count = group.enumerate(found);
    for (int i = 0; i < count; i++) {
      String name = found[i].getName();
      Matcher task = TASK.matcher(name);
      if (!task.matches()) continue;
      Integer number = Integer.valueOf(task.group(1));
      Stage stage = (Stage) running.get(number);
      if (stage == null) {
        stage = new Stage();
        Stage known = (Stage) stages.get(number);
        stage.before = known != null ? known.before : inUse();
        running.put(number, stage);
      }
      long bytes = threads.getThreadAllocatedBytes(found[i].getId());
      Long first = (Long) began.get(name);
      if (first == null) first = Long.valueOf(bytes);
      tasks.put(name, first);
      stage.allocated += bytes - first.longValue();
    }
    stages = running;
    began = tasks;
  }

  /** Ends the stage that is to blame for what a collection left. */
  private void judge() {
    for (Object one : stages.values()) {
      Stage stage = (Stage) one;
      stage.before = Math.min(stage.before, left);
    }
    boolean full = isNearlyFull(pool.getCollectionUsage());
    Integer worst = full && left > MOST * size ? worst(left) : null;
    if (worst != null) context.cancelStage(worst.intValue(), REASON + left);
  }

  /** Returns the stage that is to blame if so much is in use; null if none is. */
  private Integer worst(long inUse) {
    Integer worst = null;
    long most = 0;
    for (Object one : stages.entrySet()) {
      Map.Entry entry = (Map.Entry) one;
      Stage stage = (Stage) entry.getValue();
      if (inUse - stage.before < GROWN * size || stage.allocated <= most) continue;
      most = stage.allocated;
      worst = (Integer) entry.getKey();
    }
    return worst;
  }

  /** Returns the bytes in use without Spark's account, garbage included. */
  private long inUse() {
    return pool.getUsage().getUsed() - accounted();
  }

  private static boolean isNearlyFull(MemoryUsage usage) {
    return usage.getUsed() > FULL * usage.getMax();
  }

  private static long accounted() {
    MemoryManager memory = SparkEnv.get().memoryManager();
    return memory.executionMemoryUsed() + memory.storageMemoryUsed();
  }

  private static MemoryPoolMXBean oldGeneration() {
    for (Object one : ManagementFactory.getMemoryPoolMXBeans()) {
      MemoryPoolMXBean pool = (MemoryPoolMXBean) one;
      boolean old = pool.getName().indexOf("Old Gen") >= 0 || pool.getName().indexOf("Tenured") >= 0;
      if (old && pool.isCollectionUsageThresholdSupported()) return pool;
    }
    return null;
  }

  /** Returns the collector of the whole heap: of several that name the pool, the last one. */
  private GarbageCollectorMXBean collector() {
    GarbageCollectorMXBean found = null;
    for (Object one : ManagementFactory.getGarbageCollectorMXBeans()) {
      GarbageCollectorMXBean bean = (GarbageCollectorMXBean) one;
      String[] pools = bean.getMemoryPoolNames();
      for (int i = 0; i < pools.length; i++) {
        if (pool != null && pools[i].equals(pool.getName())) found = bean;
      }
    }
    return found;
  }
}
