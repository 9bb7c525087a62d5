"""Functions of jars in materialized tables, before and after their engine was replaced."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pyspark
import pytest

from tests.support.fixtures.server import Server, StartServer, run_as
from tests.support.full_run import FULL

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not FULL, reason="for the long run"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac"),
]

SCALAR = """
public class Half extends org.apache.hadoop.hive.ql.exec.UDF {
  public Long evaluate(Long n) { return n == null ? null : Long.valueOf(n / 2); }
}
"""
AGGREGATE = """
public class Longest extends org.apache.hadoop.hive.ql.exec.UDAF {
  public static class Evaluator implements org.apache.hadoop.hive.ql.exec.UDAFEvaluator {
    private Long best;
    public void init() { best = null; }
    public boolean iterate(Long n) {
      if (n != null && (best == null || n > best)) best = n;
      return true;
    }
    public Long terminatePartial() { return best; }
    public boolean merge(Long other) { return iterate(other); }
    public Long terminate() { return best; }
  }
}
"""
TABLE = """
import java.util.List;
import org.apache.hadoop.hive.ql.metadata.HiveException;
import org.apache.hadoop.hive.serde2.objectinspector.*;
import org.apache.hadoop.hive.serde2.objectinspector.primitive.*;
public class Pairs extends org.apache.hadoop.hive.ql.udf.generic.GenericUDTF {
  private PrimitiveObjectInspector argument;
  public StructObjectInspector initialize(ObjectInspector[] arguments) {
    argument = (PrimitiveObjectInspector) arguments[0];
    ObjectInspector result = PrimitiveObjectInspectorFactory.javaLongObjectInspector;
    return ObjectInspectorFactory.getStandardStructObjectInspector(List.of("n"), List.of(result));
  }
  public void process(Object[] row) throws HiveException {
    long n = ((Number) argument.getPrimitiveJavaObject(row[0])).longValue();
    forward(new Object[] {n});
    forward(new Object[] {-n});
  }
  public void close() {}
}
"""


def make_jar(folder: Path) -> Path:
    """Compile the functions and return their jar."""
    for name, source in {"Half": SCALAR, "Longest": AGGREGATE, "Pairs": TABLE}.items():
        (folder / f"{name}.java").write_text(source)
    classes = Path(pyspark.__file__).parent / "jars" / "*"
    command = ["javac", "-nowarn", "-cp", str(classes), *map(str, folder.glob("*.java"))]
    subprocess.run(command, check=True, capture_output=True)
    jar = folder / "functions.jar"
    with ZipFile(jar, "w") as archive:
        for file in folder.glob("*.class"):
            archive.write(file, file.name)
    return jar


def refresh(server: Server) -> None:
    for table in ("halves", "longest_of", "pairs_of"):
        run_as(server, "root", f"ALTER MATERIALIZED TABLE {table} REFRESH")


def rows(server: Server, text: str) -> list[tuple[object, ...]]:
    return sorted(run_as(server, "root", text))


def test_functions_of_jars_outlive_their_engine(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    jar = make_jar(tmp_path)
    create = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' DAY AS {}"
    run_as(
        server,
        "root",
        "CREATE TABLE numbers AS SELECT id FROM range(4)",
        *(
            f"CREATE FUNCTION {name} AS '{name.title()}' USING JAR '{jar}'"
            for name in ("half", "longest", "pairs")
        ),
        create.format(
            "halves", "SELECT half(id) AS h, count(*) AS n FROM numbers GROUP BY half(id)"
        ),
        create.format(
            "longest_of", "SELECT id % 2 AS k, longest(id) AS l FROM numbers GROUP BY id % 2"
        ),
        create.format("pairs_of", "SELECT id, n FROM numbers LATERAL VIEW pairs(id) p AS n"),
    )
    refresh(server)
    assert rows(server, "SELECT * FROM halves") == [(0, 2), (1, 2)]
    assert rows(server, "SELECT * FROM longest_of") == [(0, 2), (1, 3)]
    assert rows(server, "SELECT n FROM pairs_of WHERE id = 3") == [(-3,), (3,)]

    engine = server.engine_pid
    os.kill(engine, signal.SIGKILL)
    server.wait_for_engine(other_than=engine)
    run_as(server, "root", "INSERT INTO numbers VALUES (8)")
    refresh(server)
    assert rows(server, "SELECT * FROM halves") == [(0, 2), (1, 2), (4, 1)]
    assert rows(server, "SELECT * FROM longest_of") == [(0, 8), (1, 3)]
    assert rows(server, "SELECT n FROM pairs_of WHERE id = 8") == [(-8,), (8,)]
