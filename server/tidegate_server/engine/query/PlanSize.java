package tidegate;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.Iterator;

/**
 * Refuses plans with too many operators, before Spark writes common table expressions into them.
 *
 * <p>A view or common table expression that is used twice by the next one, and so on, doubles the
 * plan each time: thirty short lines become a billion operators, which the heap of the JVM does not
 * hold. The rule runs on the query of each view, so that what it walks through is at most a few
 * times as large as the limit.
 */
public class PlanSize extends scala.runtime.AbstractFunction1 {
  /** Begins the message of what is thrown; see errors.py. */
  static final String REFUSED = "tidegate.plan:";
  /** Spark needs minutes and some hundred megabytes to plan this many. */
  private static final long LIMIT = 20000;

  public Object apply(Object session) {
    return new Rule() {
      public TreeNode apply(TreeNode plan) {
        size((LogicalPlan) plan, new HashMap());
        return plan;
      }
    };
  }

  /**
   * Returns the number of operators that a plan has once Spark has replaced each reference.
   *
   * @param definitions the sizes of the common table expressions, by their ids
   */
  private static long size(LogicalPlan plan, Map definitions) {
    if (plan instanceof CTERelationRef) {
      // One that refers to itself is not replaced.
      Object found = definitions.get(Long.valueOf(((CTERelationRef) plan).cteId()));
      return found == null ? 1 : ((Long) found).longValue();
    }
    if (plan instanceof WithCTE) {
      Iterator defined = ((WithCTE) plan).cteDefs().iterator();
      while (defined.hasNext()) {
        CTERelationDef definition = (CTERelationDef) defined.next();
        long size = size(definition.child(), definitions);
        definitions.put(Long.valueOf(definition.id()), Long.valueOf(size));
      }
      return size(((WithCTE) plan).plan(), definitions);
    }
    long sum = 1;
    Iterator children = plan.children().iterator();
    while (children.hasNext()) sum += size((LogicalPlan) children.next(), definitions);
    Iterator subqueries = plan.subqueries().iterator();
    while (subqueries.hasNext()) sum += size((LogicalPlan) subqueries.next(), definitions);
    if (sum > LIMIT) throw new IllegalArgumentException(REFUSED + LIMIT);
    return sum;
  }
}
