package tidegate;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.BufferedWriter;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.CopyOption;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Delta's log in a local directory. A version is written to a temporary file, which is then linked
 * to its name: of several processes that write the same version, one succeeds.
 *
 * <p>Delta's default looks whether the version exists, then renames the temporary file, which
 * replaces a version that another process has written in between. Hadoop also starts four processes
 * for each of these files, to ask for symbolic links and to set its permissions.
 */
public class LinkedLogStore extends HadoopFileSystemLogStore {
  public LinkedLogStore(Configuration configuration) {
    super(configuration);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    File file = new File(path.toUri().getPath());
    File temporary = hidden(file, "." + UUID.randomUUID() + ".tmp");
    try {
      writeLines(temporary, actions);
      FsPermission mask = FsPermission.getUMask(configuration);
      String mode = FsPermission.getFileDefault().applyUMask(mask).toString();
      Files.setPosixFilePermissions(temporary.toPath(), PosixFilePermissions.fromString(mode));
      if (overwrite.booleanValue()) {
        // One that Hadoop has written; of other content, reading would fail.
        Files.deleteIfExists(hidden(file, ".crc").toPath());
        CopyOption[] atomically = {StandardCopyOption.ATOMIC_MOVE};
        Files.move(temporary.toPath(), file.toPath(), atomically);
      } else {
        link(temporary, file);
      }
    } finally {
      Files.deleteIfExists(temporary.toPath());
    }
  }

  public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
    return Boolean.FALSE;
  }

  private static File hidden(File file, String suffix) {
    return new File(file.getParentFile(), "." + file.getName() + suffix);
  }

  private static void writeLines(File file, Iterator lines) throws IOException {
    BufferedWriter writer =
        new BufferedWriter(
            new OutputStreamWriter(new FileOutputStream(file), StandardCharsets.UTF_8));
    try {
      while (lines.hasNext()) {
        writer.write((String) lines.next());
        writer.write('\n');
      }
    } finally {
      writer.close();
    }
  }

  private static void link(File temporary, File file) throws IOException {
    try {
      Files.createLink(file.toPath(), temporary.toPath());
    } catch (FileAlreadyExistsException exists) {
      throw exists;
    } catch (FileSystemException unsupported) {
      rename(temporary, file);
    } catch (UnsupportedOperationException unsupported) {
      rename(temporary, file);
    }
  }

  /** On a file system without hard links, which fails if the version exists, but not atomically. */
  private static void rename(File temporary, File file) throws IOException {
    Files.move(temporary.toPath(), file.toPath(), new CopyOption[0]);
  }
}
