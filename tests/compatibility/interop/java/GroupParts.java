import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;

/** Answers with the parts of Kafka's group coordinator: a line of JSON in, a line out. */
public class GroupParts {
    static final ObjectMapper JSON = new ObjectMapper();

    record Topic(String name, Uuid id, List<List<String>> racks) implements CoordinatorMetadataImage.TopicMetadata {
        public int partitionCount() {
            return racks.size();
        }

        public List<String> partitionRacks(int partition) {
            return new ArrayList<>(racks.get(partition));
        }
    }

    static Uuid uuid(String hex) {
        return new Uuid(Long.parseUnsignedLong(hex.substring(0, 16), 16), Long.parseUnsignedLong(hex.substring(16), 16));
    }

    static List<String> strings(JsonNode array) {
        List<String> found = new ArrayList<>();
        array.forEach(one -> found.add(one.textValue()));
        return found;
    }

    static Object topicHash(JsonNode asked) {
        List<List<String>> racks = new ArrayList<>();
        asked.get("racks").forEach(one -> racks.add(strings(one)));
        Topic topic = new Topic(asked.get("name").textValue(), uuid(asked.get("id").textValue()), racks);
        Class<?>[] image = {CoordinatorMetadataImage.class};
        return Utils.computeTopicHash(topic.name(), (CoordinatorMetadataImage) Proxy.newProxyInstance(
            GroupParts.class.getClassLoader(), image, (proxy, method, arguments) -> Optional.of(topic)));
    }

    static Object groupHash(JsonNode asked) {
        Map<String, Long> hashes = new HashMap<>();
        asked.get("hashes").fields().forEachRemaining(one -> hashes.put(one.getKey(), one.getValue().longValue()));
        return Utils.computeGroupHash(hashes);
    }

    static Object answer(JsonNode asked) {
        return switch (asked.get("kind").textValue()) {
            case "topic hash" -> topicHash(asked);
            case "group hash" -> groupHash(asked);
            default -> throw new IllegalArgumentException(asked.toString());
        };
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.append(JSON.writeValueAsString(answer(JSON.readTree(line)))).append('\n');
        }
        System.out.print(answers);
    }
}
