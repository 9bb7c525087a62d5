"""Deletes the files of a Delta table, and nothing else in its directory."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate_server.engine.storage.delta.commits import newest_snapshot
from tidegate_server.engine.storage.jvm import compiled_instance, java
from tidegate_server.engine.storage.table_locations import PROPERTY_PLACE, is_made_for
from tidegate_server.engine.storage.table_properties import PROPERTY_ID

logger = logging.getLogger(__name__)

_LOG = "_delta_log"
_CLASS = "tidegate.TableFiles"
_SOURCE = r"""
package tidegate;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

public class TableFiles {
  private static final List OWN = Arrays.asList(new Object[] {
      "_delta_log", "_change_data", "_symlink_format_manifest", "_tidegate_held",
      "_tidegate_stream"});
  // Partitions, and the prefixes that Delta gives the files of tables with mapped column names.
  private static final Pattern NESTED = Pattern.compile("[^/]+=[^/]*|[A-Za-z0-9]{2}");
  private static final Pattern FILE = Pattern.compile(
      "\\.?((part|cdc)-\\d+-.*\\.parquet|deletion_vector_.*\\.bin)(\\.crc)?");

  public List others(FileSystem files, Path root) throws IOException {
    List found = new ArrayList();
    walk(files, root, root, found, false);
    return found;
  }

  public void deleteOwn(FileSystem files, Path root) throws IOException {
    walk(files, root, root, new ArrayList(), true);
  }

  private void walk(FileSystem files, Path root, Path directory, List others, boolean delete)
      throws IOException {
    FileStatus[] all = files.listStatus(directory);
    for (int at = 0; at < all.length; at++) {
      Path path = all[at].getPath();
      String name = path.getName();
      boolean whole = all[at].isDirectory()
          ? directory.equals(root) && OWN.contains(name)
          : FILE.matcher(name).matches();
      if (whole) {
        if (delete) {
          files.delete(path, true);
        }
      } else if (all[at].isDirectory() && NESTED.matcher(name).matches()) {
        walk(files, root, path, others, delete);
        if (delete && files.listStatus(path).length == 0) {
          files.delete(path, false);
        }
      } else {
        others.add(name);
      }
    }
  }
}
"""
"""Recognizes a table's own files by their names, and deletes only those."""


class TableFiles:
    """The directory of a Delta table.

    The table's own files are Delta's log, data files, change data and deletion vectors, and
    Tidegate's directories; anything else was added by a user or belongs to another table.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self._session: Any = spark._jsparkSession
        self._jvm: Any = java(spark)
        self._root = self._jvm.org.apache.hadoop.fs.Path(location)
        self._location = location
        self._files = self._root.getFileSystem(self._session.sessionState().newHadoopConf())

    def have_table(self) -> bool:
        """Say whether the directory has a readable Delta table."""
        return self._snapshot() is not None

    def property(self, key: str) -> str | None:
        """Return a property of the table; None without a readable table."""
        snapshot = self._snapshot()
        value = None if snapshot is None else snapshot.metadata().configuration().get(key)
        return str(value.get()) if value is not None and value.isDefined() else None

    def belong_to(self, table_id: str) -> bool:
        """Say whether the directory is that of the materialized table of this id.

        A directory made for it belongs to it even if its log is missing or incomplete, as after an
        interrupted deletion.
        """
        if self.have_table():
            return self.property(PROPERTY_ID) == table_id
        return is_made_for(self._location, table_id)

    def are_made_by_tidegate(self) -> bool:
        """Say whether Tidegate chose this directory, for any table that is or was in it.

        False where a user's table was converted to a materialized one.
        """
        made = self.property(PROPERTY_PLACE)
        return made is not None or not self.have_table()

    def owner_id(self) -> str | None:
        """Return the id of the table for which Tidegate made this directory, or None."""
        made = self.property(PROPERTY_PLACE)
        return made if made is not None and is_made_for(self._location, made) else None

    def foreign_names(self) -> list[str]:
        """Return the names of files and directories that are not the table's own."""
        if not self._files.exists(self._root):
            return []
        return [str(name) for name in self._java().others(self._files, self._root)]

    def delete(self) -> None:
        """Delete the table's files, and the directory unless it has foreign files."""
        self.invalidate_cache()
        if not self._files.exists(self._root):
            return
        foreign = self.foreign_names()
        if not foreign:
            self._files.delete(self._root, True)
            return
        self._java().deleteOwn(self._files, self._root)
        names = ", ".join(sorted(foreign)[:5])
        logger.warning("%s was not deleted: it also contains %s", self._location, names)

    def invalidate_cache(self) -> None:
        """Remove the table from Delta's cache of logs."""
        self._jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(self._session, self._root)

    def _java(self) -> Any:
        return compiled_instance(self._spark, _CLASS, _SOURCE)

    def _snapshot(self) -> Any:
        """Return the table's newest snapshot; None without a readable table."""
        if not self._files.exists(self._child(self._root, _LOG)):
            return None
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session, self._root)
        try:
            snapshot = newest_snapshot(self._jvm, log)
        except (PySparkException, Py4JJavaError) as error:
            logger.warning("the log in %s cannot be read: %s", self._location, error)
            return None
        return snapshot if int(snapshot.version()) >= 0 else None

    def _child(self, path: Any, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path, name)
