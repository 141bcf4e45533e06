import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.quarkus.runtime.Quarkus;
import io.quarkus.runtime.QuarkusApplication;
import io.quarkus.runtime.annotations.QuarkusMain;
import io.smallrye.reactive.messaging.annotations.Blocking;
import jakarta.enterprise.context.ApplicationScoped;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.eclipse.microprofile.reactive.messaging.Incoming;

/**
 * A channel of Quarkus as a member of a group: {@code member TASK}, as strangers.py has it. The value "bad" is refused
 * and goes to the topic's name with "-dlt".
 */
@QuarkusMain
public class QuarkusMember {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String... arguments) throws Exception {
        JsonNode task = JSON.readTree(arguments[1]);
        String topic = task.get("topic").asText();
        set("bootstrap.servers", task.get("bootstrap").asText());
        set("topic", topic);
        set("group.id", task.get("group").asText());
        set("dead-letter-queue.topic", topic + "-dlt");
        task.path("settings").properties().forEach(one -> set(one.getKey(), one.getValue().asText()));
        Quarkus.run(UntilEndOfInput.class);
    }

    private static void set(String name, String value) {
        System.setProperty("mp.messaging.incoming.records." + name, value);
    }

    public static class UntilEndOfInput implements QuarkusApplication {
        @Override
        public int run(String... arguments) throws Exception {
            System.in.readAllBytes();
            return 0;
        }
    }

    @ApplicationScoped
    public static class Reader {
        @Incoming("records")
        @Blocking
        public void read(ConsumerRecord<byte[], byte[]> record) throws Exception {
            if (new String(record.value()).equals("bad")) {
                System.err.println("refused at " + record.offset());
                throw new IllegalStateException("a bad record");
            }
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("partition", record.partition());
            line.put("offset", record.offset());
            line.put("timestamp_ms", record.timestamp());
            line.put("key", record.key() == null ? null : Base64.getEncoder().encodeToString(record.key()));
            line.put("value", Base64.getEncoder().encodeToString(record.value()));
            System.out.println(JSON.writeValueAsString(line));
        }
    }
}
