package tidegate;

import org.apache.spark.sql.catalyst.SqlScriptingContextManager$;
import org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier;
import org.apache.spark.sql.catalyst.catalog.VariableDefinition;
import org.apache.spark.sql.catalyst.catalog.VariableManager;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.CommandExecutionMode;
import org.apache.spark.sql.scripting.SqlScriptingContextManagerImpl;
import org.apache.spark.sql.scripting.SqlScriptingExecutionContext;
import org.apache.spark.sql.scripting.SqlScriptingExecutionFrame;
import org.apache.spark.sql.scripting.SqlScriptingFrameType$;
import org.apache.spark.sql.scripting.TriggerToExceptionHandlerMap$;
import org.apache.spark.sql.types.DataType;

/**
 * Analyzes the statements of a script without running it: they see variables of the declared types,
 * without values, in the scopes in which Spark has them when it runs the script.
 */
public class ScriptScopes {
  /** Begins a script; returns its scopes. */
  public Object begin() {
    SqlScriptingExecutionContext scopes = new SqlScriptingExecutionContext();
    Object script = SqlScriptingFrameType$.MODULE$.SQL_SCRIPT();
    scopes.frames().append(
        new SqlScriptingExecutionFrame(
            null, (scala.Enumeration.Value) script, scala.Option.apply(null)));
    return scopes;
  }

  public void enter(Object scopes, String label) {
    ((SqlScriptingExecutionContext) scopes)
        .enterScope(label, TriggerToExceptionHandlerMap$.MODULE$.createEmptyMap());
  }

  public void exit(Object scopes, String label) {
    ((SqlScriptingExecutionContext) scopes).exitScope(label);
  }

  /** Declares a variable in the innermost scope. */
  public void declare(Object scopes, String name, DataType type) {
    VariableManager variables = manager(scopes).getVariableManager();
    ResolvedIdentifier qualified = variables.qualify(name);
    scala.collection.immutable.Seq parts =
        scala.collection.immutable.Nil$.MODULE$.prepended(name);
    VariableDefinition variable =
        new VariableDefinition(qualified.identifier(), "NULL", new Literal(null, type));
    variables.create(parts, variable, true);
  }

  /** Returns an analyzed plan, without running the commands in it. */
  public LogicalPlan analyze(Object scopes, final SparkSession session, final LogicalPlan plan) {
    return (LogicalPlan)
        SqlScriptingContextManager$.MODULE$.create(manager(scopes)).runWith(
            new scala.runtime.AbstractFunction0() {
              public Object apply() {
                return session
                    .sessionState()
                    .executePlan(plan, CommandExecutionMode.SKIP())
                    .analyzed();
              }
            });
  }

  private static SqlScriptingContextManagerImpl manager(Object scopes) {
    return new SqlScriptingContextManagerImpl((SqlScriptingExecutionContext) scopes);
  }
}
