package tidegate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.JsonProperties;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.StructType$;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * A schema registry with the interface of Confluent's, and records that begin with the id of their
 * schema: a zero byte, four bytes of the id, and a value in Avro's binary encoding.
 *
 * <p>A subject's schemas are asked for when a query is analyzed. Records are then decoded by Spark
 * alone, each with the schema that it was written with.
 */
public class Registry extends scala.runtime.AbstractFunction3 {
  /** Before the URL and the reason, in messages of exceptions. */
  static final String UNUSABLE = "tidegate.registry:";
  static final String FIELD = "\u001f";
  static final String[] PARTS = new String[] {"key", "value"};
  static final int SECONDS = 10;
  static final ObjectMapper JSON = new ObjectMapper();
  /** What registries said of the versions of subjects. */
  static final Map versions = new ConcurrentHashMap();
  static final HttpClient http =
      HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(SECONDS)).build();

  /**
   * Returns SQL for the struct in a binary column.
   *
   * @param subjects the names of subjects with the schemas of the column, with ; between them.
   * @param columns the fields of the struct as DDL.
   */
  public String decoded(String column, String url, String subjects, String columns)
      throws Exception {
    StructType wanted = fields(columns);
    String type = wanted.asNullable().sql();
    String id = "conv(hex(substring(`" + column + "`, 2, 4)), 16, 10)";
    StringBuilder sql = new StringBuilder();
    sql.append("CASE WHEN `").append(column).append("` IS NULL THEN NULL WHEN length(`")
        .append(column).append("`) < 5 OR substring(`").append(column)
        .append("`, 1, 1) <> X'00' THEN ").append(failure(
            "'the " + column + " of a record does not begin with the id of a schema'", type));
    String[] names = subjects.split(";");
    for (int i = 0; i < names.length; i++) {
      for (Object one : schemas(url, names[i].trim()).entrySet()) {
        Map.Entry entry = (Map.Entry) one;
        sql.append(" WHEN ").append(id).append(" = '").append(entry.getKey()).append("' THEN ");
        if (entry.getValue() instanceof String) {
          sql.append(failure(literal((String) entry.getValue()), type));
          continue;
        }
        Schema written = (Schema) entry.getValue();
        Schema read = new Reader().merged(wanted, written);
        sql.append("CAST(from_avro(substring(`").append(column).append("`, 6), ")
            .append(literal(written.toString())).append(", map('mode', 'FAILFAST', 'avroSchema', ")
            .append(literal(read.toString())).append(")) AS ").append(type).append(")");
      }
    }
    String unknown = "concat('the schema ', " + id + ", ' of a record is none of the subject ', "
        + literal(subjects) + ")";
    return sql.append(" ELSE ").append(failure(unknown, type)).append(" END").toString();
  }

  /**
   * Returns the fields of the newest schema of a subject: their names, types in SQL, and comments,
   * which may be null. Null if there is no such subject, or its schema is no record of Avro.
   */
  public List fields(String url, String subject) throws Exception {
    JsonNode said = ask(url, request(url, subject, "/latest").GET(), true);
    Object newest = said == null ? null : schema(said);
    if (!(newest instanceof Schema)) return null;
    Schema record = (Schema) newest;
    if (record.getType() != Schema.Type.RECORD) return null;
    StructType columns = (StructType)
        org.apache.spark.sql.avro.SchemaConverters$.MODULE$.toSqlType(record).dataType();
    List found = new ArrayList();
    for (int i = 0; i < columns.length(); i++) {
      Schema.Field field = (Schema.Field) record.getFields().get(i);
      found.add(new String[] {
          field.name(), columns.apply(i).dataType().sql(), field.doc()});
    }
    return found;
  }

  /**
   * Returns SQL for the columns that the parameters of read_kafka add to records.
   *
   * @param asked whether the registry is asked; otherwise the columns have their types, and NULL.
   */
  public List columns(Map parameters, boolean asked) throws Exception {
    Map given = new HashMap();
    for (Object one : parameters.entrySet()) {
      Map.Entry entry = (Map.Entry) one;
      given.put(((String) entry.getKey()).toLowerCase(Locale.ROOT), entry.getValue());
    }
    List found = new ArrayList();
    for (int i = 0; i < PARTS.length; i++) {
      String url = (String) given.get(PARTS[i] + "schemaregistry");
      String subjects = (String) given.get(PARTS[i] + "subject");
      String columns = (String) given.get(PARTS[i] + "schema");
      if (url == null && subjects == null && columns == null) continue;
      if (url == null || subjects == null || columns == null) {
        String names = PARTS[i] + "SchemaRegistry, " + PARTS[i] + "Subject and " + PARTS[i];
        throw unusable(String.valueOf(url), names + "Schema belong together");
      }
      String sql = asked ? decoded(PARTS[i], url, subjects, columns)
          : "CAST(NULL AS " + fields(columns).asNullable().sql() + ")";
      found.add(sql + " AS " + PARTS[i] + "_fields");
    }
    return found;
  }

  /** Registers a schema, by URL and subject, and returns what records with it begin with as SQL. */
  public Object apply(Object url, Object subject, Object schema) {
    try {
      return prefix((String) url, (String) subject, (String) schema);
    } catch (IOException failed) {
      throw unusable((String) url, failed.toString());
    }
  }

  private String prefix(String url, String subject, String schema) throws IOException {
    Map body = new LinkedHashMap();
    body.put("schema", schema);
    HttpRequest.Builder request = request(url, subject, "")
        .header("Content-Type", "application/vnd.schemaregistry.v1+json")
        .POST(HttpRequest.BodyPublishers.ofString(JSON.writeValueAsString(body)));
    JsonNode said = ask(url, request, false);
    if (!at(said, "id").isInt()) throw unusable(url, "it returned no id for a schema");
    return "X'00" + String.format("%08X", new Object[] {Integer.valueOf(at(said, "id").asInt())})
        + "'";
  }

  private static StructType fields(String columns) {
    return CharVarcharUtils.replaceCharVarcharWithStringInSchema(
        StructType$.MODULE$.fromDDL(columns));
  }

  private static String failure(String message, String type) {
    return "CAST(raise_error(" + message + ") AS " + type + ")";
  }

  /** Returns a text as a literal of SQL without quotes, backslashes and variables in it. */
  private static String literal(String text) {
    StringBuilder out = new StringBuilder("'");
    for (int i = 0; i < text.length(); i++) {
      char letter = text.charAt(i);
      if (letter == '\\' && i + 1 < text.length()) {
        letter = text.charAt(++i);
        if (letter == 'u') {
          out.append("\\\\u");
          continue;
        }
        int at = "bfnrt".indexOf(letter);
        if (at >= 0) letter = "\b\f\n\r\t".charAt(at);
        escape(out, letter);
      } else if (letter == '\'' || letter == '\\' || letter == '$' || letter < ' ') {
        escape(out, letter);
      } else {
        out.append(letter);
      }
    }
    return out.append('\'').toString();
  }

  /** Adds a letter as JSON in a literal of SQL. */
  private static void escape(StringBuilder out, char letter) {
    out.append("\\\\u").append(String.format("%04x", new Object[] {Integer.valueOf(letter)}));
  }

  // ---- the registry ----------------------------------------------------------------------------

  /** Returns the schemas of a subject by their ids; a text says why it is none that is read. */
  private static Map schemas(String url, String subject) throws Exception {
    Map found = new LinkedHashMap();
    JsonNode all = ask(url, request(url, subject, "?deleted=true").GET(), true);
    if (all == null) return found; // nothing was registered yet
    Map known = (Map) versions.get(url + FIELD + subject);
    if (known == null) known = new ConcurrentHashMap();
    // The last one first: if it is another one, the subject was deleted and created again.
    for (int i = all.size() - 1; i >= 0; i--) {
      String version = String.valueOf(((JsonNode) all.get(i)).asInt());
      boolean last = i == all.size() - 1;
      JsonNode said = last ? null : (JsonNode) known.get(version);
      if (said == null) {
        said = ask(url, request(url, subject, "/" + version + "?deleted=true").GET(), false);
        if (last && known.containsKey(version) && !said.equals(known.get(version))) {
          known = new ConcurrentHashMap();
        }
        known.put(version, said);
      }
      if (!at(said, "id").isInt()) throw unusable(url, "a schema has no id");
      found.put(Integer.valueOf(at(said, "id").asInt()), schema(said));
    }
    if (versions.size() > 1000) versions.clear();
    versions.put(url + FIELD + subject, known);
    return found;
  }

  private static Object schema(JsonNode said) {
    String kind = at(said, "schemaType").asText("AVRO");
    String id = "the schema " + at(said, "id").asText();
    if (!kind.equals("AVRO")) return id + " is of the type " + kind + " instead of AVRO";
    if (at(said, "references").size() > 0) return id + " refers to others, which are not read";
    try {
      return new Schema.Parser().parse(at(said, "schema").asText());
    } catch (RuntimeException invalid) {
      return id + " is invalid";
    }
  }

  private static HttpRequest.Builder request(String url, String subject, String rest)
      throws IOException {
    URI place;
    try {
      place = new URI(url);
    } catch (java.net.URISyntaxException invalid) {
      throw unusable(url, "it is no URL");
    }
    String scheme = String.valueOf(place.getScheme()).toLowerCase(Locale.ROOT);
    boolean web = scheme.equals("http") || scheme.equals("https");
    if (!web || place.getHost() == null || place.getRawUserInfo() != null
        || place.getRawQuery() != null || place.getRawFragment() != null
        || !place.normalize().equals(place)) {
      throw unusable(url, "it is not as http://host:port/path");
    }
    String name = URLEncoder.encode(subject, "UTF-8").replace("+", "%20");
    String base = url.endsWith("/") ? url.substring(0, url.length() - 1) : url;
    return HttpRequest.newBuilder(URI.create(base + "/subjects/" + name + "/versions" + rest))
        .timeout(Duration.ofSeconds(SECONDS)).header("Accept", "application/json, */*");
  }

  /** Returns the answer to a request; null for a subject that there is not, if it may be missing. */
  private static JsonNode ask(String url, HttpRequest.Builder request, boolean mayBeMissing)
      throws IOException {
    HttpResponse answer;
    try {
      answer = http.send(request.build(), HttpResponse.BodyHandlers.ofString());
    } catch (IOException failed) {
      throw unusable(url, "it does not answer: " + failed);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      throw unusable(url, "the request was interrupted");
    }
    JsonNode said = null;
    try {
      said = JSON.readTree((String) answer.body());
    } catch (IOException invalid) {
      throw unusable(url, "it answers " + answer.statusCode() + ", and not in JSON");
    }
    int code = said == null ? 0 : at(said, "error_code").asInt();
    if (mayBeMissing && answer.statusCode() == 404 && code == 40401) return null;
    if (answer.statusCode() != 200 || said == null) {
      String message = said == null ? "" : at(said, "message").asText();
      throw unusable(url, "it answers " + answer.statusCode() + " " + message);
    }
    return said;
  }

  private static JsonNode at(JsonNode node, String key) {
    return (JsonNode) node.path(key);
  }

  private static UnsupportedOperationException unusable(String url, String reason) {
    return new UnsupportedOperationException(
        UNUSABLE + url + FIELD + reason.trim());
  }

  // ---- schemas ---------------------------------------------------------------------------------

  /** Derives the schema with which values are read from that with which they were written. */
  static class Reader {
    private int records = 0;

    /**
     * Returns the schema of the wanted fields, found by their names. Each value is read as it was
     * written, but times, whose unit is the writer's, and whose zone is that of the column.
     */
    Schema merged(DataType wanted, Schema written) {
      if (written.getType() != Schema.Type.UNION) return plain(wanted, written);
      List others = new ArrayList();
      for (Object one : written.getTypes()) {
        if (((Schema) one).getType() != Schema.Type.NULL) others.add(one);
      }
      if (others.size() != 1) return written;
      Schema inner = plain(wanted, (Schema) others.get(0));
      return others.size() == written.getTypes().size() ? inner : Schema.createUnion(
          new Schema[] {Schema.create(Schema.Type.NULL), inner});
    }

    private Schema plain(DataType wanted, Schema written) {
      Schema.Type kind = written.getType();
      if (wanted instanceof StructType && kind == Schema.Type.RECORD) {
        return record((StructType) wanted, written);
      }
      if (wanted instanceof ArrayType && kind == Schema.Type.ARRAY) {
        return Schema.createArray(
            merged(((ArrayType) wanted).elementType(), written.getElementType()));
      }
      if (wanted instanceof MapType && kind == Schema.Type.MAP) {
        return Schema.createMap(merged(((MapType) wanted).valueType(), written.getValueType()));
      }
      if (kind == Schema.Type.LONG && wanted instanceof TimestampType) {
        return isMicros(written) ? LogicalTypes.timestampMicros().addToSchema(number(kind))
            : LogicalTypes.timestampMillis().addToSchema(number(kind));
      }
      if (kind == Schema.Type.LONG && wanted instanceof TimestampNTZType) {
        return isMicros(written) ? LogicalTypes.localTimestampMicros().addToSchema(number(kind))
            : LogicalTypes.localTimestampMillis().addToSchema(number(kind));
      }
      if (kind == Schema.Type.INT && wanted instanceof DateType) {
        return LogicalTypes.date().addToSchema(number(kind));
      }
      return written;
    }

    private static Schema number(Schema.Type kind) {
      return Schema.create(kind);
    }

    /** Returns whether a number counts microseconds; also Debezium's, which have no logical type. */
    private static boolean isMicros(Schema written) {
      LogicalType type = written.getLogicalType();
      String name = type == null ? String.valueOf(written.getProp("connect.name")) : type.getName();
      return name.toLowerCase(Locale.ROOT).indexOf("micro") >= 0;
    }

    private Schema record(StructType wanted, Schema written) {
      List fields = new ArrayList();
      StructField[] all = wanted.fields();
      for (int i = 0; i < all.length; i++) {
        Schema.Field field = find(written, all[i].name());
        if (field == null) {
          Schema nothing = Schema.create(Schema.Type.NULL);
          fields.add(new Schema.Field(
              "missing_" + i, nothing, (String) null, JsonProperties.NULL_VALUE));
        } else {
          fields.add(new Schema.Field(field.name(), merged(all[i].dataType(), field.schema())));
        }
      }
      // A schema has each name once; records are matched by their fields.
      return Schema.createRecord("record_" + records++, null, "tidegate", false, fields);
    }

    private static Schema.Field find(Schema written, String name) {
      Schema.Field found = written.getField(name);
      for (Object one : written.getFields()) {
        Schema.Field field = (Schema.Field) one;
        if (found == null && field.name().equalsIgnoreCase(name)) found = field;
      }
      return found;
    }
  }
}
