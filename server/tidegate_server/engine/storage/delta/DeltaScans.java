package tidegate;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReplaceData;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.delta.FallbackToV1DeltaRelation;
import org.apache.spark.sql.delta.stats.PrepareDeltaScan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads Delta tables in statements that write into tables of other formats: prepares their scans.
 *
 * <p>Delta prepares none in the plans of writes, since its own are planned a second time. Others are
 * not, and a table with deletion vectors cannot be read without.
 */
public class DeltaScans extends scala.runtime.AbstractFunction1 {
  public Object apply(Object session) {
    return new Preparation((SparkSession) session);
  }

  /** Returns what builds {@link Reading}, for each session. */
  public Object reading() {
    return new scala.runtime.AbstractFunction1() {
      public Object apply(Object session) {
        return new Reading();
      }
    };
  }

  /**
   * Makes Delta tables readable in the subquery that Spark derives from a MERGE into a table of
   * another format, to read only the files with rows that match. It is derived from the source before
   * Delta replaces its relation, which itself cannot be read.
   */
  static class Reading extends Rule {
    public TreeNode apply(TreeNode plan) {
      return plan instanceof Subquery ? replaceRelations(plan) : plan;
    }

    static TreeNode replaceRelations(TreeNode node) {
      if (node instanceof DataSourceV2Relation) {
        DataSourceV2Relation relation = (DataSourceV2Relation) node;
        scala.Option readable = FallbackToV1DeltaRelation.unapply(relation);
        return readable.isDefined() ? (TreeNode) readable.get() : node;
      }
      return mapChildren(node, new scala.runtime.AbstractFunction1() {
        public Object apply(Object child) {
          return replaceRelations((TreeNode) child);
        }
      });
    }
  }

  static class Preparation extends Rule {
    private final SparkSession session;

    Preparation(SparkSession session) {
      this.session = session;
    }

    public TreeNode apply(TreeNode plan) {
      if (!(plan instanceof V2WriteCommand)) return plan;
      V2WriteCommand write = (V2WriteCommand) plan;
      boolean plannedAgain = write.table() instanceof DataSourceV2Relation
          && ((DataSourceV2Relation) write.table()).table().capabilities()
              .contains(TableCapability.V1_BATCH_WRITE);
      if (plannedAgain) return plan;
      LogicalPlan prepared = prepare(write.query());
      TreeNode changed = prepared == write.query() ? plan : plan.withNewChildren(
          CollectionConverters.asScala(Collections.singletonList(prepared)).toIndexedSeq());
      if (!(changed instanceof ReplaceData)) return changed;
      return ((ReplaceData) changed).mapExpressions(new scala.runtime.AbstractFunction1() {
        public Object apply(Object expression) {
          return prepareSubqueries((TreeNode) expression);
        }
      });
    }

    private LogicalPlan prepare(LogicalPlan query) {
      return new PrepareDeltaScan(session).apply(query);
    }

    /** Prepares the scans in the filter of a MERGE, whose subqueries are planned on their own. */
    private TreeNode prepareSubqueries(TreeNode expression) {
      TreeNode found = mapChildren(expression, new scala.runtime.AbstractFunction1() {
        public Object apply(Object child) {
          return prepareSubqueries((TreeNode) child);
        }
      });
      if (!(found instanceof SubqueryExpression)) return found;
      SubqueryExpression subquery = (SubqueryExpression) found;
      LogicalPlan prepared = prepare((LogicalPlan) subquery.plan());
      return prepared == subquery.plan() ? found : subquery.withNewPlan(prepared);
    }
  }

  static TreeNode mapChildren(TreeNode node, scala.Function1 change) {
    List before = CollectionConverters.asJava(node.children());
    List after = new ArrayList();
    for (Object child : before) after.add(change.apply(child));
    return after.equals(before) ? node : node.withNewChildren(
        CollectionConverters.asScala(after).toIndexedSeq());
  }
}
