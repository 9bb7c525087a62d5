package tidegate;

import org.apache.spark.sql.catalyst.expressions.ArrayRepeat;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Sequence;
import org.apache.spark.sql.catalyst.expressions.StringLPad;
import org.apache.spark.sql.catalyst.expressions.StringRPad;
import org.apache.spark.sql.catalyst.expressions.StringRepeat;
import org.apache.spark.sql.catalyst.expressions.StringSpace;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Refuses functions whose constant arguments ask for a value that takes much of the heap. The JVM
 * would be out of memory at once, and end for all users.
 */
public class LargeValues extends scala.runtime.AbstractFunction1 {
  /** Begins the message of what is thrown; see errors.py. */
  static final String REFUSED = "tidegate.value:";
  private static final double SHARE = 1.0 / 8;
  private final double limit = SHARE * Runtime.getRuntime().maxMemory();

  public Object apply(Object session) {
    return new Rule();
  }

  class Rule extends scala.runtime.AbstractFunction1 {
    public Object apply(Object plan) {
      check((LogicalPlan) plan);
      return scala.runtime.BoxedUnit.UNIT;
    }
  }

  private void check(LogicalPlan plan) {
    scala.collection.Iterator expressions = plan.expressions().iterator();
    while (expressions.hasNext()) check((Expression) expressions.next());
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) check((LogicalPlan) children.next());
    scala.collection.Iterator subqueries = plan.subqueries().iterator();
    while (subqueries.hasNext()) check((LogicalPlan) subqueries.next());
  }

  /** The arguments come first, so that they are small when they are evaluated. */
  private void check(Expression node) {
    scala.collection.Iterator children = node.children().iterator();
    while (children.hasNext()) check((Expression) children.next());
    double bytes = size(node);
    if (bytes <= limit) return;
    throw new IllegalArgumentException(
        REFUSED + node.prettyName() + "\u001f" + (long) bytes + "\u001f" + (long) limit);
  }

  /** Returns the bytes of the value of a function as far as its constant arguments say so. */
  private static double size(Expression node) {
    if (node instanceof StringRepeat) return length(child(node, 0)) * number(child(node, 1), 0);
    if (node instanceof StringSpace) return number(child(node, 0), 0);
    if (node instanceof StringLPad || node instanceof StringRPad) return number(child(node, 1), 0);
    if (node instanceof ArrayRepeat) return 8 * number(child(node, 1), 0);
    if (node instanceof Sequence) {
      double first = number(child(node, 0), Double.NaN);
      double last = number(child(node, 1), Double.NaN);
      double step = node.children().size() < 3 ? 1 : number(child(node, 2), Double.NaN);
      double bytes = 8 * Math.abs(last - first) / Math.abs(step);
      return Double.isNaN(bytes) || Double.isInfinite(bytes) ? 0 : bytes;
    }
    return 0;
  }

  private static Expression child(Expression node, int index) {
    return (Expression) node.children().apply(index);
  }

  private static double number(Expression node, double otherwise) {
    Object value = value(node);
    return value instanceof Number ? ((Number) value).doubleValue() : otherwise;
  }

  private static double length(Expression node) {
    Object value = value(node);
    if (value instanceof UTF8String) return ((UTF8String) value).numBytes();
    return value instanceof byte[] ? ((byte[]) value).length : 1;
  }

  private static Object value(Expression node) {
    try {
      return node.resolved() && node.foldable() ? node.eval(null) : null;
    } catch (RuntimeException failed) {
      return null; // the query fails with it when it runs
    }
  }
}
