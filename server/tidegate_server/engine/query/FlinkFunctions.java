package tidegate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.DateFormatClass;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Explode;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Inline;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.ParseToTimestamp;
import org.apache.spark.sql.catalyst.expressions.PreciseTimestampConversion;
import org.apache.spark.sql.catalyst.expressions.Sequence;
import org.apache.spark.sql.catalyst.expressions.TimestampAdd;
import org.apache.spark.sql.catalyst.expressions.TimestampDiff;
import org.apache.spark.sql.catalyst.expressions.TruncTimestamp;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.errors.QueryCompilationErrors$;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.Platform;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The functions that translated Flink SQL calls where the meaning depends on the types of operands.
 *
 * Each is replaced during analysis by expressions of Spark's own, so that plans, rights and
 * incremental refresh see nothing new. Types without a time zone are computed in UTC, where no
 * local time is missing or repeated.
 */
public class FlinkFunctions {
  /** Most nodes of a call's arguments, which may occur several times in its expression. */
  static final int LARGEST = 20000;
  static final DataType NTZ = DataTypes.TimestampNTZType;
  static final DataType LTZ = DataTypes.TimestampType;
  static final DataType LONG = DataTypes.LongType;
  static final DataType DOUBLE = DataTypes.DoubleType;
  static final scala.Option UTC = scala.Option.apply("UTC");
  static final scala.Option NONE = scala.Option.empty();

  /** Return the builder of a function, from its arguments to an expression. */
  public Object builder(String name, int least, int most) {
    return new Builder(name, least, most);
  }

  /** Return what DESCRIBE FUNCTION says. */
  public ExpressionInfo information(String name, String usage) {
    return new ExpressionInfo(
        "tidegate.FlinkFunctions", null, name, usage, "", "", "", "misc_funcs", "", "", "built-in");
  }

  static class Builder extends scala.runtime.AbstractFunction1 {
    private final String name;
    private final int least;
    private final int most;

    Builder(String name, int least, int most) {
      this.name = name;
      this.least = least;
      this.most = most;
    }

    public Object apply(Object arguments) {
      List given = CollectionConverters.asJava((scala.collection.Seq) arguments);
      if (given.size() < least || given.size() > most) {
        List counts = new ArrayList();
        for (int count = least; count <= most; count++) counts.add(Integer.valueOf(count));
        refuse(counts, given.size());
      }
      Expression[] a = new Expression[given.size()];
      int nodes = 0;
      for (int i = 0; i < a.length; i++) {
        a[i] = (Expression) given.get(i);
        nodes = count(a[i], nodes);
      }
      if (nodes > LARGEST) {
        Platform.throwException(
            new AnalysisException(
                "FAILED_TO_PARSE_TOO_COMPLEX", scala.collection.immutable.Map$.MODULE$.empty()));
      }
      return build(a);
    }

    /** Count the nodes of an expression, up to one more than allowed. */
    private static int count(Expression x, int before) {
      int nodes = before + 1;
      for (Object child : CollectionConverters.asJava(x.children())) {
        if (nodes > LARGEST) break;
        nodes = count((Expression) child, nodes);
      }
      return nodes;
    }

    /** Fail as Spark does for a wrong number of arguments. */
    private void refuse(List counts, int found) {
      scala.collection.immutable.Seq valid = CollectionConverters.asScala(counts).toSeq();
      QueryCompilationErrors$ errors = QueryCompilationErrors$.MODULE$;
      Platform.throwException(
          errors.wrongNumArgsError(
              name,
              valid,
              found,
              errors.wrongNumArgsError$default$4(),
              errors.wrongNumArgsError$default$5(),
              errors.wrongNumArgsError$default$6()));
    }

    private Expression build(Expression[] a) {
      if (name.equals("flink_divide")) return divide(a[0], a[1]);
      if (name.equals("flink_avg")) return average(a[0], a[1]);
      if (name.equals("flink_floor")) return a.length == 1 ? whole("floor", a[0]) : floor(a[0], a[1]);
      if (name.equals("flink_ceil")) return a.length == 1 ? whole("ceil", a[0]) : ceil(a[0], a[1]);
      if (name.equals("flink_truncate")) return truncate(a[0], a[1]);
      if (name.equals("flink_precision")) return precision(a[0], a[1]);
      if (name.equals("flink_window_start")) return start(a[0], a[1], a[2]);
      if (name.equals("flink_window_end")) return end(a[0], a[1], a[2]);
      if (name.equals("flink_window_time")) return time(a[0], a[1]);
      if (name.equals("flink_hop_starts")) return hops(a[0], a[1], a[2], a[3]);
      if (name.equals("flink_cumulate_ends")) return ends(a[0], a[1], a[2], a[3]);
      if (name.equals("flink_substring")) return substring(a);
      if (name.equals("flink_date_format")) return format(a[0], a[1]);
      if (name.equals("flink_timestampdiff")) return difference(a[0], a[1], a[2]);
      if (name.equals("flink_timestampadd")) return add(a[0], a[1], a[2]);
      if (name.equals("flink_to_timestamp")) return parse(a[0], a[1]);
      if (name.equals("flink_string")) return string(a[0]);
      if (name.equals("flink_unnest")) return unnest(a[0]);
      throw new IllegalArgumentException(name);
    }
  }

