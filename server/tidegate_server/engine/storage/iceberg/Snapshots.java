package tidegate;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.BaseMetadataTable;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.ContentFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotRef;
import org.apache.iceberg.StaticTableOperations;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.ScanTaskSetManager;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.source.SparkRewriteTable;

/**
 * Reads the metadata of Iceberg tables, and the files in which two of their snapshots differ.
 *
 * From Python, each snapshot and each file would take several round trips to the JVM.
 */
public class Snapshots {
  /** The key of a summary under which a refresh describes itself, as JSON. */
  public static final String REFRESH = "tidegate.refresh";
  private static final String FIELD = "\t";

  /**
   * Returns a table as it is now: later changes of its metadata are not seen in it.
   *
   * @return null for a metadata table.
   */
  public Table freeze(Table table) {
    if (!(table instanceof HasTableOperations) || table instanceof BaseMetadataTable) return null;
    table.refresh(); // it may have been cached since before another engine wrote to it
    TableMetadata now = ((HasTableOperations) table).operations().current();
    return new BaseTable(
        new StaticTableOperations(now, table.io(), table.locationProvider()), table.name());
  }

  /**
   * Returns uuid, format version, location, JSON of the schema, its Spark types, the columns of the
   * partition and the properties as JSON, a line each.
   */
  public String facts(Table table) {
    TableMetadata now = ((HasTableOperations) table).operations().current();
    StringBuilder text = new StringBuilder();
    text.append(now.uuid()).append("\n");
    text.append(now.formatVersion()).append("\n");
    text.append(now.location()).append("\n");
    text.append(SchemaParser.toJson(now.schema())).append("\n");
    text.append(SparkSchemaUtil.convert(now.schema()).json()).append("\n");
    List keys = new ArrayList();
    for (int n = 0; n < now.spec().fields().size(); n++) {
      PartitionField field = (PartitionField) now.spec().fields().get(n);
      if (field.transform().isIdentity()) keys.add(now.schema().findColumnName(field.sourceId()));
    }
    text.append(json(keys)).append("\n");
    return text.append(json(now.properties())).toString();
  }

  private static String json(Object value) {
    try {
      return new ObjectMapper().writeValueAsString(value);
    } catch (com.fasterxml.jackson.core.JsonProcessingException failed) {
      throw new IllegalStateException(failed);
    }
  }

  /** Returns the JSON of a schema; null if there is none of this id. */
  public String schema(Table table, int id) {
    Object found = table.schemas().get(Integer.valueOf(id));
    return found == null ? null : SchemaParser.toJson((org.apache.iceberg.Schema) found);
  }

  /** Returns the current snapshot and those before it, newest first, a line for each. */
  public String history(Table table, int most) {
    StringBuilder text = new StringBuilder();
    Snapshot snapshot = table.currentSnapshot();
    for (int n = 0; n < most && snapshot != null; n++) {
      append(text, snapshot);
      Long parent = snapshot.parentId();
      snapshot = parent == null ? null : table.snapshot(parent.longValue());
    }
    return text.toString();
  }

  /** Returns the snapshots with a sequence number, a line for each. */
  public String numbered(Table table, long number) {
    StringBuilder text = new StringBuilder();
    for (Iterator all = table.snapshots().iterator(); all.hasNext(); ) {
      Snapshot snapshot = (Snapshot) all.next();
      if (snapshot.sequenceNumber() == number) append(text, snapshot);
    }
    return text.toString();
  }

  /** Returns the snapshots of the branches whose names begin so, a line for each. */
  public String branches(Table table, String prefix) {
    StringBuilder text = new StringBuilder();
    for (Iterator all = table.refs().entrySet().iterator(); all.hasNext(); ) {
      Map.Entry one = (Map.Entry) all.next();
      long id = ((SnapshotRef) one.getValue()).snapshotId();
      if (((String) one.getKey()).startsWith(prefix)) append(text, table.snapshot(id));
    }
    return text.toString();
  }

  private static void append(StringBuilder text, Snapshot snapshot) {
    Map summary = snapshot.summary() == null ? Collections.EMPTY_MAP : snapshot.summary();
    text.append(snapshot.snapshotId()).append(FIELD);
    text.append(snapshot.sequenceNumber()).append(FIELD);
    text.append(snapshot.parentId()).append(FIELD);
    text.append(snapshot.schemaId()).append(FIELD);
    text.append(snapshot.operation()).append(FIELD);
    text.append(summary.get("added-data-files")).append(FIELD);
    text.append(summary.get("total-data-files")).append(FIELD);
    text.append(summary.get("total-files-size")).append(FIELD);
    text.append(snapshot.timestampMillis()).append(FIELD);
    text.append(summary.get(REFRESH)).append("\n");
  }

  /**
   * Returns the files that were added after one snapshot up to another by appending only.
   *
   * @param before -1 for an empty table.
   */
  public Difference appended(Table table, long before, long after) {
    org.apache.iceberg.IncrementalAppendScan scan =
        (org.apache.iceberg.IncrementalAppendScan) table.newIncrementalAppendScan().toSnapshot(after);
    if (before != -1) {
      scan = (org.apache.iceberg.IncrementalAppendScan) scan.fromSnapshotExclusive(before);
    }
    return new Difference(table, Collections.EMPTY_LIST, list(scan.planFiles()));
  }

