import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Writer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import kafka.log.Cleaner;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * Apache Kafka's own log and its own cleaner on one partition's directory, without a broker and with a clock that only
 * the caller moves.
 *
 * A line on stdin is a verb and words of the form name=value; config.NAME is a topic setting. The answer is one line of
 * JSON on stdout. All times are milliseconds.
 *
 *   write dir seed steps now ...   appends what the seed says: batches of every kind, transactions, forced rolls
 *   plan dir first_dirty now       what the cleaner would look at
 *   clean dir first_dirty now ...  cleans once; the answer is the plan, and where the log is clean now
 *   load dir clean recovery_point  opens the log as a start does, and closes it: its offsets and segments
 *   dump dir out                   every batch and record that Kafka reads there, as lines of JSON
 */
public final class KafkaCleaner {
    private static final class HeldTime implements Time {
        long nowMs;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return System.nanoTime();
        }

        @Override
        public void sleep(long ms) {
            nowMs += ms;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    /** What is to be done once is done at once; what comes again and again never. */
    private static final class AtOnce implements Scheduler {
        private final ScheduledThreadPoolExecutor never = new ScheduledThreadPoolExecutor(1, task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });

        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) {
                task.run();
            }
            return never.schedule(() -> { }, 1000, TimeUnit.DAYS);
        }

        @Override
        public void resizeThreadPool(int newSize) {
        }
    }

    private static final AtOnce SCHEDULER = new AtOnce();
    private static final HexFormat HEX = HexFormat.of();
    private static final CompressionType[] CODECS = CompressionType.values();
    private static final int PRODUCERS = 5;

    private final Map<String, String> words;
    private final HeldTime time = new HeldTime();

    private KafkaCleaner(Map<String, String> words) {
        this.words = words;
        time.nowMs = number("now", 0);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            Map<String, String> words = new HashMap<>();
            for (String part : Arrays.asList(parts).subList(1, parts.length)) {
                int between = part.indexOf('=');
                words.put(part.substring(0, between), part.substring(between + 1));
            }
            String answer;
            try {
                answer = new KafkaCleaner(words).answer(parts[0]);
            } catch (Exception | AssertionError error) {
                error.printStackTrace();
                answer = "{\"error\": " + quoted(error.toString()) + "}";
            }
            answers.println(answer);
            answers.flush();
        }
    }

    private String answer(String verb) throws Exception {
        switch (verb) {
            case "write": return write();
            case "plan": return clean(false);
            case "clean": return clean(true);
            case "load": return load();
            case "dump": return dump();
            default: throw new IllegalArgumentException(verb);
        }
    }

    private long number(String name, long otherwise) {
        return words.containsKey(name) ? Long.parseLong(words.get(name)) : otherwise;
    }

    private File directory() {
        return new File(words.get("dir"));
    }

    private UnifiedLog open() throws IOException {
        Properties settings = new Properties();
        words.forEach((name, value) -> {
            if (name.startsWith("config.")) {
                settings.put(name.substring("config.".length()), value);
            }
        });
        UnifiedLog log = UnifiedLog.apply(
            directory(), new LogConfig(settings), 0L, number("recovery_point", Long.MAX_VALUE), SCHEDULER, new BrokerTopicStats(false), time,
            Integer.MAX_VALUE, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE,
            new LogDirFailureChannel(1), number("clean", 1) == 1, Option.empty(), true, new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(log.logEndOffset());
        return log;
    }

    // write

    private static final class Producer {
        final long id;
        short epoch;
        int nextSequence;
        boolean inTransaction;

        Producer(long id) {
            this.id = id;
        }
    }

    private String write() throws Exception {
        Random random = new Random(number("seed", 1));
        byte magic = (byte) number("magic", RecordBatch.CURRENT_MAGIC_VALUE);
        UnifiedLog log = open();
        Map<Long, Producer> producers = new TreeMap<>();
        for (ProducerState state : CollectionConverters.asJava(log.activeProducers())) {
            Producer producer = new Producer(state.producerId());
            producer.epoch = (short) state.producerEpoch();
            producer.nextSequence = state.lastSequence() + 1;
            producer.inTransaction = state.currentTxnStartOffset() >= 0;
            producers.put(producer.id, producer);
        }
        int epoch = (Integer) log.latestEpoch().getOrElse(() -> 0);
        long steps = number("steps", 50);
        for (long step = 0; step < steps; step++) {
            time.nowMs += random.nextInt(2000);
            if (random.nextInt(20) == 0) {
                epoch++;
            }
            int what = random.nextInt(100);
            if (magic < RecordBatch.MAGIC_VALUE_V2 || what < 45) {
                append(log, random, magic, null, false, epoch);
            } else if (what < 60) {
                Producer producer = producers.computeIfAbsent((long) random.nextInt(PRODUCERS), Producer::new);
                if (!producer.inTransaction) {
                    append(log, random, magic, producer, false, epoch);
                }
            } else if (what < 75) {
                Producer producer = producers.computeIfAbsent(1000L + random.nextInt(PRODUCERS), Producer::new);
                producer.inTransaction = true;
                append(log, random, magic, producer, true, epoch);
            } else if (what < 92) {
                List<Producer> open = producers.values().stream().filter(one -> one.inTransaction)
                    .collect(Collectors.toList());
                if (!open.isEmpty()) {
                    end(log, random, open.get(random.nextInt(open.size())), epoch);
                } else if (random.nextInt(4) == 0) {
                    // of a transaction that wrote nothing here
                    end(log, random, producers.computeIfAbsent(2000L + random.nextInt(3), Producer::new), epoch);
                }
            } else if (what < 95) {
                Producer producer = producers.computeIfAbsent((long) random.nextInt(PRODUCERS), Producer::new);
                if (!producer.inTransaction && producer.nextSequence > 0) {
                    producer.epoch++;
                    producer.nextSequence = 0;
                }
            } else if (what < 97) {
                gap(log, random, magic, epoch);
            } else {
                log.roll(Option.empty());
            }
        }
        if (number("settle", 0) == 1) {
            for (Producer producer : producers.values()) {
                if (producer.inTransaction) {
                    end(log, random, producer, epoch);
                }
            }
            log.roll(Option.empty());
        }
        log.updateHighWatermark(log.logEndOffset());
        String told = String.format("{\"end\": %d, \"stable\": %d, \"segments\": %d, \"now\": %d}",
            log.logEndOffset(), log.lastStableOffset(), log.numberOfSegments(), time.nowMs);
        log.close();
        return told;
    }

    private void append(UnifiedLog log, Random random, byte magic, Producer producer, boolean transactional, int epoch) {
        int most = random.nextInt(4) == 0 ? (int) number("records", 20) : 4;
        int count = 1 + random.nextInt(most);
        long sequence = producer == null ? RecordBatch.NO_SEQUENCE : producer.nextSequence;
        MemoryRecords records = batch(random, magic, 0, count, producer, (int) sequence, transactional, epoch, false);
        leader(log, records, epoch, AppendOrigin.CLIENT);
        if (producer != null) {
            producer.nextSequence += count;
        }
    }

    private void end(UnifiedLog log, Random random, Producer producer, int epoch) {
        producer.inTransaction = false;
        if (random.nextInt(5) == 0) {
            producer.epoch++; // as after a timeout: the marker is of the next epoch
            producer.nextSequence = 0;
        }
        ControlRecordType type = random.nextBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        MemoryRecords marker = MemoryRecords.withEndTransactionMarker(
            time.nowMs, producer.id, producer.epoch, new EndTransactionMarker(type, 0));
        leader(log, marker, epoch, AppendOrigin.COORDINATOR);
    }

    /** As a follower gets it whose leader compacted before: offsets are missing before the batch and inside it. */
    private void gap(UnifiedLog log, Random random, byte magic, int epoch) {
        long base = log.logEndOffset() + random.nextInt(50);
        log.appendAsFollower(batch(random, magic, base, 1 + random.nextInt(5), null, -1, false, epoch, true), epoch);
        log.updateHighWatermark(log.logEndOffset());
    }

    private void leader(UnifiedLog log, MemoryRecords records, int epoch, AppendOrigin origin) {
        log.appendAsLeader(records, epoch, origin, MetadataVersion.latestProduction(), RequestLocal.NoCaching(),
            VerificationGuard.SENTINEL);
        log.updateHighWatermark(log.logEndOffset());
    }

    private MemoryRecords batch(Random random, byte magic, long base, int count, Producer producer, int sequence,
                                boolean transactional, int epoch, boolean gaps) {
        int codecs = magic < RecordBatch.MAGIC_VALUE_V2 ? CompressionType.LZ4.id + 1 : CODECS.length;
        CompressionType codec = CODECS[random.nextBoolean() ? 0 : random.nextInt(codecs)];
        if (words.containsKey("codec")) {
            codec = CompressionType.forName(words.get("codec"));
        }
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1024), magic, Compression.of(codec).build(), TimestampType.CREATE_TIME, base,
            RecordBatch.NO_TIMESTAMP, producer == null ? RecordBatch.NO_PRODUCER_ID : producer.id,
            producer == null ? RecordBatch.NO_PRODUCER_EPOCH : producer.epoch, sequence, transactional, false, epoch,
            Integer.MAX_VALUE);
        long offset = base;
        int keys = (int) number("keys", 30);
        int tombstones = random.nextInt(3) == 0 ? 2 : 8;
        for (int each = 0; each < count; each++) {
            long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : time.nowMs - random.nextInt(500);
            byte[] key = key(random, keys);
            byte[] value = random.nextInt(tombstones) == 0 ? null : value(random);
            Header[] headers = magic < RecordBatch.MAGIC_VALUE_V2 ? Record.EMPTY_HEADERS : headers(random);
            builder.appendWithOffset(offset, timestamp, key, value, headers);
            offset += gaps ? 1 + random.nextInt(3) : 1;
        }
        return builder.build();
    }

    private byte[] key(Random random, int keys) {
        if (random.nextInt(40) == 0) {
            return null;
        }
        int number = (int) (keys * random.nextDouble() * random.nextDouble());
        if (number == 0) {
            return new byte[0];
        }
        // short ones, and some that a hash does not take in one block
        String text = number % 7 == 0 ? ("key-" + number).repeat(1 + number % 40) : "k" + number;
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private byte[] value(Random random) {
        byte[] value = new byte[random.nextInt(random.nextInt(5) == 0 ? (int) number("value", 120) + 1 : 12)];
        random.nextBytes(value);
        for (int at = 0; at < value.length; at++) {
            value[at] &= 3; // so that there is something to compress
        }
        return value;
    }

    private static Header[] headers(Random random) {
        Header[] headers = new Header[random.nextInt(4) == 0 ? 1 + random.nextInt(3) : 0];
        for (int each = 0; each < headers.length; each++) {
            byte[] value = random.nextInt(3) == 0 ? null : new byte[random.nextInt(4)];
            headers[each] = new RecordHeader("h" + random.nextInt(3), value);
        }
        return headers;
    }

    // clean

    private String clean(boolean really) throws Exception {
        UnifiedLog log = open();
        try {
            var range = LogCleanerManager.cleanableOffsets(log, Option.apply(number("first_dirty", 0)), time.nowMs);
            LogToClean job = new LogToClean(
                log.topicPartition(), log, range.firstDirtyOffset(), range.firstUncleanableDirtyOffset(), false);
            StringBuilder told = new StringBuilder("{");
            told.append(String.format("\"start\": %d, \"first_dirty\": %d, \"first_uncleanable\": %d, \"cleanable\": %d",
                log.logStartOffset(), job.firstDirtyOffset(), job.firstUncleanableOffset(), job.cleanableBytes()));
            told.append(", \"producers\": {");
            List<String> producers = new ArrayList<>();
            CollectionConverters.asJava(log.lastRecordsOfActiveProducers()).forEach((id, last) ->
                producers.add(String.format("\"%d\": [%d, %d]", ((Number) id).longValue(),
                    last.lastDataOffset.orElse(-1), last.producerEpoch)));
            told.append(String.join(", ", producers)).append("}");
            if (really && job.cleanableBytes() == 0) {
                told.append(", \"clean_end\": ").append(job.firstDirtyOffset()); // the broker would not begin
            } else if (really) {
                int io = (int) number("io", 512 * 1024);
                Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap((int) number("buffer", 1 << 20), "MD5"), io,
                    (int) number("max_message", 1 << 20), 0.9, new Throttler(1e15, 300, "t", "b", time), time,
                    partition -> BoxedUnit.UNIT);
                var done = cleaner.doClean(job, time.nowMs);
                told.append(", \"clean_end\": ").append(((Number) done._1()).longValue());
            }
            return told.append("}").toString();
        } finally {
            log.close();
        }
    }

    // load

    private String load() throws Exception {
        UnifiedLog log = open();
        try {
            List<String> segments = new ArrayList<>();
            log.logSegments().forEach(one -> segments.add(String.format("[%d, %d]", one.baseOffset(), one.size())));
            return String.format("{\"start\": %d, \"end\": %d, \"segments\": [%s]}",
                log.logStartOffset(), log.logEndOffset(), String.join(", ", segments));
        } finally {
            log.close();
        }
    }

    // dump

    private String dump() throws Exception {
        long records = 0;
        Path directory = directory().toPath();
        List<Path> segments;
        try (Stream<Path> files = Files.list(directory)) {
            segments = files.filter(path -> path.toString().endsWith(".log")).sorted().collect(Collectors.toList());
        }
        try (Writer out = Files.newBufferedWriter(Path.of(words.get("out")))) {
            for (Path segment : segments) {
                String stem = segment.getFileName().toString().replace(".log", "");
                out.write(String.format("{\"segment\": %d, \"aborted\": [", Long.parseLong(stem)));
                Path aborted = directory.resolve(stem + ".txnindex");
                if (Files.exists(aborted)) {
                    List<String> rows = new ArrayList<>();
                    TransactionIndex index = new TransactionIndex(Long.parseLong(stem), aborted.toFile());
                    for (AbortedTxn one : index.allAbortedTxns()) {
                        rows.add(String.format("[%d, %d, %d, %d]",
                            one.producerId(), one.firstOffset(), one.lastOffset(), one.lastStableOffset()));
                    }
                    index.close();
                    out.write(String.join(", ", rows));
                }
                out.write("]" + latest(directory.resolve(stem + ".timeindex"), Long.parseLong(stem)) + "}\n");
                try (FileRecords read = FileRecords.open(segment.toFile(), false)) {
                    for (RecordBatch batch : read.batches()) {
                        batch.ensureValid();
                        records += write(out, batch);
                    }
                }
            }
        }
        return "{\"records\": " + records + "}";
    }

    /** What the time index says of the segment's largest timestamp: the last thing that is written when it is sealed. */
    private static String latest(Path file, long base) throws IOException {
        if (!Files.exists(file) || Files.size(file) % 12 != 0) {
            return "";
        }
        try (TimeIndex index = new TimeIndex(file.toFile(), base, -1, false)) {
            TimestampOffset last = index.lastEntry();
            return String.format(", \"latest\": [%d, %d]", last.timestamp, last.offset);
        }
    }

    private static long write(Writer out, RecordBatch batch) throws IOException {
        boolean modern = batch.magic() >= RecordBatch.MAGIC_VALUE_V2;
        List<String> records = new ArrayList<>();
        for (Record record : batch) {
            List<String> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                headers.add("[" + quoted(header.key()) + ", " + hex(header.value()) + "]");
            }
            records.add(String.format("[%d, %d, %s, %s, [%s]]", record.offset(), record.timestamp(),
                hex(record.hasKey() ? Utils.toArray(record.key()) : null),
                hex(record.hasValue() ? Utils.toArray(record.value()) : null), String.join(", ", headers)));
        }
        boolean plain = batch.compressionType() == CompressionType.NONE;
        out.write(String.format("{\"magic\": %d, \"codec\": \"%s\", \"last_offset\": %d, \"timestamp_type\": %d, "
                + "\"max_timestamp\": %d, ",
            batch.magic(), batch.compressionType().name, batch.lastOffset(),
            Math.max(0, batch.timestampType().id), batch.maxTimestamp()));
        if (plain) {
            long crc = batch.checksum();
            out.write(String.format("\"size\": %d, \"crc\": %d, ", batch.sizeInBytes(), crc));
        }
        if (modern) {
            out.write(String.format("\"base_offset\": %d, \"count\": %d, \"epoch\": %d, \"transactional\": %b, "
                    + "\"control\": %b, \"horizon\": %d, \"producer\": [%d, %d, %d], ",
                batch.baseOffset(), batch.countOrNull(), batch.partitionLeaderEpoch(), batch.isTransactional(),
                batch.isControlBatch(), batch.deleteHorizonMs().orElse(-1), batch.producerId(), batch.producerEpoch(),
                batch.baseSequence()));
        }
        out.write("\"records\": [" + String.join(", ", records) + "]}\n");
        return records.size();
    }

    private static String hex(byte[] data) {
        return data == null ? "null" : "\"" + HEX.formatHex(data) + "\"";
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", " ") + "\"";
    }
}
