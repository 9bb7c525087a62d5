package tidegate;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import scala.collection.Iterator;

/**
 * Describes the expressions of a list in one call from Python, which otherwise takes several for
 * each of hundreds of columns. See catalyst.py for the fields.
 */
public class Expressions {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Returns a JSON array with one array of fields for each expression. */
  public String describe(scala.collection.Iterable expressions) throws JsonProcessingException {
    List described = new ArrayList();
    for (Iterator each = expressions.iterator(); each.hasNext(); ) {
      described.add(fields((Expression) each.next()));
    }
    return JSON.writeValueAsString(described);
  }

  private static List fields(Expression expression) {
    Expression inner = expression instanceof Alias ? ((Alias) expression).child() : expression;
    List references = new ArrayList();
    for (Iterator each = expression.references().iterator(); each.hasNext(); ) {
      references.add(id((Attribute) each.next()));
    }
    List fields = new ArrayList();
    fields.add(expression instanceof NamedExpression ? id((NamedExpression) expression) : null);
    fields.add(inner instanceof AttributeReference ? id((AttributeReference) inner) : null);
    fields.add(references);
    if (expression instanceof AttributeReference) {
      AttributeReference attribute = (AttributeReference) expression;
      fields.add(attribute.name());
      fields.add(attribute.dataType().catalogString());
      fields.add(attribute.dataType().typeName());
    }
    return fields;
  }

  private static Long id(NamedExpression named) {
    return Long.valueOf(named.exprId().id());
  }
}
