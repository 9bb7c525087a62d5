package tidegate;

import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Ends the analysis, the optimization and the planning of canceled statements.
 *
 * <p>Spark looks for a cancellation in its tasks only. It would continue for minutes to plan a large
 * statement that was canceled. The rule and the strategy change nothing; Spark applies them after
 * its own, repeatedly until the plan is complete.
 */
public class CanceledPlans {
  private static final String GROUP = "spark.jobGroup.id";
  private final Set canceled = ConcurrentHashMap.newKeySet();

  /** Ends the plans of the threads whose jobs belong to a group. */
  public void add(String group) {
    canceled.add(group);
  }

  public void remove(String group) {
    canceled.remove(group);
  }

  /** Returns what builds the rule of analysis and optimization, for each session. */
  public Object rules() {
    return new scala.runtime.AbstractFunction1() {
      public Object apply(Object session) {
        final SparkContext context = ((SparkSession) session).sparkContext();
        return new Rule() {
          public TreeNode apply(TreeNode plan) {
            check(context);
            return plan;
          }
        };
      }
    };
  }

  /** Returns what builds the strategy of planning, for each session. */
  public Object strategies() {
    return new scala.runtime.AbstractFunction1() {
      public Object apply(Object session) {
        final SparkContext context = ((SparkSession) session).sparkContext();
        return new SparkStrategy() {
          public Seq apply(LogicalPlan plan) {
            check(context);
            return (Seq) Nil$.MODULE$;
          }
        };
      }
    };
  }

  private void check(SparkContext context) {
    if (canceled.isEmpty()) return;
    String group = context.getLocalProperty(GROUP);
    if (group != null && canceled.contains(group)) throw new CancellationException(group);
  }
}
