import java.util.*;
import kafka.consumer.*;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * A member of a group of Kafka 0.8.2's high level consumer: OldGroup ZOOKEEPER GROUP TOPIC [KEY=VALUE]...
 * Says "PARTITION OFFSET VALUE" for each record; commits and leaves when its input ends.
 */
public class OldGroup {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("zookeeper.connect", args[0]);
        settings.put("group.id", args[1]);
        settings.put("zookeeper.session.timeout.ms", "6000");
        settings.put("zookeeper.connection.timeout.ms", "30000");
        settings.put("auto.offset.reset", "smallest");
        settings.put("auto.commit.interval.ms", "300");
        settings.put("rebalance.backoff.ms", "500");
        settings.put("rebalance.max.retries", "20");
        settings.put("refresh.leader.backoff.ms", "100");
        for (String one : Arrays.asList(args).subList(3, args.length)) {
            String[] parts = one.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        final ConsumerConnector connector = kafka.consumer.Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        Map<String, Integer> threads = new HashMap<String, Integer>();
        threads.put(args[2], 1);
        final KafkaStream<byte[], byte[]> stream = connector.createMessageStreams(threads).get(args[2]).get(0);
        Thread reader = new Thread() {
            public void run() {
                for (MessageAndMetadata<byte[], byte[]> one : stream) {
                    System.out.println(one.partition() + " " + one.offset() + " " + new String(one.message()));
                    System.out.flush();
                }
            }
        };
        reader.start();
        while (System.in.read() >= 0) { }
        connector.commitOffsets(true);
        connector.shutdown();
        reader.join();
    }
}
