package tidegate;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.ExpireSnapshots;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.OverwriteFiles;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.SnapshotAncestryValidator;
import org.apache.iceberg.SnapshotUpdate;
import org.apache.iceberg.Table;
import org.apache.iceberg.Transaction;
import org.apache.iceberg.UpdateProperties;
import org.apache.iceberg.UpdateSchema;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.spark.FileRewriteCoordinator;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.spark.source.SparkRewriteTable;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.plans.logical.CollectMetrics;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructType;

/**
 * Writes files of Iceberg tables and commits them.
 *
 * <p>Spark writes the files as it does for a compaction: they are known under a name, and no
 * snapshot has them until they are committed here, together with what a refresh records.
 */
public class IcebergCommits {
  /** The id of the snapshot that an empty table has. */
  static final long NONE = -1;

  /** Returns a table whose rows become files that are known under a name. */
  public SparkRewriteTable target(Table table, String name) {
    return new SparkRewriteTable(table, name);
  }

  /** Returns whether rows in a plan are observed. */
  public boolean observes(LogicalPlan plan) {
    if (plan instanceof CollectMetrics) return true;
    scala.collection.Iterator all = plan.children().iterator();
    while (all.hasNext()) {
      if (observes((LogicalPlan) all.next())) return true;
    }
    return false;
  }

  /** Returns the files that Spark has written under a name. */
  public Files written(Table table, String name) {
    FileRewriteCoordinator all = FileRewriteCoordinator.get();
    try {
      return new Files(table, new ArrayList(all.fetchNewFiles(table, name)));
    } finally {
      all.clearRewrite(table, name);
    }
  }

  /** Returns no files. */
  public Files none(Table table) {
    return new Files(table, new ArrayList());
  }

  /** Returns the files of a snapshot; none of an empty table. */
  public Files present(Table table, long snapshot) {
    List tasks = snapshot == NONE ? new ArrayList() : Snapshots.files(table, snapshot);
    return new Files(table, tasks);
  }

  /** New files, or those of a snapshot as the tasks that read them. */
  public static class Files {
    private final Table table;
    private final List all;

    Files(Table table, List all) {
      this.table = table;
      this.all = all;
    }

    private DataFile file(int n) {
      Object one = all.get(n);
      return one instanceof FileScanTask
          ? (DataFile) ((FileScanTask) one).file() : (DataFile) one;
    }

    public int count() {
      return all.size();
    }

    public long size() {
      long size = 0;
      for (int n = 0; n < all.size(); n++) size += file(n).fileSizeInBytes();
      return size;
    }

    /** Returns how many rows they have; -1 if delete files may remove some. */
    public long rows() {
      long rows = 0;
      for (int n = 0; n < all.size(); n++) {
        Object one = all.get(n);
        if (one instanceof FileScanTask && !((FileScanTask) one).deletes().isEmpty()) return -1;
        rows += file(n).recordCount();
      }
      return rows;
    }

    /** Returns those at the given locations. */
    public Files at(List locations) {
      Set wanted = new HashSet(locations);
      List found = new ArrayList();
      for (int n = 0; n < all.size(); n++) {
        if (wanted.contains(file(n).location())) found.add(all.get(n));
      }
      return new Files(table, found);
    }

    /** Lets Spark read their rows until the name is released. */
    public SparkRewriteTable read(String name) {
      return Snapshots.stage(table, all, name);
    }

    public void release(String name) {
      Snapshots.release(table, name);
    }

    /** Deletes files that were not committed. */
    public void delete() {
      for (int n = 0; n < all.size(); n++) table.io().deleteFile(file(n).location());
    }
  }

  /**
   * Commits one snapshot, if the table still has the rows of the one it is based on.
   *
   * @param table as the catalog has it now.
   * @param removed null for all files.
   * @param base the id of the snapshot that the change is based on.
   * @param refresh the metadata of the refresh.
   * @param properties those of the table to set in the same commit.
   */
  public void commit(
      Table table, Files removed, Files added, long base, String refresh, Map properties) {
    if (!table.uuid().equals(added.table.uuid())) {
      throw new ValidationException("another table has its name by now", new Object[0]);
    }
    Transaction all = table.newTransaction();
    SnapshotUpdate update = change(all, base == NONE ? none(table) : removed, added);
    update.set(Snapshots.REFRESH, refresh);
    update.validateWith(new SameRows(base));
    update.commit();
    set(all, properties);
    all.commitTransaction();
  }

  private static SnapshotUpdate change(Transaction all, Files removed, Files added) {
    if (removed != null && removed.count() == 0) {
      AppendFiles append = all.newAppend();
      for (int n = 0; n < added.count(); n++) append.appendFile(added.file(n));
      return append;
    }
    OverwriteFiles overwrite = all.newOverwrite();
    if (removed == null) overwrite.overwriteByRowFilter(Expressions.alwaysTrue());
    for (int n = 0; removed != null && n < removed.count(); n++) {
      overwrite.deleteFile(removed.file(n));
    }
    for (int n = 0; n < added.count(); n++) overwrite.addFile(added.file(n));
    return overwrite;
  }

