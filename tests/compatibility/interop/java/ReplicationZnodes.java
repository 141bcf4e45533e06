// Kafka's own encoders and decoders of the nodes of replication in ZooKeeper. "write" prints the samples of
// test_znodes_of_replication.py as Kafka writes them, one "name json" a line; "read" takes such lines and prints what
// Kafka reads in them.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import kafka.api.LeaderAndIsr;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.zk.IsrChangeNotificationSequenceZNode;
import kafka.zk.PreferredReplicaElectionZNode;
import kafka.zk.ReassignPartitionsZNode;
import kafka.zk.TopicPartitionStateZNode;
import kafka.zk.TopicZNode;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.zookeeper.data.Stat;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

@SuppressWarnings({"unchecked", "rawtypes"})
public class ReplicationZnodes {
    private static scala.collection.immutable.Seq seq(Integer... brokers) {
        return CollectionConverters.asScala(List.of(brokers)).toSeq();
    }

    private static TopicPartition t(int partition) {
        return new TopicPartition("t", partition);
    }

    private static byte[] state(int leader, int epoch, LeaderRecoveryState recovery, Integer... isr) {
        LeaderAndIsr state = LeaderAndIsr.apply(leader, epoch, (scala.collection.immutable.List) seq(isr).toList(), recovery, 0);
        return TopicPartitionStateZNode.encode(new LeaderIsrAndControllerEpoch(state, 7));
    }

    private static Map<String, byte[]> samples() {
        Map<TopicPartition, ReplicaAssignment> moving = new LinkedHashMap<>();
        moving.put(t(0), new ReplicaAssignment(seq(3, 4, 1, 2), seq(4), seq(1, 2)));
        moving.put(t(1), new ReplicaAssignment(seq(1, 2), seq(), seq()));
        moving.put(t(2), new ReplicaAssignment(seq(2, 1), seq(), seq(1)));
        Map<TopicPartition, scala.collection.immutable.Seq> wanted = new LinkedHashMap<>();
        wanted.put(t(0), seq(3, 4));
        Set<TopicPartition> one = new LinkedHashSet<>(List.of(t(5)));
        Map<String, byte[]> found = new LinkedHashMap<>();
        Option<Uuid> id = Option.apply(Uuid.fromString("AAAAAAAAAAAAAAAAAAAABw"));
        found.put("topic", TopicZNode.encode(id, CollectionConverters.asScala(moving)));
        found.put("topic-without-id", TopicZNode.encode(Option.empty(), CollectionConverters.asScala(moving)));
        found.put("reassign", ReassignPartitionsZNode.encode((scala.collection.Map) CollectionConverters.asScala(wanted)));
        found.put("elect", PreferredReplicaElectionZNode.encode(CollectionConverters.asScala(one).toSet()));
        found.put("isr-change", IsrChangeNotificationSequenceZNode.encode(CollectionConverters.asScala(one)));
        found.put("state", state(1, 2, LeaderRecoveryState.RECOVERED, 1, 3, 2));
        found.put("state-recovering", state(3, 4, LeaderRecoveryState.RECOVERING, 3));
        found.put("state-offline", state(-1, 5, LeaderRecoveryState.RECOVERED, 1, 2));
        return found;
    }

    private static String read(String name, byte[] data) {
        switch (name) {
            case "reassign":
                return sorted(ReassignPartitionsZNode.decode(data).toOption().get());
            case "elect":
                return new TreeSet<>(strings(PreferredReplicaElectionZNode.decode(data))).toString();
            case "isr-change":
                return new TreeSet<>(strings(IsrChangeNotificationSequenceZNode.decode(data))).toString();
            case "state", "state-recovering", "state-offline":
                LeaderIsrAndControllerEpoch state = TopicPartitionStateZNode.decode(data, new Stat()).get();
                LeaderAndIsr of = state.leaderAndIsr();
                return of.leader() + " " + of.leaderEpoch() + " " + CollectionConverters.asJava(of.isr()) + " "
                    + of.leaderRecoveryState() + " " + state.controllerEpoch();
            default:
                TopicZNode.TopicIdReplicaAssignment topic = TopicZNode.decode("t", data);
                Map<String, String> partitions = new TreeMap<>();
                CollectionConverters.asJava(topic.assignment()).forEach((key, one) ->
                    partitions.put(key.toString(), list(one.replicas()) + list(one.addingReplicas()) + list(one.removingReplicas())));
                return (topic.topicId().isDefined() ? topic.topicId().get() : "none") + " " + partitions;
        }
    }

    private static String list(scala.collection.Seq brokers) {
        return CollectionConverters.asJava(brokers).toString();
    }

    private static Set<String> strings(scala.collection.Set<TopicPartition> partitions) {
        Set<String> found = new TreeSet<>();
        CollectionConverters.asJava(partitions).forEach(one -> found.add(one.toString()));
        return found;
    }

    private static String sorted(scala.collection.Map<TopicPartition, ?> assignment) {
        Map<String, String> found = new TreeMap<>();
        CollectionConverters.asJava(assignment).forEach((key, brokers) ->
            found.put(key.toString(), list((scala.collection.Seq) brokers)));
        return found.toString();
    }

    public static void main(String[] asked) throws Exception {
        if (asked[0].equals("write")) {
            samples().forEach((name, data) -> System.out.println(name + " " + new String(data, StandardCharsets.UTF_8)));
            return;
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 2);
            System.out.println(parts[0] + " " + read(parts[0], parts[1].getBytes(StandardCharsets.UTF_8)));
        }
    }
}
