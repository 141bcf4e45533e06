import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Members of a share group that accept each record by itself: bootstrap, topic, group, members, two counts.
 *
 * The group begins at the first record. Prints "at N" when the members have accepted as many records as the first count
 * says, and again for the second one; everything before the first is for the JVMs to get warm. A refused acknowledgement
 * ends the program with code 1.
 */
public final class ShareMembers {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final AtomicLong ACCEPTED = new AtomicLong();
    private static final AtomicReference<Throwable> FAILURE = new AtomicReference<>();
    private static volatile boolean isOver;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        begin(bootstrap, arguments[2]);
        List<Thread> members = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            Thread member = new Thread(() -> accept(bootstrap, arguments[1], arguments[2]));
            members.add(member);
            member.start();
        }
        for (int at = 4; at < 6; at++) {
            long count = Long.parseLong(arguments[at]);
            while (ACCEPTED.get() < count && FAILURE.get() == null) {
                Thread.sleep(1);
            }
            System.out.println("at " + ACCEPTED.get());
            System.out.flush();
        }
        isOver = true;
        for (Thread member : members) {
            member.join();
        }
        if (FAILURE.get() != null) {
            FAILURE.get().printStackTrace();
            System.exit(1);
        }
    }

    private static void begin(String bootstrap, String group) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
        Collection<AlterConfigOp> change = List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
        }
    }

    private static void accept(String bootstrap, String topic, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.setAcknowledgementCommitCallback((offsets, refusal) -> {
                if (refusal != null && !isOver) {
                    FAILURE.compareAndSet(null, refusal);
                }
            });
            consumer.subscribe(List.of(topic));
            while (!isOver && FAILURE.get() == null) {
                int count = 0;
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    count++;
                }
                ACCEPTED.addAndGet(count);
            }
        } catch (Throwable failure) {
            FAILURE.compareAndSet(null, failure);
        }
    }
}
