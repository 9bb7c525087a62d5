package tidegate;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Cube;
import org.apache.spark.sql.catalyst.expressions.GroupingSets;
import org.apache.spark.sql.catalyst.expressions.Rollup;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/**
 * Refuses plans with too many operators or nested joins, before Spark writes common table
 * expressions into them.
 *
 * <p>A view or common table expression that is used twice by the next one, and so on, doubles the
 * plan each time: thirty short lines become a billion operators, which the heap of the JVM does not
 * hold. The rule runs on the query of each view, so that what it walks through is at most a few
 * times as large as the limit. Each element of a CUBE doubles the grouping sets likewise.
 */
public class PlanSize {
  /** Begin the messages of what is thrown; see errors.py. */
  static final String REFUSED = "tidegate.plan:";
  static final String REFUSED_JOINS = "tidegate.joins:";
  static final String REFUSED_SETS = "tidegate.sets:";
  /** Spark needs minutes and some hundred megabytes to plan this many. */
  private static final long LIMIT = 20000;
  /** Spark needs more than ten seconds to plan more, and then has no room in its stack. */
  private static final int LIMIT_OF_JOINS = 400;
  /** Spark aggregates all rows once for each grouping set. */
  private static final double LIMIT_OF_SETS = 4096;

  /** Returns what builds the rule that counts the operators and joins of views, for each session. */
  public Object resolved() {
    return new AbstractFunction1() {
      public Object apply(Object session) {
        return new Rule() {
          public TreeNode apply(TreeNode plan) {
            size((LogicalPlan) plan, new HashMap());
            requireFewJoins((LogicalPlan) plan);
            return plan;
          }
        };
      }
    };
  }

  /**
   * Returns what builds the rule that counts grouping sets, before Spark writes them out, and the
   * joins of a statement, before Spark takes seconds to resolve their columns.
   */
  public Object unresolved() {
    return new AbstractFunction1() {
      public Object apply(Object session) {
        return new Rule() {
          public TreeNode apply(TreeNode plan) {
            requireFewSets((LogicalPlan) plan);
            requireFewJoins((LogicalPlan) plan);
            return plan;
          }
        };
      }
    };
  }

  /** Returns how many joins are nested in each other, if not too many are. */
  private static int requireFewJoins(LogicalPlan plan) {
    int most = 0;
    Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      most = Math.max(most, requireFewJoins((LogicalPlan) children.next()));
    }
    Iterator subqueries = plan.subqueries().iterator();
    while (subqueries.hasNext()) requireFewJoins((LogicalPlan) subqueries.next());
    if (plan instanceof Join) most++;
    if (most > LIMIT_OF_JOINS) throw new IllegalArgumentException(REFUSED_JOINS + LIMIT_OF_JOINS);
    return most;
  }

  private static void requireFewSets(LogicalPlan plan) {
    if (plan instanceof Aggregate) {
      double sets = 1;
      Iterator groups = ((Aggregate) plan).groupingExpressions().iterator();
      while (groups.hasNext()) sets *= sets(groups.next());
      if (sets > LIMIT_OF_SETS) {
        throw new IllegalArgumentException(REFUSED_SETS + (long) LIMIT_OF_SETS);
      }
    }
    Iterator children = plan.children().iterator();
    while (children.hasNext()) requireFewSets((LogicalPlan) children.next());
  }

  /** Returns by how much an element of GROUP BY multiplies the grouping sets. */
  private static double sets(Object group) {
    if (group instanceof Cube) return Math.pow(2, ((Cube) group).groupingSetIndexes().size());
    if (group instanceof Rollup) return 1 + ((Rollup) group).groupingSetIndexes().size();
    if (group instanceof GroupingSets) return ((GroupingSets) group).groupingSetIndexes().size();
    return 1;
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
