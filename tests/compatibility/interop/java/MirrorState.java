import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * The state of a mirror as Kafka's own client reads it at the target: BOOTSTRAP SOURCE GROUP. Lines of a name, "=", and
 * what it found.
 */
public class MirrorState {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        String source = arguments[1], group = arguments[2];
        System.out.println("upstream=" + new TreeSet<>(RemoteClusterUtils.upstreamClusters(settings)));
        System.out.println("hops=" + RemoteClusterUtils.replicationHops(settings, source));
        System.out.println("heartbeats=" + new TreeSet<>(RemoteClusterUtils.heartbeatTopics(settings)));
        System.out.println("checkpoints=" + new TreeSet<>(RemoteClusterUtils.checkpointTopics(settings)));
        Map<TopicPartition, OffsetAndMetadata> offsets =
            RemoteClusterUtils.translateOffsets(settings, source, group, Duration.ofSeconds(60));
        Map<String, Long> translated = new TreeMap<>();
        offsets.forEach((partition, offset) -> translated.put(partition.toString(), offset.offset()));
        System.out.println("translated=" + translated);
        try (MirrorClient client = new MirrorClient(settings)) {
            System.out.println("remote=" + new TreeSet<>(client.remoteTopics(source)));
        }
    }
}