  // ---- numbers -------------------------------------------------------------------------------

  static Expression divide(Expression left, Expression right) {
    DataType a = left.dataType(), b = right.dataType();
    if (integral(a) && integral(b)) return cast(call("div", left, right), wider(a, b));
    if (!numeric(a) || !numeric(b)) return call("/", left, right);
    if (!approximate(a) && !approximate(b)) return call("/", exact(left), exact(right));
    boolean single =
        !(a instanceof DoubleType || b instanceof DoubleType)
            && !(a instanceof DecimalType || b instanceof DecimalType);
    DataType result = single ? DataTypes.FloatType : DOUBLE;
    Expression x = cast(cast(left, result), DOUBLE), y = cast(cast(right, result), DOUBLE);
    // Spark's ANSI mode fails where Java, and so Flink, has infinity or NaN.
    Expression byZero = call("*", x, literal(Double.valueOf(Double.POSITIVE_INFINITY)));
    return cast(call("if", call("=", y, literal(Double.valueOf(0))), byZero, call("/", x, y)), result);
  }

  static Expression average(Expression sum, Expression count) {
    DataType type = summed(sum);
    if (type == null) return call("/", sum, count);
    if (integral(type)) return cast(call("div", sum, count), type);
    if (type instanceof DecimalType) {
      int scale = ((DecimalType) type).scale();
      Expression quotient =
          call("/", cast(sum, decimal(38, scale)), cast(count, decimal(19, 0)));
      return cast(quotient, decimal(38, Math.max(6, scale)));
    }
    if (approximate(type)) return cast(call("/", sum, cast(count, DOUBLE)), type);
    return call("/", sum, count);
  }

  /** Return the type of what a sum adds, which is below a window in OVER. */
  static DataType summed(Expression found) {
    if (found instanceof Sum) return ((Sum) found).child().dataType();
    for (Object child : CollectionConverters.asJava(found.children())) {
      DataType type = summed((Expression) child);
      if (type != null) return type;
    }
    return null;
  }

  static Expression whole(String function, Expression x) {
    DataType type = x.dataType();
    if (!approximate(type)) return call(function, x);
    Expression large = call(">=", call("abs", x), literal(Double.valueOf(4503599627370496.0)));
    // Beyond 2^52 every number is whole; Spark's result would be a BIGINT.
    return call("if", large, x, cast(call(function, x), type));
  }

  static Expression truncate(Expression x, Expression digits) {
    DataType type = x.dataType();
    Expression number = approximate(type) ? cast(cast(x, DataTypes.StringType), decimal(38, 18)) : x;
    Expression down =
        call(
            "if",
            call("<", number, literal(Integer.valueOf(0))),
            call("ceil", number, digits),
            call("floor", number, digits));
    // The type of what is not coerced yet is not the final one.
    return type instanceof DecimalType ? down : new Cast(down, type, NONE);
  }

  // ---- date and time -------------------------------------------------------------------------

  static Expression floor(Expression x, Expression unit) {
    DataType type = x.dataType();
    String wanted = word(unit);
    if (type instanceof TimestampType && !wanted.equals("WEEK")) {
      return new TruncTimestamp(literal(wanted), x, NONE);
    }
    return cast(floorLocal(local(x), wanted), temporal(type));
  }

  static Expression ceil(Expression x, Expression unit) {
    DataType type = x.dataType();
    String wanted = word(unit);
    boolean duration =
        Arrays.asList(new String[] {"HOUR", "MINUTE", "SECOND", "MILLISECOND"}).contains(wanted);
    if (type instanceof TimestampType && duration) {
      Expression next = new TimestampAdd(wanted, literal(Long.valueOf(1)), x);
      return call(
          "if", call("=", floor(x, unit), x), x, new TruncTimestamp(literal(wanted), next, NONE));
    }
    Expression at = local(x);
    Expression next = new TimestampAdd(wanted, literal(Long.valueOf(1)), at);
    Expression up =
        call("if", call("=", floorLocal(at, wanted), at), at, floorLocal(next, wanted));
    return cast(up, temporal(type));
  }

