import java.io.DataInputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Iterator;
import java.util.function.Supplier;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordBatchTooLargeException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TransactionalIdAuthorizationException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Says what a leader does with what was produced, a line for each of its input: "ok" and the bytes for the log in
 * Base64, "no", the number of the error and the fault, or "empty".
 *
 * A case: version of Produce (short), whether the request has a transactional id, whether the topic is compacted and
 * whether it has LogAppendTime (a byte each), message.timestamp.before.max.ms and .after.max.ms (long), the topic's
 * codec, or -1 for the producer's (byte), max.message.bytes and segment.bytes (int), the time (long), and the data
 * behind their size (int).
 *
 * What stands around LogValidator in KafkaApis and UnifiedLog needs a broker, and is told again here.
 */
public class ValidateBatches {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream out = new PrintStream(System.out, false);
        while (true) {
            Case one;
            try {
                one = new Case(in);
            } catch (EOFException end) {
                break;
            }
            String line;
            try {
                MemoryRecords taken = one.append();
                line = taken == null ? "empty" : "ok " + Base64.getEncoder().encodeToString(bytes(taken));
            } catch (RecordValidationException refusal) {
                line = "no " + Errors.forException(refusal.invalidException()).code() + " " + refusal;
            } catch (Throwable refusal) {
                line = "no " + Errors.forException(refusal).code() + " " + refusal;
            }
            out.println(line.replace('\n', ' '));
        }
        out.flush();
    }

    private static byte[] bytes(MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] found = new byte[buffer.remaining()];
        buffer.get(found);
        return found;
    }

    private static class Case implements Time, LogValidator.MetricsRecorder {
        private final short version;
        private final boolean transactional;
        private final boolean compacted;
        private final boolean appendTime;
        private final long before;
        private final long after;
        private final byte codec;
        private final int messageMax;
        private final int segmentMax;
        private final long now;
        private final MemoryRecords records;

        Case(DataInputStream in) throws Exception {
            version = in.readShort();
            transactional = in.readBoolean();
            compacted = in.readBoolean();
            appendTime = in.readBoolean();
            before = in.readLong();
            after = in.readLong();
            codec = in.readByte();
            messageMax = in.readInt();
            segmentMax = in.readInt();
            now = in.readLong();
            byte[] data = new byte[in.readInt()];
            in.readFully(data);
            records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        }

        MemoryRecords append() {
            Iterator<? extends RecordBatch> first = records.batches().iterator();
            if (first.hasNext() && first.next().isTransactional() && !transactional)
                throw new TransactionalIdAuthorizationException("no transactional id");
            ProduceRequest.validateRecords(version, records);
            int size = 0;
            CompressionType source = CompressionType.NONE;
            for (RecordBatch batch : records.batches()) {
                if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2 && batch.baseOffset() != 0)
                    throw new InvalidRecordException("base offset " + batch.baseOffset());
                batch.lastOffset();
                if (batch.sizeInBytes() > messageMax)
                    throw new RecordTooLargeException("max.message.bytes");
                if (!batch.isValid())
                    throw new CorruptRecordException("checksum");
                batch.maxTimestamp();
                size += batch.sizeInBytes();
                if (batch.compressionType() != CompressionType.NONE)
                    source = batch.compressionType();
            }
            if (size <= 0)
                return null;
            ByteBuffer whole = records.buffer().duplicate();
            whole.limit(size);
            CompressionType target = codec < 0 ? source : CompressionType.forId(codec);
            LogValidator.ValidationResult result = new LogValidator(
                MemoryRecords.readableRecords(whole), PARTITION, this, source, Compression.of(target).build(), compacted,
                RecordBatch.MAGIC_VALUE_V2, appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                before, after, 0, AppendOrigin.CLIENT, MetadataVersion.latestProduction()
            ).validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), this, BufferSupplier.NO_CACHING);
            MemoryRecords taken = result.validatedRecords;
            if (result.messageSizeMaybeChanged)
                for (RecordBatch batch : taken.batches())
                    if (batch.sizeInBytes() > messageMax)
                        throw new RecordTooLargeException("max.message.bytes");
            if (taken.sizeInBytes() > segmentMax)
                throw new RecordBatchTooLargeException("segment.bytes");
            return taken;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return 0;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }

        @Override
        public void recordInvalidMagic() {
        }

        @Override
        public void recordInvalidOffset() {
        }

        @Override
        public void recordInvalidSequence() {
        }

        @Override
        public void recordInvalidChecksums() {
        }

        @Override
        public void recordNoKeyCompactedTopic() {
        }
    }
}
