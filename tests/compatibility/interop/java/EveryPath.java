import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** What an application does with a broker, each once; prints what it found. */
public class EveryPath {
    static final String TOPIC = "paths";
    static final String TEXT = "org.apache.kafka.common.serialization.String";
    static final int PARTITIONS = 7;

    static void produce(Map<String, Object> settings, boolean isTransactional) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            if (isTransactional) {
                producer.initTransactions();
            }
            for (int turn = 0; turn < 2; turn++) {
                if (isTransactional) {
                    producer.beginTransaction();
                }
                for (int i = 0; i < 20; i++) {
                    producer.send(new ProducerRecord<>(TOPIC, "k" + i, "v")).get();
                }
                if (isTransactional) {
                    producer.commitTransaction();
                }
            }
        }
    }

    static int consume(Map<String, Object> settings, int wanted) {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(TOPIC));
            int found = 0;
            for (int turn = 0; found < wanted && turn < 300; turn++) {
                found += consumer.poll(Duration.ofMillis(100)).count();
            }
            consumer.commitSync();
            return found;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> broker = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(broker)) {
            admin.createTopics(List.of(new NewTopic(TOPIC, PARTITIONS, (short) 1))).all().get();
            DescribeTopicsOptions inPages = new DescribeTopicsOptions();
            inPages.partitionSizeLimitPerResponse(3);
            var described = admin.describeTopics(List.of(TOPIC), inPages).allTopicNames().get().get(TOPIC);
            System.out.println("partitions " + described.partitions().size());
            try {
                admin.describeTopics(List.of("none")).allTopicNames().get();
            } catch (Exception fault) {
                System.out.println("none: " + fault.getCause());
            }
            System.out.println("nodes " + admin.describeCluster().nodes().get().size());

            Map<String, Object> producer = new HashMap<>(broker);
            producer.put("key.serializer", TEXT + "Serializer");
            producer.put("value.serializer", TEXT + "Serializer");
            produce(producer, false);
            producer.put("transactional.id", "x");
            produce(producer, true);
            Map<String, Object> consumer = new HashMap<>(broker);
            consumer.put("key.deserializer", TEXT + "Deserializer");
            consumer.put("value.deserializer", TEXT + "Deserializer");
            consumer.put("group.id", "g");
            consumer.put("auto.offset.reset", "earliest");
            consumer.put("isolation.level", "read_committed");
            System.out.println("records " + consume(consumer, 80));

            var offsets = admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata().get();
            System.out.println("offsets " + offsets.size());
            TopicPartition first = new TopicPartition(TOPIC, 0);
            admin.listOffsets(Map.of(first, OffsetSpec.maxTimestamp())).all().get();
            System.out.println("groups " + admin.listConsumerGroups().all().get().size());
            System.out.println("members " + admin.describeConsumerGroups(List.of("g")).all().get().get("g").members().size());
            System.out.println("transactions " + admin.listTransactions().all().get().size());
            admin.describeProducers(List.of(first)).all().get();
            admin.deleteTopics(List.of(TOPIC)).all().get();
        }
    }
}