  private static void set(Transaction all, Map properties) {
    if (properties.isEmpty()) return;
    UpdateProperties update = all.updateProperties();
    for (Iterator each = properties.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry one = (Map.Entry) each.next();
      if (one.getValue() == null) update.remove((String) one.getKey());
      else update.set((String) one.getKey(), (String) one.getValue());
    }
    update.commit();
  }

  /** Commits files as a branch, which has no rows of the table. */
  public void hold(Table table, String branch, Files added, String refresh) {
    Transaction all = table.newTransaction();
    if (table.currentSnapshot() == null) all.manageSnapshots().createBranch(branch).commit();
    else {
      all.manageSnapshots().createBranch(branch, table.currentSnapshot().snapshotId()).commit();
    }
    OverwriteFiles overwrite = all.newOverwrite();
    overwrite.overwriteByRowFilter(Expressions.alwaysTrue());
    for (int n = 0; n < added.count(); n++) overwrite.addFile(added.file(n));
    overwrite.set(Snapshots.REFRESH, refresh);
    overwrite.toBranch(branch);
    overwrite.commit();
    all.commitTransaction();
  }

  public void removeBranch(Table table, String branch) {
    if (table.refs().containsKey(branch)) table.manageSnapshots().removeBranch(branch).commit();
  }

  /** Requires that only compactions were committed since the snapshot that a change is based on. */
  static class SameRows implements SnapshotAncestryValidator {
    private final long base;

    SameRows(long base) {
      this.base = base;
    }

    public boolean validate(Iterable ancestors) {
      for (Iterator each = ancestors.iterator(); each.hasNext(); ) {
        Snapshot one = (Snapshot) each.next();
        if (one.snapshotId() == base) return true;
        if (!"replace".equals(one.operation())) return false;
      }
      return base == NONE;
    }

    public String errorMessage() {
      return "another writer has changed the table meanwhile";
    }
  }

  /**
   * Changes columns and properties in one commit, which has no rows.
   *
   * @param columns in their order; those that the table lacks are added.
   * @param widened the names of columns whose types change.
   */
  public void evolve(Table table, StructType columns, List widened, Map properties) {
    Schema wanted = SparkSchemaUtil.convert(columns);
    Transaction all = table.newTransaction();
    UpdateSchema update = all.updateSchema().caseSensitive(false);
    Schema now = table.schema();
    Set kept = new HashSet();
    String before = null;
    for (int n = 0; n < wanted.columns().size(); n++) {
      Types.NestedField column = (Types.NestedField) wanted.columns().get(n);
      Types.NestedField known = now.caseInsensitiveFindField(column.name());
      if (known == null) update.addColumn(column.name(), column.type(), column.doc());
      else {
        kept.add(known.name());
        change(update, known, column, widened);
      }
      String name = known == null ? column.name() : known.name();
      if (before == null) update.moveFirst(name);
      else update.moveAfter(name, before);
      before = name;
    }
    for (int n = 0; n < now.columns().size(); n++) {
      String name = ((Types.NestedField) now.columns().get(n)).name();
      if (!kept.contains(name)) update.deleteColumn(name);
    }
    update.commit();
    // A snapshot is read with the columns of its time.
    if (table.currentSnapshot() != null) all.newAppend().commit();
    set(all, properties);
    all.commitTransaction();
  }

  /** Sets properties. */
  public void set(Table table, Map properties) {
    Transaction all = table.newTransaction();
    set(all, properties);
    all.commitTransaction();
  }

  private static void change(
      UpdateSchema update, Types.NestedField known, Types.NestedField column, List widened) {
    if (widened.contains(known.name())) {
      update.updateColumn(known.name(), (Type.PrimitiveType) column.type());
    }
    boolean described = column.doc() == null ? known.doc() != null : !column.doc().equals(known.doc());
    if (described) update.updateColumnDoc(known.name(), column.doc());
    // Existing rows may have NULL even if the new definition forbids it.
    if (known.isRequired() && column.isOptional()) update.makeColumnOptional(known.name());
  }

  /** Removes snapshots with the files that no other one needs; returns their number and bytes. */
  public long[] expire(Table table, List ids) {
    final FileIO io = table.io();
    Deletion deletion = new Deletion(io);
    ExpireSnapshots expiry = table.expireSnapshots().deleteWith(deletion);
    for (int n = 0; n < ids.size(); n++) expiry.expireSnapshotId(((Number) ids.get(n)).longValue());
    expiry.commit();
    return new long[] {deletion.files, deletion.size};
  }

  static class Deletion implements java.util.function.Consumer {
    private final FileIO io;
    long files;
    long size;

    Deletion(FileIO io) {
      this.io = io;
    }

    public synchronized void accept(Object location) {
      long length = io.newInputFile((String) location).getLength();
      io.deleteFile((String) location);
      files++;
      size += length;
    }
  }
}
