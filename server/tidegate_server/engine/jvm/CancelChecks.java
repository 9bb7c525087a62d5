package tidegate;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.ExpandExec;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.RangeExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import org.apache.spark.sql.execution.joins.BaseJoinExec;
import scala.collection.immutable.Seq;

/**
 * Lets generated code end with its task.
 *
 * <p>Spark's code asks whether its task was canceled when it reads a batch of rows, thousands of
 * them. What a join, explode or an expensive expression makes of these may take hours, and the code
 * of range never asks if its rows are taken one by one. So a check is compiled into the code after
 * each operator that reads many rows at once or makes several of one.
 */
public class CancelChecks extends scala.runtime.AbstractFunction1 {
  public Object apply(Object session) {
    return new ColumnarRule() {
      public Rule postColumnarTransitions() {
        return new Insertion();
      }
    };
  }

  static class Insertion extends Rule {
    public TreeNode apply(TreeNode plan) {
      return checked((SparkPlan) plan, false);
    }

    /**
     * Returns a plan with checks.
     *
     * @param takesAll whether an operator above takes all rows in the same generated code
     */
    private static SparkPlan checked(SparkPlan plan, boolean takesAll) {
      final boolean below = plan instanceof HashAggregateExec || plan instanceof SortExec
          || takesAll && plan instanceof CodegenSupport;
      SparkPlan result = (SparkPlan) plan.mapChildren(new scala.runtime.AbstractFunction1() {
        public Object apply(Object child) {
          return checked((SparkPlan) child, below);
        }
      });
      return needsCheck(result, takesAll) ? new CancelCheck((Seq) result.output(), result) : result;
    }

    /** The code of range looks itself after each batch of rows, unless they are taken in between. */
    private static boolean needsCheck(SparkPlan plan, boolean takesAll) {
      return plan instanceof RangeExec && !takesAll
          || plan instanceof ColumnarToRowExec
          || plan instanceof BaseJoinExec
          || plan instanceof GenerateExec
          || plan instanceof ExpandExec;
    }
  }

  /** Passes rows on as they are. Without generated code, it does nothing. */
  public static class CancelCheck extends ProjectExec {
    private static final String TASK = "canceledTask";

    /** Has the arguments of a projection, since Spark copies operators by reflection. */
    public CancelCheck(Seq columns, SparkPlan child) {
      super(columns, child);
    }

    public String doConsume(CodegenContext code, Seq input, ExprCode row) {
      code.addImmutableStateIfNotExists(
          "TaskContext",
          TASK,
          new scala.runtime.AbstractFunction1() {
            public Object apply(Object variable) {
              return variable + " = TaskContext.get();";
            }
          });
      return TASK + ".killTaskIfInterrupted();\n" + consume(code, input, null);
    }

    public RDD doExecute() {
      return child().execute();
    }

    public ProjectExec withNewChildInternal(SparkPlan child) {
      return new CancelCheck(projectList(), child);
    }

    public String nodeName() {
      return "CancelCheck";
    }
  }
}
