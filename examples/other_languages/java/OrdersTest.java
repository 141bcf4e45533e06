import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A test without a framework: in JUnit its method has a @Test, and the broker stands in @BeforeAll. */
public final class OrdersTest {
    public static void main(String[] arguments) throws Exception {
        try (Kafkalite kafka = new Kafkalite()) {
            anOrderIsAnnounced(kafka.bootstrapServers());
        }
        System.out.println("passed");
    }

    private static void anOrderIsAnnounced(String bootstrapServers) throws Exception {
        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrapServers);
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "42", "an order")).get(30, TimeUnit.SECONDS);
        }
        Map<String, Object> reading = Map.of(
            "bootstrap.servers", bootstrapServers, "group.id", "billing", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            ConsumerRecord<String, String> record = first(consumer);
            if (!record.key().equals("42") || !record.value().equals("an order")) {
                throw new AssertionError("not the order: " + record);
            }
        }
    }

    private static ConsumerRecord<String, String> first(KafkaConsumer<String, String> consumer) {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                return record;
            }
        }
        throw new AssertionError("no order came");
    }
}
