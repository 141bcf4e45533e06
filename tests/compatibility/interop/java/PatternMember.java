import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

/**
 * Java's consumer with a SubscriptionPattern, which the broker matches. Obeyed a command at a time: {@code open} a
 * consumer with a pattern, {@code await} that it has topics, {@code close} it.
 */
public class PatternMember {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
    static KafkaConsumer<byte[], byte[]> consumer;

    static void open(JsonNode command) {
        consumer = new KafkaConsumer<>(Map.of(
            "bootstrap.servers", command.get("bootstrap").textValue(),
            "group.id", command.get("group").textValue(),
            "group.protocol", "consumer",
            "key.deserializer", BYTES,
            "value.deserializer", BYTES));
        consumer.subscribe(new SubscriptionPattern(command.get("pattern").textValue()));
    }

    /** The topics of the assignment as soon as there are so many, or at the time limit. */
    static TreeSet<String> await(int count, int seconds) {
        TreeSet<String> topics = new TreeSet<>();
        long deadline = System.nanoTime() + seconds * 1_000_000_000L;
        do {
            consumer.poll(Duration.ofMillis(100));
            topics.clear();
            consumer.assignment().stream().map(TopicPartition::topic).forEach(topics::add);
        } while (topics.size() < count && System.nanoTime() < deadline);
        return topics;
    }

    static Iterable<String> obey(JsonNode command) {
        switch (command.get("do").textValue()) {
            case "open" -> open(command);
            case "await" -> {
                return await(command.get("count").intValue(), command.get("seconds").intValue());
            }
            default -> consumer.close();
        }
        return List.of();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("{}");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object answer;
            try {
                answer = Map.of("values", obey(JSON.readTree(line)));
            } catch (RuntimeException error) {
                answer = Map.of("error", error.getClass().getSimpleName() + ": " + error.getMessage());
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }
}
