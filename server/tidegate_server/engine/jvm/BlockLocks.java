package tidegate;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.concurrent.locks.Lock;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockInfoManager;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.memory.MemoryStore;
import org.sparkproject.guava.util.concurrent.Striped;
import scala.Option;

/**
 * Locks cached blocks only if they still exist.
 *
 * <p>Spark looks a block up, then waits for its lock. If the block is removed in between, it is
 * locked all the same, and the task fails when it unlocks the block: "Block rdd_56_0 does not
 * exist". A commit of Delta removes what was cached of the version before, which others may be
 * about to read. Here the lock is held while the block is looked up.
 */
public class BlockLocks {
  /** Replaces the manager of locks of this JVM, which goes on with what is locked. */
  public void install() throws ReflectiveOperationException {
    BlockManager blocks = SparkEnv.get().blockManager();
    Manager manager = new Manager(blocks.blockInfoManager());
    replace(BlockManager.class, blocks, manager);
    replace(MemoryStore.class, blocks.memoryStore(), manager);
  }

  private static void replace(Class owner, Object instance, Manager manager)
      throws ReflectiveOperationException {
    field(owner, "blockInfoManager").set(instance, manager);
  }

  private static Field field(Class owner, String name) throws ReflectiveOperationException {
    Field field = owner.getDeclaredField(name);
    field.setAccessible(true);
    return field;
  }

  /** Has the state of another manager. */
  public static class Manager extends BlockInfoManager {
    private final Striped locks;

    public Manager(BlockInfoManager other) throws ReflectiveOperationException {
      super(false);
      Field[] fields = BlockInfoManager.class.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        if (!Modifier.isStatic(fields[i].getModifiers())) {
          fields[i].setAccessible(true);
          fields[i].set(this, fields[i].get(other));
        }
      }
      locks = (Striped) field(BlockInfoManager.class, "locks").get(this);
    }

    public Option lockForReading(BlockId block, boolean blocking) {
      return lock(block, blocking, false);
    }

    public Option lockForWriting(BlockId block, boolean blocking) {
      return lock(block, blocking, true);
    }

    private Option lock(BlockId block, boolean blocking, boolean toWrite) {
      Lock lock = (Lock) locks.get(block);
      lock.lock();
      try {
        return toWrite
            ? super.lockForWriting(block, blocking)
            : super.lockForReading(block, blocking);
      } finally {
        lock.unlock();
      }
    }
  }
}