  /** Flink's weeks begin on Sunday. */
  static Expression floorLocal(Expression at, String unit) {
    if (unit.equals("WEEK")) {
      Expression monday = truncated(shifted(at, 1), unit);
      return shifted(monday, -1);
    }
    return truncated(at, unit);
  }

  static Expression truncated(Expression at, String unit) {
    return new Cast(new TruncTimestamp(literal(unit), inUtc(at), UTC), NTZ, UTC);
  }

  static Expression shifted(Expression at, long days) {
    return new TimestampAdd("DAY", literal(Long.valueOf(days)), at);
  }

  static Expression precision(Expression x, Expression digits) {
    Expression at = x.dataType() instanceof TimestampType ? x : local(x);
    if (!(digits instanceof Literal) || !(((Literal) digits).value() instanceof Number)) {
      throw notConstant("digits", DataTypes.IntegerType);
    }
    long unit = (long) Math.pow(10, 6 - ((Number) ((Literal) digits).value()).intValue());
    Expression micros = micros(at);
    return moment(
        call("-", micros, call("pmod", micros, literal(Long.valueOf(unit)))), at.dataType());
  }

  static Expression format(Expression x, Expression pattern) {
    if (x.dataType() instanceof TimestampType) return call("date_format", x, pattern);
    return new DateFormatClass(inUtc(local(x)), pattern, UTC);
  }

  static Expression difference(Expression unit, Expression from, Expression to) {
    boolean instants =
        from.dataType() instanceof TimestampType || to.dataType() instanceof TimestampType;
    Expression a = instants ? cast(from, LTZ) : inUtc(local(from));
    Expression b = instants ? cast(to, LTZ) : inUtc(local(to));
    return cast(new TimestampDiff(word(unit), a, b, UTC), DataTypes.IntegerType);
  }

  static Expression add(Expression unit, Expression count, Expression x) {
    String wanted = word(unit);
    DataType type = x.dataType();
    Expression number = cast(count, LONG);
    if (type instanceof TimestampType) return new TimestampAdd(wanted, number, x);
    Expression sum = new TimestampAdd(wanted, number, local(x));
    boolean days =
        Arrays.asList(new String[] {"DAY", "WEEK", "MONTH", "QUARTER", "YEAR"}).contains(wanted);
    return type instanceof DateType && days ? cast(sum, type) : sum;
  }

  static Expression parse(Expression text, Expression pattern) {
    return new ParseToTimestamp(
        cast(text, DataTypes.StringType), scala.Option.apply(pattern), NTZ, NONE, false);
  }

  // ---- windows -------------------------------------------------------------------------------

  static Expression start(Expression x, Expression size, Expression offset) {
    Expression at = micros(local(x));
    return moment(aligned(at, length(size), length(offset)), NTZ);
  }

  static Expression end(Expression x, Expression size, Expression offset) {
    return after(start(x, size, offset), length(size));
  }

  /** One millisecond before the end, of the type of the time attribute. */
  static Expression time(Expression x, Expression end) {
    Expression last = after(cast(end, NTZ), -1000);
    return x.dataType() instanceof TimestampType ? cast(last, LTZ) : last;
  }

  static Expression hops(Expression x, Expression slide, Expression size, Expression offset) {
    Expression at = micros(local(x));
    Expression last = aligned(at, length(slide), length(offset));
    Expression before =
        aligned(call("-", at, literal(Long.valueOf(length(size)))), length(slide), length(offset));
    Expression first = call("+", before, literal(Long.valueOf(length(slide))));
    return sequence(first, last, slide);
  }

  static Expression ends(Expression x, Expression step, Expression most, Expression offset) {
    Expression at = micros(local(x));
    Expression before = aligned(at, length(step), length(offset));
    Expression first = call("+", before, literal(Long.valueOf(length(step))));
    Expression last =
        call("+", aligned(at, length(most), length(offset)), literal(Long.valueOf(length(most))));
    return sequence(first, last, step);
  }

  static Expression sequence(Expression first, Expression last, Expression step) {
    return new Sequence(moment(first, NTZ), moment(last, NTZ), scala.Option.apply(step), NONE);
  }

  /** The largest multiple of a size, counted from an offset, that is not after a time. */
  static Expression aligned(Expression at, long size, long offset) {
    Expression since = offset == 0 ? at : call("-", at, literal(Long.valueOf(offset)));
    return call("-", at, call("pmod", since, literal(Long.valueOf(size))));
  }

