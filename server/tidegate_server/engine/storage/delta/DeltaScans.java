package tidegate;

import java.util.Collections;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.delta.stats.PrepareDeltaScan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;

/**
 * Prepares scans of Delta tables in statements that write into tables of other formats.
 *
 * <p>Delta prepares none in the plans of writes, since its own are planned a second time. Others are
 * not, and a table with deletion vectors cannot be read without.
 */
public class DeltaScans extends scala.runtime.AbstractFunction1 {
  public Object apply(Object session) {
    return new Preparation((SparkSession) session);
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
      LogicalPlan prepared = new PrepareDeltaScan(session).apply(write.query());
      return prepared == write.query() ? plan : ((LogicalPlan) plan).withNewChildren(
          scala.jdk.javaapi.CollectionConverters.asScala(Collections.singletonList(prepared))
              .toIndexedSeq());
    }
  }
}
