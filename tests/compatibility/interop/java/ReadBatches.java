import java.io.DataInputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.zip.CRC32;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/** Reads batches from its input, each behind its size, as a consumer does: a line of records or of a refusal each. */
public class ReadBatches {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream out = new PrintStream(System.out, false);
        while (true) {
            byte[] data;
            try {
                data = new byte[in.readInt()];
            } catch (EOFException end) {
                break;
            }
            in.readFully(data);
            String line;
            try {
                line = "ok" + records(data);
            } catch (Throwable refusal) {
                line = "no " + refusal;
            }
            out.println(line.replace('\n', ' '));
        }
        out.flush();
    }

    private static String records(byte[] data) {
        StringBuilder found = new StringBuilder();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    found.append(' ').append(record.offset()).append(':').append(record.timestamp());
                    found.append(':').append(digest(record.hasKey() ? record.key() : null));
                    found.append(':').append(digest(record.hasValue() ? record.value() : null));
                    for (Header header : record.headers()) {
                        byte[] value = header.value();
                        found.append(':').append(header.key());
                        found.append('=').append(digest(value == null ? null : ByteBuffer.wrap(value)));
                    }
                }
            }
        }
        return found.toString();
    }

    private static String digest(ByteBuffer bytes) {
        if (bytes == null) {
            return "null";
        }
        CRC32 crc = new CRC32();
        int size = bytes.remaining();
        crc.update(bytes.duplicate());
        return size + "/" + crc.getValue();
    }
}