  /**
   * Returns the files in which two snapshots differ, by themselves or by their delete files.
   *
   * @param before -1 for an empty table.
   */
  public Difference difference(Table table, long before, long after) {
    Map known = new HashMap();
    List tasks = before == -1 ? Collections.EMPTY_LIST : files(table, before);
    for (int n = 0; n < tasks.size(); n++) {
      FileScanTask task = (FileScanTask) tasks.get(n);
      String key = key(task);
      List same = (List) known.get(key);
      if (same == null) known.put(key, same = new ArrayList(1));
      same.add(task);
    }
    List added = new ArrayList();
    tasks = files(table, after);
    for (int n = 0; n < tasks.size(); n++) {
      FileScanTask task = (FileScanTask) tasks.get(n);
      List same = (List) known.get(key(task));
      if (same == null || same.isEmpty()) added.add(task);
      else same.remove(same.size() - 1);
    }
    List removed = new ArrayList();
    for (Iterator left = known.values().iterator(); left.hasNext(); ) {
      removed.addAll((List) left.next());
    }
    return new Difference(table, removed, added);
  }

  /** Returns the tasks that read all files of a snapshot. */
  public static List files(Table table, long snapshot) {
    return list(table.newScan().useSnapshot(snapshot).planFiles());
  }

  private static List list(CloseableIterable found) {
    List tasks = new ArrayList();
    try {
      for (Iterator each = found.iterator(); each.hasNext(); ) tasks.add(each.next());
    } finally {
      try {
        found.close();
      } catch (java.io.IOException failed) {
        throw new java.io.UncheckedIOException(failed);
      }
    }
    return tasks;
  }

  /** Identifies the rows of a file: the file, and the delete files that apply to it. */
  private static String key(FileScanTask task) {
    List parts = new ArrayList();
    for (int n = 0; n < task.deletes().size(); n++) parts.add(place((ContentFile) task.deletes().get(n)));
    Collections.sort(parts);
    return place((ContentFile) task.file()) + parts;
  }

  private static String place(ContentFile file) {
    // A file of deletion vectors has one for each of several data files.
    Object offset = file instanceof DeleteFile ? ((DeleteFile) file).contentOffset() : null;
    return file.location() + "\n" + offset;
  }

  /** The files in which two snapshots differ. */
  public static class Difference {
    private final Table table;
    private final List removed;
    private final List added;

    Difference(Table table, List removed, List added) {
      this.table = table;
      this.removed = removed;
      this.added = added;
    }

    public int removedFiles() {
      return removed.size();
    }

    public int addedFiles() {
      return added.size();
    }

    /** Returns how many rows were removed and added at most. */
    public long rows() {
      Map before = new HashMap();
      long rows = 0;
      for (int n = 0; n < removed.size(); n++) {
        FileScanTask task = (FileScanTask) removed.get(n);
        before.put(task.file().location(), task);
        rows += task.file().recordCount();
      }
      for (int n = 0; n < added.size(); n++) {
        FileScanTask task = (FileScanTask) added.get(n);
        long count = task.file().recordCount();
        FileScanTask same = (FileScanTask) before.get(task.file().location());
        if (same == null) rows += count;
        else rows += Math.min(count, deleted(same, task)) - count;
      }
      return rows;
    }

    /** Returns how many rows of a file are deleted at most by delete files of only one snapshot. */
    private static long deleted(FileScanTask before, FileScanTask after) {
      Map one = new HashMap();
      for (int n = 0; n < before.deletes().size(); n++) {
        DeleteFile file = (DeleteFile) before.deletes().get(n);
        one.put(place((ContentFile) file), file);
      }
      List differing = new ArrayList();
      for (int n = 0; n < after.deletes().size(); n++) {
        DeleteFile file = (DeleteFile) after.deletes().get(n);
        if (one.remove(place((ContentFile) file)) == null) differing.add(file);
      }
      differing.addAll(one.values());
      long rows = 0;
      for (int n = 0; n < differing.size(); n++) {
        DeleteFile file = (DeleteFile) differing.get(n);
        if (file.content() != FileContent.POSITION_DELETES) return Long.MAX_VALUE;
        rows += file.recordCount();
      }
      return rows;
    }

    /** Lets Spark read the removed files, with their delete files, until the name is released. */
    public SparkRewriteTable removed(String name) {
      return stage(table, removed, name);
    }

    /** The same for the added files. */
    public SparkRewriteTable added(String name) {
      return stage(table, added, name);
    }

    public void release(String name) {
      Snapshots.release(table, name);
    }
  }

  /** Lets Spark read the files of tasks until the name is released. */
  public static SparkRewriteTable stage(Table table, List tasks, String name) {
    ScanTaskSetManager.get().stageTasks(table, name, tasks);
    return new SparkRewriteTable(table, name);
  }

  public static void release(Table table, String name) {
    ScanTaskSetManager.get().removeTasks(table, name);
  }
}
