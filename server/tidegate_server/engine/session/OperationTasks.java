package tidegate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.TreeSet;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.SparkStatusTracker;
import org.apache.spark.status.AppStatusStore;
import org.apache.spark.status.api.v1.StageData;
import scala.Option;
import scala.collection.Seq;

/**
 * Adds up the tasks of an operation's Spark jobs.
 *
 * <p>From Python, each job and stage would take a dozen round trips to the JVM, several times a
 * second while the operation runs.
 */
public class OperationTasks {
  /** Returns the number of tasks that are running. */
  public int running(SparkContext context, String operation) {
    int running = 0;
    SparkStatusTracker tracker = context.statusTracker();
    for (Object one : stages(tracker, tracker.getJobIdsForTag(operation))) {
      running += ((SparkStageInfo) one).numActiveTasks();
    }
    return running;
  }

  /**
   * Returns six numbers: of the first job, of finished stages and all stages, and of finished,
   * running and all tasks. Returns null before the first stage.
   */
  public String progress(SparkContext context, String operation) {
    SparkStatusTracker tracker = context.statusTracker();
    int[] jobs = tracker.getJobIdsForTag(operation);
    int stages = 0, stagesDone = 0, tasks = 0, tasksDone = 0, running = 0;
    for (Object one : stages(tracker, jobs)) {
      SparkStageInfo stage = (SparkStageInfo) one;
      stages++;
      if (stage.numCompletedTasks() >= stage.numTasks()) stagesDone++;
      tasks += stage.numTasks();
      tasksDone += stage.numCompletedTasks();
      running += stage.numActiveTasks();
    }
    if (stages == 0) return null;
    int first = Integer.MAX_VALUE;
    for (int i = 0; i < jobs.length; i++) first = Math.min(first, jobs[i]);
    return first + " " + stagesDone + " " + stages + " " + tasksDone + " " + running + " " + tasks;
  }

  /**
   * Returns the milliseconds that tasks ran in all attempts, the largest number of bytes that one
   * stage used for execution, and the jobs in order.
   */
  public String totals(SparkContext context, String operation) {
    SparkStatusTracker tracker = context.statusTracker();
    AppStatusStore store = context.statusStore();
    int[] jobs = tracker.getJobIdsForTag(operation);
    long milliseconds = 0, memory = 0;
    for (Object one : stages(tracker, jobs)) {
      int number = ((SparkStageInfo) one).stageId();
      Seq attempts = store.stageData(number, false, new ArrayList(), false, new double[0]);
      for (int i = 0; i < attempts.length(); i++) {
        StageData attempt = (StageData) attempts.apply(i);
        milliseconds += attempt.executorRunTime();
        memory = Math.max(memory, attempt.peakExecutionMemory());
      }
    }
    StringBuilder found = new StringBuilder().append(milliseconds).append(' ').append(memory);
    Arrays.sort(jobs);
    for (int i = 0; i < jobs.length; i++) found.append(' ').append(jobs[i]);
    return found.toString();
  }

  /** Returns the stages of jobs; those that Spark no longer keeps are missing. */
  private static ArrayList stages(SparkStatusTracker tracker, int[] jobs) {
    TreeSet numbers = new TreeSet();
    for (int i = 0; i < jobs.length; i++) {
      Option job = tracker.getJobInfo(jobs[i]);
      if (!job.isDefined()) continue;
      int[] own = ((SparkJobInfo) job.get()).stageIds();
      for (int j = 0; j < own.length; j++) numbers.add(Integer.valueOf(own[j]));
    }
    ArrayList found = new ArrayList();
    for (Iterator each = numbers.iterator(); each.hasNext(); ) {
      Option stage = tracker.getStageInfo(((Integer) each.next()).intValue());
      if (stage.isDefined()) found.add(stage.get());
    }
    return found;
  }
}
