package tidegate;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockInfo;
import org.apache.spark.storage.BlockInfoManager;
import org.apache.spark.storage.RDDBlockId;
import org.apache.spark.storage.StorageLevel;
import scala.Option;

/** Caches and removes a block over and over, while others read it. */
public class BlockRace {
  private final BlockId block = new RDDBlockId(Integer.MAX_VALUE, 0);
  private volatile boolean ended;

  /** Returns how often a block was read that was there. */
  public long run(final int rounds) throws Exception {
    final BlockInfoManager locks = SparkEnv.get().blockManager().blockInfoManager();
    ended = false;
    ExecutorService pool = Executors.newFixedThreadPool(4);
    Future[] readers = new Future[3];
    try {
      for (int i = 0; i < readers.length; i++) {
        readers[i] = pool.submit(new Callable() {
          public Object call() {
            return Long.valueOf(read(locks));
          }
        });
      }
      pool.submit(new Callable() {
        public Object call() {
          change(locks, rounds);
          return null;
        }
      }).get();
      ended = true;
      long reads = 0;
      for (int i = 0; i < readers.length; i++) {
        reads += ((Long) readers[i].get()).longValue();
      }
      return reads;
    } finally {
      ended = true;
      pool.shutdown();
    }
  }

  long read(BlockInfoManager locks) {
    long reads = 0;
    while (!ended) {
      if (locks.lockForReading(block, true).isDefined()) {
        locks.unlock(block, Option.empty());
        reads++;
      }
    }
    return reads;
  }

  void change(BlockInfoManager locks, int rounds) {
    for (int i = 0; i < rounds; i++) {
      BlockInfo info = new BlockInfo(
          StorageLevel.MEMORY_ONLY(), scala.reflect.ClassTag$.MODULE$.Any(), false);
      locks.lockNewBlockForWriting(block, info, false);
      locks.unlock(block, Option.empty());
      locks.lockForWriting(block, true);
      locks.removeBlock(block);
    }
  }
}
