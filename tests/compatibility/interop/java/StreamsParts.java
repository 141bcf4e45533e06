import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.StreamsInvalidTopologyException;
import org.apache.kafka.common.message.CreateTopicsRequestData.CreatableTopic;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue.CopartitionGroup;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue.Subtopology;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue.TopicConfig;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue.TopicInfo;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.TopologyMetadata;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredInternalTopic;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredSubtopology;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredTopology;
import org.apache.kafka.coordinator.group.streams.topics.EndpointToPartitionsManager;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.LoggerFactory;

/** Answers with the parts of Kafka's coordinator of streams groups: a line of JSON in, a line out. */
public class StreamsParts {
    static final ObjectMapper JSON = new ObjectMapper();

    record Topic(String name, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
        public Uuid id() {
            return new Uuid(1, name.hashCode());
        }

        public List<String> partitionRacks(int partition) {
            return List.of();
        }
    }

    static CoordinatorMetadataImage image(JsonNode counts) {
        Class<?>[] image = {CoordinatorMetadataImage.class};
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(StreamsParts.class.getClassLoader(), image,
            (proxy, method, arguments) -> counts.has((String) arguments[0])
                ? Optional.of(new Topic((String) arguments[0], counts.get((String) arguments[0]).intValue()))
                : Optional.empty());
    }

    static List<String> strings(JsonNode array) {
        List<String> found = new ArrayList<>();
        array.forEach(one -> found.add(one.textValue()));
        return found;
    }

    static List<Short> shorts(JsonNode array) {
        List<Short> found = new ArrayList<>();
        array.forEach(one -> found.add(one.shortValue()));
        return found;
    }

    static List<TopicInfo> topics(JsonNode array) {
        List<TopicInfo> found = new ArrayList<>();
        for (JsonNode one : array) {
            List<TopicConfig> configs = new ArrayList<>();
            one.get(3).forEach(pair -> configs.add(
                new TopicConfig().setKey(pair.get(0).textValue()).setValue(pair.get(1).textValue())));
            found.add(new TopicInfo().setName(one.get(0).textValue()).setPartitions(one.get(1).intValue())
                .setReplicationFactor(one.get(2).shortValue()).setTopicConfigs(configs));
        }
        return found;
    }

    static StreamsTopology topology(JsonNode asked) {
        Map<String, Subtopology> subtopologies = new HashMap<>();
        for (JsonNode one : asked.get("subtopologies")) {
            List<CopartitionGroup> groups = new ArrayList<>();
            one.get("copartition groups").forEach(group -> groups.add(new CopartitionGroup()
                .setSourceTopics(shorts(group.get(0))).setRepartitionSourceTopics(shorts(group.get(1)))));
            subtopologies.put(one.get("id").textValue(), new Subtopology()
                .setSubtopologyId(one.get("id").textValue())
                .setSourceTopics(strings(one.get("sources")))
                .setRepartitionSinkTopics(strings(one.get("sinks")))
                .setRepartitionSourceTopics(topics(one.get("repartitions")))
                .setStateChangelogTopics(topics(one.get("changelogs")))
                .setCopartitionGroups(groups));
        }
        return new StreamsTopology(asked.get("epoch").intValue(), subtopologies);
    }

    static ConfiguredTopology configured(JsonNode asked) {
        return InternalTopicManager.configureTopics(LoggerFactory.getLogger("streams"), "group", "member", 0,
            topology(asked), image(asked.get("counts")), Time.SYSTEM);
    }

    static List<Object> rows(Map<String, ConfiguredInternalTopic> topics) {
        List<Object> found = new ArrayList<>();
        for (ConfiguredInternalTopic one : new TreeMap<>(topics).values()) {
            found.add(List.of(one.name(), one.numberOfPartitions(), one.replicationFactor().orElse((short) 0),
                new TreeMap<>(one.topicConfigs())));
        }
        return found;
    }

