package tidegate;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedArgumentExpression;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedDataSource;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileFormat$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.StructType$;
import org.apache.spark.unsafe.Platform;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The table functions read_files and read_kafka, which become what DataFrameReader.load makes: a data
 * source that the analysis resolves, and that the check of plans sees with its paths and options.
 */
public class TableReaders {
  /**
   * Return the builder of a function, from its arguments to a relation.
   *
   * @param source the data source, or empty if the parameter format names it.
   * @param formats what that parameter can be.
   * @param renamed options of the source by parameters, in lower case, that have another name.
   */
  public Object builder(String source, List formats, Map renamed) {
    return new Builder(source, new HashSet(formats), new HashMap(renamed));
  }

  /** Return what DESCRIBE FUNCTION says. */
  public ExpressionInfo information(String name, String usage) {
    return new ExpressionInfo(
        "tidegate.TableReaders", null, name, usage, "", "", "", "table_funcs", "", "", "built-in");
  }

  /** The parameter, in lower case, with which a directory that does not exist has no rows. */
  static final String MISSING = "allowmissingpath";

  static class Builder extends scala.runtime.AbstractFunction1 {
    private final String source;
    private final Set formats;
    private final Map renamed;

    Builder(String source, Set formats, Map renamed) {
      this.source = source;
      this.formats = formats;
      this.renamed = renamed;
    }

    public Object apply(Object arguments) {
      Map options = new HashMap();
      String format = source;
      String path = null;
      scala.Option schema = scala.Option.empty();
      boolean mayBeMissing = false;
      for (Object one : CollectionConverters.asJava((scala.collection.Seq) arguments)) {
        Expression argument = (Expression) one;
        String key = "path";
        if (argument instanceof NamedArgumentExpression) {
          key = ((NamedArgumentExpression) argument).key();
          argument = ((NamedArgumentExpression) argument).value();
        }
        String value = literal(argument);
        String lower = key.toLowerCase(Locale.ROOT);
        if (lower.equals("path")) path = value;
        else if (lower.equals("format")) format = value.toLowerCase(Locale.ROOT);
        else if (lower.equals("schema")) schema = scala.Option.apply(columns(value));
        else if (lower.equals(MISSING)) mayBeMissing = value.equalsIgnoreCase("true");
        else options.put(renamed.containsKey(lower) ? renamed.get(lower) : key, value);
      }
      if (source.isEmpty() && !formats.contains(format)) {
        fail("DATA_SOURCE_NOT_FOUND", "provider", format);
      }
      if (format.equals("csv") && !schema.isDefined() && !options.containsKey("inferSchema")) {
        options.put("inferSchema", "true");
      }
      if (mayBeMissing && schema.isDefined() && path != null && isMissing(path)) {
        return empty((StructType) schema.get());
      }
      List paths = path == null ? Collections.emptyList() : Collections.singletonList(path);
      LogicalPlan records = new UnresolvedDataSource(
          format,
          schema,
          CaseInsensitiveMap$.MODULE$.apply(
              scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options))),
          false,
          CollectionConverters.asScala(paths).toSeq());
      return decoded(records, options);
    }

    /** Adds columns with the fields of keys and values whose schemas are in a registry. */
    private static LogicalPlan decoded(LogicalPlan records, Map options) {
      ParserInterface parser = SparkSession.active().sessionState().sqlParser();
      List columns = new ArrayList();
      try {
        for (Object one : new Registry().columns(options, true)) {
          columns.add(parser.parseExpression((String) one));
        }
        if (columns.isEmpty()) return records;
        columns.add(0, parser.parseExpression("*"));
      } catch (Exception failed) {
        Platform.throwException(failed);
      }
      return new Project(CollectionConverters.asScala(columns).toSeq(), records);
    }

    private static boolean isMissing(String text) {
      Path path = new Path(text);
      try {
        FileStatus[] found =
            path.getFileSystem(SparkSession.active().sparkContext().hadoopConfiguration())
                .globStatus(path);
        return found == null || found.length == 0;
      } catch (IOException unknown) {
        return false; // Spark reports it
      }
    }

    /** Returns no rows, with the hidden column that files have. */
    private static LogicalPlan empty(StructType schema) {
      StructType metadata =
          StructType$.MODULE$.apply(FileFormat$.MODULE$.BASE_METADATA_FIELDS());
      StructType columns = schema.add(FileFormat$.MODULE$.METADATA_NAME(), metadata);
      return new LocalRelation(
          DataTypeUtils.toAttributes(columns), CollectionConverters.asScala(new ArrayList()).toSeq(),
          false, scala.Option.empty());
    }

    private static StructType columns(String text) {
      // Spark's readers know no lengths of texts.
      return CharVarcharUtils.replaceCharVarcharWithStringInSchema(
          StructType$.MODULE$.fromDDL(text));
    }

    private static String literal(Expression argument) {
      if (argument instanceof Literal && ((Literal) argument).value() != null) {
        return ((Literal) argument).value().toString();
      }
      fail("UNSUPPORTED_EXPR_FOR_PARAMETER", "invalidExprSql", argument.sql());
      return null;
    }

    private static void fail(String condition, String parameter, String value) {
      Map parameters = Collections.singletonMap(parameter, value);
      Platform.throwException(
          new AnalysisException(
              condition,
              (scala.collection.immutable.Map)
                  scala.collection.immutable.Map$.MODULE$.from(
                      CollectionConverters.asScala(parameters))));
    }
  }
}
