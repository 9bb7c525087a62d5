import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;

/** Prints how long statements take through a JDBC driver: arguments are URL, runs, and SQL. */
class Fetch {
  private static final int SMALL = 10;

  public static void main(String[] arguments) throws Exception {
    Class.forName("org.apache.hive.jdbc.HiveDriver");
    int runs = Integer.parseInt(arguments[1]);
    try (Connection connection = DriverManager.getConnection(arguments[0], "bench", "");
        Statement statement = connection.createStatement()) {
      for (int run = 0; run < SMALL * runs; run++) {
        print("small", statement, "SELECT 1");
      }
      for (int run = 0; run < runs; run++) {
        print("large", statement, arguments[2]);
      }
    }
    // The fetch threads of Hive 4.1's driver outlive their connection.
    System.exit(0);
  }

  private static void print(String what, Statement statement, String sql) throws Exception {
    long start = System.nanoTime();
    int rows = 0;
    try (ResultSet result = statement.executeQuery(sql)) {
      int width = result.getMetaData().getColumnCount();
      while (result.next()) {
        for (int column = 1; column <= width; column++) {
          result.getObject(column);
        }
        rows++;
      }
    }
    System.out.println(what + " " + rows + " " + (System.nanoTime() - start) / 1e9);
  }
}
