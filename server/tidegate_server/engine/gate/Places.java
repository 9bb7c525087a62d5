package tidegate;

import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Says where files are: absolute, without links, and apart from other directories. */
public class Places {
  private static final String GLOB = "*?[]{}\\";
  /** How many links in a row are followed. */
  private static final int LINKS = 40;
  /** How many entries of a directory are searched for links. */
  private static final int ENTRIES = 1000000;

  /** Returns where the file system says a path is; the path itself if no file system knows it. */
  public String resolve(Configuration hadoop, Path path) {
    try {
      return place(hadoop, path, null);
    } catch (Exception unknown) {
      return path.toString();
    }
  }

  /**
   * Returns where the file system says a path is.
   *
   * @throws IOException if no file system has its scheme.
   */
  public String locate(Configuration hadoop, String path) throws IOException {
    return place(hadoop, new Path(path), null);
  }

  /** Returns whether a path leads through links to another place than it says. */
  public boolean isElsewhere(Configuration hadoop, Path path) {
    Path full;
    try {
      full = path.getFileSystem(hadoop).makeQualified(path);
    } catch (IOException unknown) {
      return false; // Spark cannot read it either
    }
    boolean local = "file".equals(full.toUri().getScheme());
    String said =
        local ? "file:" + Paths.get(full.toUri().getPath(), new String[0]).normalize() : full.toString();
    return !said.equals(resolve(hadoop, path));
  }

  /** Returns the places of the paths that match a pattern; none if the path is no pattern. */
  public List expand(Configuration hadoop, Path path) throws IOException {
    List found = new ArrayList();
    if (!isPattern(path)) return found;
    FileStatus[] all = path.getFileSystem(hadoop).globStatus(path);
    for (int i = 0; all != null && i < all.length; i++) found.add(resolve(hadoop, all[i].getPath()));
    return found;
  }

  /** Returns the part of a path before its first pattern. */
  public Path fixed(Path path) {
    Path found = path;
    while (isPattern(found) && found.getParent() != null) found = found.getParent();
    return found;
  }

  private boolean isPattern(Path path) {
    String text = path.toString();
    for (int i = 0; i < GLOB.length(); i++) {
      if (text.indexOf(GLOB.charAt(i)) >= 0) return true;
    }
    return false;
  }

  /** Returns the places outside of a local directory to which links in it lead. */
  public List linked(String place) throws IOException {
    if (!place.startsWith("file:")) return new ArrayList();
    java.nio.file.Path root = Paths.get(place.substring(5), new String[0]);
    Links links = new Links(root);
    if (Files.isDirectory(root, new LinkOption[0])) Files.walkFileTree(root, links);
    return links.found;
  }

  class Links extends java.nio.file.SimpleFileVisitor {
    final List found = new ArrayList();
    private final java.nio.file.Path root;
    private int entries = 0;

    Links(java.nio.file.Path root) {
      this.root = root;
    }

    public FileVisitResult visitFile(Object entry, BasicFileAttributes attributes)
        throws IOException {
      if (++entries > ENTRIES) throw new IOException("too many files to search for links: " + root);
      if (attributes.isSymbolicLink()) {
        java.nio.file.Path target = real((java.nio.file.Path) entry);
        if (!target.startsWith(root)) found.add("file:" + target);
      }
      return FileVisitResult.CONTINUE;
    }

    /** Goes on: what the server cannot read, Spark cannot either. */
    public FileVisitResult visitFileFailed(Object entry, IOException failure) {
      return FileVisitResult.CONTINUE;
    }
  }

