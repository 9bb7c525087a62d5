package tidegate;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.WritableByteChannel;
import java.util.Arrays;
import java.util.Collections;
import org.apache.arrow.compression.CommonsCompressionFactory;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compression.CompressionUtil;
import org.apache.arrow.vector.ipc.ArrowFileWriter;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.execution.datasources.FileFormat;
import org.apache.spark.sql.execution.datasources.InsertIntoHadoopFsRelationCommand;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils$;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes the rows of a query as files of Arrow record batches, one per task. Spark can write Parquet,
 * which takes twice as long and must be decoded again.
 */
public class ArrowFiles {
  /**
   * Return the command that writes a query into a new directory.
   *
   * @param options those of Hadoop for the write.
   * @param schema the message of the batches' schema.
   * @param rows the maximum number of rows per batch.
   * @param bytes the size from which a batch takes no more rows.
   * @param compressed whether batches are compressed, for files that pass a network.
   */
  public LogicalPlan command(
      Path directory,
      LogicalPlan query,
      scala.collection.immutable.Map options,
      byte[] schema,
      int rows,
      long bytes,
      boolean compressed) {
    return new InsertIntoHadoopFsRelationCommand(
        directory,
        scala.collection.immutable.Map$.MODULE$.empty(),
        false,
        CollectionConverters.asScala(Arrays.asList(new Object[0])).toSeq(),
        Option.empty(),
        new Format(new Writers(schema, rows, bytes, compressed)),
        options,
        query,
        SaveMode.ErrorIfExists,
        Option.empty(),
        Option.empty(),
        CollectionConverters.asScala(Arrays.asList(query.schema().fieldNames())).toSeq());
  }

  static class Format implements FileFormat {
    private final OutputWriterFactory writers;

    Format(OutputWriterFactory writers) {
      this.writers = writers;
    }

    public Option inferSchema(
        SparkSession session,
        scala.collection.immutable.Map options,
        scala.collection.immutable.Seq files) {
      return Option.empty();
    }

    public OutputWriterFactory prepareWrite(
        SparkSession session,
        Job job,
        scala.collection.immutable.Map options,
        StructType columns) {
      return writers;
    }

    /** The fields of the given schema have names of their own. */
    public boolean allowDuplicatedColumnNames() {
      return true;
    }

    public String toString() {
      return "Arrow";
    }
  }

  /** Is sent to executors, which load its class from the driver. */
  static class Writers extends OutputWriterFactory {
    private final byte[] schema;
    private final int rows;
    private final long bytes;
    private final boolean compressed;

    Writers(byte[] schema, int rows, long bytes, boolean compressed) {
      this.schema = schema;
      this.rows = rows;
      this.bytes = bytes;
      this.compressed = compressed;
    }

    public String getFileExtension(TaskAttemptContext context) {
      return ".arrow";
    }

    public OutputWriter newInstance(String path, StructType columns, TaskAttemptContext context) {
      try {
        Path file = new Path(path);
        OutputStream out = file.getFileSystem(context.getConfiguration()).create(file, false);
        Schema fields = Schema.deserializeMessage(ByteBuffer.wrap(schema));
        return new Writer(path, out, fields, rows, bytes, compressed);
      } catch (IOException failed) {
        throw new java.io.UncheckedIOException(failed);
      }
    }
  }

  static class Writer extends OutputWriter {
    private final String path;
    private final OutputStream out;
    private final int maximumRows;
    private final long maximumBytes;
    private final BufferAllocator allocator;
    private final VectorSchemaRoot root;
    private final ArrowWriter batch;
    private final ArrowFileWriter file;
    private int rows = 0;
    /** The number of rows at which the size of the batch is measured, which takes as long as a row. */
    private int measuredAt = 1;

    Writer(String path, OutputStream out, Schema schema, int rows, long bytes, boolean compressed)
        throws IOException {
      this.path = path;
      this.out = out;
      this.maximumRows = rows;
      this.maximumBytes = bytes;
      allocator = ArrowUtils$.MODULE$.rootAllocator().newChildAllocator(path, 0, Long.MAX_VALUE);
      root = VectorSchemaRoot.create(schema, allocator);
      batch = ArrowWriter.create(root);
      file = compressed ? compressedFile() : new ArrowFileWriter(root, null, channel());
      file.start();
    }

    private ArrowFileWriter compressedFile() {
      return new ArrowFileWriter(
          root,
          null,
          channel(),
          Collections.EMPTY_MAP,
          IpcOption.DEFAULT,
          CommonsCompressionFactory.INSTANCE,
          CompressionUtil.CodecType.ZSTD);
    }

    private WritableByteChannel channel() {
      return Channels.newChannel(out);
    }

    public String path() {
      return path;
    }

    public void write(InternalRow row) {
      batch.write(row);
      rows++;
      if (rows >= maximumRows || (rows >= measuredAt && isFull())) {
        writeBatch();
      }
    }

    private boolean isFull() {
      long size = batch.sizeInBytes();
      long fitting = (maximumBytes - size) / Math.max(1, size / rows);
      measuredAt = rows + (int) Math.max(1, Math.min(fitting / 2, maximumRows));
      return size >= maximumBytes;
    }

    private void writeBatch() {
      batch.finish();
      try {
        file.writeBatch();
      } catch (IOException failed) {
        throw new java.io.UncheckedIOException(failed);
      }
      batch.reset();
      rows = 0;
      measuredAt = 1;
    }

    /** Completes the file; Spark deletes that of a task that failed. */
    public void close() {
      try {
        if (rows > 0) {
          writeBatch();
        }
        file.end();
        out.close();
      } catch (IOException failed) {
        throw new java.io.UncheckedIOException(failed);
      } finally {
        root.close();
        allocator.close();
      }
    }
  }
}
