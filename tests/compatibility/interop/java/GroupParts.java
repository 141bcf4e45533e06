import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;

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

    record Subscription(Optional<String> instanceId, Set<Uuid> subscribedTopicIds) implements MemberSubscription {
        public Optional<String> rackId() {
            return Optional.empty();
        }
    }

    static Map<Uuid, Set<Integer>> partitions(JsonNode byTopic) {
        Map<Uuid, Set<Integer>> found = new LinkedHashMap<>();
        byTopic.fields().forEachRemaining(one -> {
            Set<Integer> numbers = new LinkedHashSet<>();
            one.getValue().forEach(number -> numbers.add(number.intValue()));
            found.put(uuid(one.getKey()), numbers);
        });
        return Collections.unmodifiableMap(found);
    }

    static String hex(Uuid id) {
        return String.format("%016x%016x", id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    static Object assignment(JsonNode asked) throws Exception {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("counts").fields().forEachRemaining(one -> counts.put(uuid(one.getKey()), one.getValue().intValue()));
        Map<String, Subscription> members = new LinkedHashMap<>();
        Map<String, MemberAssignment> targets = new HashMap<>();
        Set<String> assigned = new HashSet<>();
        for (JsonNode member : asked.get("members")) {
            Set<Uuid> topics = new LinkedHashSet<>();
            strings(member.get("topics")).forEach(one -> topics.add(uuid(one)));
            String id = member.get("id").textValue();
            members.put(id, new Subscription(Optional.ofNullable(member.get("instance").textValue()), topics));
            Map<Uuid, Set<Integer>> target = partitions(member.get("target"));
            targets.put(id, () -> target);
            target.forEach((topic, numbers) -> numbers.forEach(number -> assigned.add(topic + ":" + number)));
        }
        GroupSpec group = new GroupSpec() {
            public Collection<String> memberIds() {
                return members.keySet();
            }

            public SubscriptionType subscriptionType() {
                return SubscriptionType.valueOf(asked.get("type").textValue());
            }

            public boolean isPartitionAssigned(Uuid topic, int partition) {
                return assigned.contains(topic + ":" + partition);
            }

            public boolean isPartitionAssignable(Uuid topic, int partition) {
                return true;
            }

            public MemberSubscription memberSubscription(String memberId) {
                return members.get(memberId);
            }

            public MemberAssignment memberAssignment(String memberId) {
                return targets.get(memberId);
            }
        };
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        boolean isRange = asked.get("assignor").textValue().equals("range");
        var found = (isRange ? new RangeAssignor() : new UniformAssignor()).assign(group, describer);
        Map<String, Map<String, Set<Integer>>> answer = new LinkedHashMap<>();
        for (String id : members.keySet()) {
            Map<String, Set<Integer>> byTopic = new TreeMap<>();
            if (found.members().containsKey(id)) {
                found.members().get(id).partitions().forEach((topic, numbers) -> {
                    if (!numbers.isEmpty()) {
                        byTopic.put(hex(topic), new TreeSet<>(numbers));
                    }
                });
            }
            answer.put(id, byTopic);
        }
        return answer;
    }

    static Object regex(JsonNode asked) {
        try {
            Pattern pattern = Pattern.compile(asked.get("pattern").textValue());
            List<Boolean> matches = new ArrayList<>();
            strings(asked.get("texts")).forEach(text -> matches.add(pattern.matcher(text).matches()));
            return matches;
        } catch (PatternSyntaxException fault) {
            return fault.getDescription();
        } catch (RuntimeException | StackOverflowError fault) {
            return "fault: " + fault;
        }
    }

    /** A record's key and value as text, and what Kafka itself would write for them. */
    static Object record(JsonNode asked) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        HexFormat hex = HexFormat.of();
        CoordinatorRecord record = serde.deserialize(
            ByteBuffer.wrap(hex.parseHex(asked.get("key").textValue())),
            ByteBuffer.wrap(hex.parseHex(asked.get("value").textValue())));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("key", hex.formatHex(serde.serializeKey(record)));
        answer.put("value", hex.formatHex(serde.serializeValue(record)));
        answer.put("key text", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key()));
        answer.put("value text",
            CoordinatorRecordJsonConverters.writeRecordValueAsJson(record.value().message(), record.value().version()));
        return answer;
    }

    static Object answer(JsonNode asked) throws Exception {
        return switch (asked.get("kind").textValue()) {
            case "topic hash" -> topicHash(asked);
            case "group hash" -> groupHash(asked);
            case "assignment" -> assignment(asked);
            case "regex" -> regex(asked);
            case "record" -> record(asked);
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