  /**
   * Returns the entries of the metastore whose directories overlap a place.
   *
   * <p>Those that contain the place count if none of them contains another, as a schema contains
   * its tables, and all those within it.
   *
   * @param rows schema, name, owner and location of tables, and of schemas, whose name is empty.
   * @return these, with the index of the place before them.
   */
  public List overlapping(Configuration hadoop, List rows, List places) {
    Map parents = new HashMap();
    List located = new ArrayList();
    for (Object one : rows) {
      List row = (List) one;
      if (row.get(3) == null) continue;
      String at;
      String said = (String) row.get(3);
      boolean local = said.startsWith("file:/") && !said.startsWith("file://");
      try {
        // Asking Hadoop takes ten times as long.
        at = local ? place(Paths.get(said.substring(5), new String[0]), parents)
            : place(hadoop, new Path(said), parents);
      } catch (Exception unknown) {
        at = said;
      }
      located.add(new Object[] {row, at});
    }
    List found = new ArrayList();
    for (int i = 0; i < places.size(); i++) {
      String place = (String) places.get(i);
      String nearest = "";
      for (Object one : located) {
        String at = (String) ((Object[]) one)[1];
        if (at.length() > nearest.length() && contains(at, place)) nearest = at;
      }
      for (Object one : located) {
        Object[] pair = (Object[]) one;
        String at = (String) pair[1];
        if (!at.equals(nearest) && !contains(place, at)) continue;
        List row = new ArrayList(Arrays.asList(new Object[] {String.valueOf(i)}));
        row.addAll(((List) pair[0]).subList(0, 3));
        found.add(row);
      }
    }
    return found;
  }

  /** Returns whether a place is a directory or within it. */
  public static boolean contains(String directory, String place) {
    if (directory.endsWith("/")) return place.startsWith(directory);
    return place.startsWith(directory)
        && (place.length() == directory.length() || place.charAt(directory.length()) == '/');
  }

  /** @param parents the places of local directories that are already known, or null. */
  private String place(Configuration hadoop, Path path, Map parents) throws IOException {
    FileSystem files = path.getFileSystem(hadoop);
    Path full = files.makeQualified(path);
    if ("viewfs".equals(full.toUri().getScheme())) full = mounted(files, full);
    if (!"file".equals(full.toUri().getScheme())) return full.toString();
    return place(Paths.get(full.toUri().getPath(), new String[0]), parents);
  }

  private String place(java.nio.file.Path path, Map parents) throws IOException {
    java.nio.file.Path local = path.normalize();
    java.nio.file.Path parent = local.getParent();
    if (parents == null || parent == null) return "file:" + real(local);
    java.nio.file.Path known = (java.nio.file.Path) parents.get(parent);
    if (known == null) {
      known = real(parent);
      parents.put(parent, known);
    }
    java.nio.file.Path child = known.resolve(local.getFileName());
    return "file:" + (Files.isSymbolicLink(child) ? real(child) : child);
  }

  /** Returns what a path of viewfs stands for, also if nothing is there yet. */
  private Path mounted(FileSystem files, Path path) throws IOException {
    String rest = "";
    Path known = path;
    while (known != null) {
      try {
        Path found = files.resolvePath(known);
        return rest.isEmpty() ? found : new Path(found, rest);
      } catch (java.io.FileNotFoundException missing) {
        rest = rest.isEmpty() ? known.getName() : known.getName() + "/" + rest;
        known = known.getParent();
      }
    }
    return path;
  }

  /** Returns a local path without links, as far as it exists. */
  private java.nio.file.Path real(java.nio.file.Path place) throws IOException {
    return real(place, LINKS);
  }

  private java.nio.file.Path real(java.nio.file.Path place, int links) throws IOException {
    java.nio.file.Path rest = null;
    java.nio.file.Path known = place;
    while (known != null) {
      try {
        java.nio.file.Path found = known.toRealPath(new LinkOption[0]);
        return rest == null ? found : found.resolve(rest);
      } catch (IOException missing) {
        java.nio.file.Path last = known.getFileName();
        if (Files.isSymbolicLink(known)) { // to where nothing is yet
          if (links == 0) throw new IOException("too many links: " + place);
          java.nio.file.Path parent = real(known.getParent(), links - 1);
          java.nio.file.Path target = parent.resolve(Files.readSymbolicLink(known)).normalize();
          return real(rest == null ? target : target.resolve(rest), links - 1);
        }
        rest = rest == null || last == null ? last : last.resolve(rest);
        known = known.getParent();
      }
    }
    return place;
  }
}
