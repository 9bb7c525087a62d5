package tidegate;

import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Has operators with large expressions compiled as many methods.
 *
 * <p>Whole-stage code generation writes all expressions of an operator into one method, whose size
 * makes the compiler take quadratic time and memory: 20,000 branches of CASE fill a heap of 2 GB,
 * and nothing can cancel that. The JVM does not compile methods of more than 8,000 bytes of code
 * either, so a sum of 100 products already takes more than twice as long. An operator on its own
 * splits its code, and Spark leaves one on its own if an expression in it has no generated code.
 */
public class CodeSize extends AbstractFunction1 {
  /** Most nodes of expressions in one method: with some 500, both ways take equally long. */
  private static final int LIMIT = 1000;

  public Object apply(Object session) {
    return new ColumnarRule() {
      public Rule postColumnarTransitions() {
        return new Separation();
      }
    };
  }

  static class Separation extends Rule {
    public TreeNode apply(TreeNode plan) {
      return separated((SparkPlan) plan);
    }

    private static SparkPlan separated(SparkPlan plan) {
      SparkPlan result = (SparkPlan) plan.mapChildren(new AbstractFunction1() {
        public Object apply(Object child) {
          return separated((SparkPlan) child);
        }
      });
      return result instanceof CodegenSupport && nodes(result.expressions()) > LIMIT
          ? (SparkPlan) result.mapExpressions(new Mark())
          : result;
    }

    private static int nodes(Seq expressions) {
      int sum = 0;
      Iterator each = expressions.iterator();
      while (each.hasNext()) sum += 1 + nodes(((Expression) each.next()).children());
      return sum;
    }
  }

  /**
   * Has one value that is not a constant computed without generated code, as the body of a function
   * that has no parameters.
   */
  static class Mark extends AbstractFunction1 {
    private boolean made;

    /** Operators rely on the class of an expression, so that only what is in it is replaced. */
    public Object apply(Object expression) {
      return ((Expression) expression).mapChildren(new AbstractFunction1() {
        public Object apply(Object child) {
          return marked((Expression) child);
        }
      });
    }

    private Expression marked(Expression expression) {
      if (made) return expression;
      if (expression instanceof AttributeReference || expression instanceof Nondeterministic) {
        made = true;
        return new LambdaFunction(expression, (Seq) Nil$.MODULE$, true);
      }
      return (Expression) apply(expression);
    }
  }
}
