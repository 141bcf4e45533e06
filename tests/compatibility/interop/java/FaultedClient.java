import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The Java clients while their broker misbehaves. Obeys a command a line, as faulted_program.py says, each but commit
 * with a client of its own.
 */
public final class FaultedClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static KafkaProducer<String, String> open;

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        tell("{}");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                tell(JSON.writeValueAsString(Collections.singletonMap("values", obey(JSON.readTree(line)))));
            } catch (ExecutionException error) {
                refuse(error.getCause());
            } catch (RuntimeException error) {
                refuse(error);
            }
        }
    }

    private static Set<String> obey(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "produce":
                try (KafkaProducer<String, String> producer = new KafkaProducer<>(producerSettings(command))) {
                    producer.send(record(command)).get();
                }
                return Collections.emptySet();
            case "consume":
                return consume(command);
            case "open":
                Properties settings = producerSettings(command);
                settings.put("transactional.id", command.get("transactional_id").asText());
                open = new KafkaProducer<>(settings);
                open.initTransactions();
                open.beginTransaction();
                open.send(record(command)).get();
                return Collections.emptySet();
            case "commit":
                try (KafkaProducer<String, String> producer = open) {
                    producer.commitTransaction();
                }
                return Collections.emptySet();
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private static ProducerRecord<String, String> record(JsonNode command) {
        return new ProducerRecord<>(command.get("topic").asText(), command.get("value").asText());
    }

    /** The first values of a topic, different ones: a member that joins again may read some twice. */
    private static Set<String> consume(JsonNode command) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", command.get("bootstrap").asText());
        settings.put("group.id", command.get("group").asText());
        settings.put("auto.offset.reset", command.get("reset").asText());
        settings.put("heartbeat.interval.ms", "100");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        Set<String> values = new LinkedHashSet<>();
        long end = System.nanoTime() + Duration.ofMinutes(1).toNanos();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singleton(command.get("topic").asText()));
            while (values.size() < command.get("count").asInt() && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    private static Properties producerSettings(JsonNode command) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", command.get("bootstrap").asText());
        settings.put("enable.idempotence", command.get("idempotent").asText());
        settings.put("request.timeout.ms", command.get("request_ms").asText());
        settings.put("delivery.timeout.ms", command.get("delivery_ms").asText());
        settings.put("max.block.ms", command.get("delivery_ms").asText());
        settings.put("linger.ms", "0");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return settings;
    }

    private static void refuse(Throwable error) throws Exception {
        tell(JSON.writeValueAsString(Collections.singletonMap("error", error.getClass().getSimpleName())));
    }

    private static void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