    static Object configuration(JsonNode asked) {
        Map<String, Object> answer = new LinkedHashMap<>();
        ConfiguredTopology found;
        try {
            found = configured(asked);
        } catch (StreamsInvalidTopologyException refusal) {
            answer.put("refusal", refusal.getMessage());
            return answer;
        }
        found.topicConfigurationException().ifPresent(
            fault -> answer.put("fault", List.of(fault.status().code(), fault.getMessage())));
        found.subtopologies().ifPresent(all -> {
            Map<String, Object> byId = new LinkedHashMap<>();
            all.forEach((id, one) -> byId.put(id, List.of(one.numberOfTasks(), new TreeSet<>(one.sourceTopics()),
                rows(one.repartitionSourceTopics()), new TreeSet<>(one.repartitionSinkTopics()),
                rows(one.stateChangelogTopics()))));
            answer.put("subtopologies", byId);
        });
        List<Object> missing = new ArrayList<>();
        for (CreatableTopic one : found.internalTopicsToBeCreated().values()) {
            Map<String, String> configs = new TreeMap<>();
            one.configs().forEach(pair -> configs.put(pair.name(), pair.value()));
            missing.add(List.of(one.name(), one.numPartitions(), one.replicationFactor(), configs));
        }
        answer.put("missing", missing);
        return answer;
    }

    static Map<String, Set<Integer>> tasks(JsonNode byId) {
        Map<String, Set<Integer>> found = new HashMap<>();
        byId.fields().forEachRemaining(one -> {
            Set<Integer> numbers = new HashSet<>();
            one.getValue().forEach(number -> numbers.add(number.intValue()));
            found.put(one.getKey(), numbers);
        });
        return found;
    }

    static Map<String, Object> sorted(Map<String, Set<Integer>> tasks) {
        Map<String, Object> found = new TreeMap<>();
        tasks.forEach((id, numbers) -> found.put(id, new TreeSet<>(numbers)));
        return found;
    }

    static Object assignment(JsonNode asked) {
        TreeMap<String, ConfiguredSubtopology> subtopologies = new TreeMap<>();
        asked.get("subtopologies").fields().forEachRemaining(one -> {
            Map<String, ConfiguredInternalTopic> changelogs = new HashMap<>();
            if (one.getValue().get(1).booleanValue()) {
                changelogs.put("changelog", new ConfiguredInternalTopic("changelog", 1, Optional.empty(), Map.of()));
            }
            subtopologies.put(one.getKey(), new ConfiguredSubtopology(
                one.getValue().get(0).intValue(), Set.of("source"), Map.of(), Set.of(), changelogs));
        });
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (JsonNode one : asked.get("members")) {
            members.put(one.get(0).textValue(), new AssignmentMemberSpec(Optional.empty(), Optional.empty(),
                tasks(one.get(2)), tasks(one.get(3)), Map.of(), one.get(1).textValue(), Map.of(), Map.of(), Map.of()));
        }
        Map<String, String> settings = Map.of("num.standby.replicas", asked.get("replicas").asText());
        var found = new StickyTaskAssignor().assign(new GroupSpecImpl(members, settings),
            new TopologyMetadata(CoordinatorMetadataImage.EMPTY, subtopologies));
        Map<String, Object> answer = new TreeMap<>();
        found.members().forEach((id, one) ->
            answer.put(id, List.of(sorted(one.activeTasks()), sorted(one.standbyTasks()))));
        return answer;
    }

    @SuppressWarnings("unchecked")
    static Object endpoint(JsonNode asked) throws Exception {
        Method method = EndpointToPartitionsManager.class.getDeclaredMethod(
            "topicPartitions", Map.class, Map.class, CoordinatorMetadataImage.class);
        method.setAccessible(true);
        List<TopicPartition> found = (List<TopicPartition>) method.invoke(null, tasks(asked.get("tasks")),
            configured(asked).subtopologies().orElseThrow(), image(asked.get("counts")));
        List<Object> rows = new ArrayList<>();
        found.forEach(one -> rows.add(List.of(one.topic(), new TreeSet<>(one.partitions()))));
        return rows;
    }

    static Object answer(JsonNode asked) throws Exception {
        return switch (asked.get("kind").textValue()) {
            case "configuration" -> configuration(asked);
            case "assignment" -> assignment(asked);
            case "endpoint" -> endpoint(asked);
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