  static Expression after(Expression at, long micros) {
    return moment(call("+", micros(at), literal(Long.valueOf(micros))), NTZ);
  }

  /** The microseconds of an interval of days to seconds. */
  static long length(Expression interval) {
    if (interval instanceof Literal && ((Literal) interval).value() instanceof Long) {
      return ((Long) ((Literal) interval).value()).longValue();
    }
    throw notConstant("interval", DataTypes.createDayTimeIntervalType());
  }

  static RuntimeException notConstant(String what, DataType type) {
    Platform.throwException(
        QueryCompilationErrors$.MODULE$.nonFoldableArgumentError("flink_", what, type));
    return new IllegalStateException(what);
  }

  // ---- strings and collections ---------------------------------------------------------------

  static Expression substring(Expression[] a) {
    Expression text = a[0], from = a[1];
    Expression part = a.length == 2 ? call("substring", text, from) : call("substring", text, from, a[2]);
    Expression early = call("<", from, call("negative", call("char_length", text)));
    Expression found = call("if", early, literal(""), part);
    if (a.length == 2) return found;
    Expression negative = call("<", a[2], literal(Integer.valueOf(0)));
    return call("if", negative, cast(literal(null), DataTypes.StringType), found);
  }

  static Expression string(Expression x) {
    Expression text = cast(x, DataTypes.StringType);
    return x.dataType() instanceof BooleanType ? call("upper", text) : text;
  }

  static Expression unnest(Expression x) {
    DataType type = x.dataType();
    boolean rows =
        type instanceof ArrayType && ((ArrayType) type).elementType() instanceof StructType;
    return rows ? (Expression) new Inline(x) : (Expression) new Explode(x);
  }

  // ---- helpers -------------------------------------------------------------------------------

  static Expression call(String name, Expression a) {
    return built(name, new Expression[] {a});
  }

  static Expression call(String name, Expression a, Expression b) {
    return built(name, new Expression[] {a, b});
  }

  static Expression call(String name, Expression a, Expression b, Expression c) {
    return built(name, new Expression[] {a, b, c});
  }

  /** Build an expression as Spark does for a call of its own function. */
  static Expression built(String name, Expression[] arguments) {
    scala.Function1 builder =
        (scala.Function1)
            FunctionRegistry$.MODULE$
                .builtin()
                .lookupFunctionBuilder(new FunctionIdentifier(name))
                .get();
    return (Expression)
        builder.apply(CollectionConverters.asScala(Arrays.asList(arguments)).toSeq());
  }

  static Expression cast(Expression x, DataType type) {
    return x.dataType().equals(type) ? x : new Cast(x, type, NONE);
  }

  static Expression literal(Object value) {
    return Literal$.MODULE$.apply(value);
  }

  static String word(Expression unit) {
    if (!(unit instanceof Literal) || ((Literal) unit).value() == null) {
      throw notConstant("unit", DataTypes.StringType);
    }
    return ((Literal) unit).value().toString().toUpperCase(Locale.ROOT);
  }

  /** A time without a zone: of a time with a zone the session's local time. */
  static Expression local(Expression x) {
    return cast(x, NTZ);
  }

  static Expression inUtc(Expression local) {
    return new Cast(local, LTZ, UTC);
  }

  static Expression micros(Expression at) {
    return new PreciseTimestampConversion(at, at.dataType(), LONG);
  }

  static Expression moment(Expression micros, DataType type) {
    return new PreciseTimestampConversion(micros, LONG, type);
  }

  static DataType temporal(DataType type) {
    return type instanceof DateType || type instanceof TimestampType ? type : NTZ;
  }

  static boolean integral(DataType type) {
    return rank(type) > 0;
  }

  static int rank(DataType type) {
    if (type instanceof ByteType) return 1;
    if (type instanceof ShortType) return 2;
    if (type instanceof IntegerType) return 3;
    return type instanceof LongType ? 4 : 0;
  }

  static DataType wider(DataType a, DataType b) {
    return rank(a) > rank(b) ? a : b;
  }

  static boolean approximate(DataType type) {
    return type instanceof FloatType || type instanceof DoubleType;
  }

  static boolean numeric(DataType type) {
    return integral(type) || approximate(type) || type instanceof DecimalType;
  }

  /** A number as the decimal that Flink makes of its type. */
  static Expression exact(Expression x) {
    int rank = rank(x.dataType());
    if (rank == 0) return x;
    return cast(x, decimal(rank == 1 ? 3 : rank == 2 ? 5 : rank == 3 ? 10 : 19, 0));
  }

  static DataType decimal(int precision, int scale) {
    return DataTypes.createDecimalType(precision, scale);
  }
}
