import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words: topic of lines, repartition topic by word, a store of counts with its changelog topic, topic of counts.
 * Arguments: bootstrap servers, application id, input topic, output topic, state directory, and further settings as
 * key=value, - for none. Runs until SIGTERM; says RUNNING when it is, and STOPPED at its end. With application.server it
 * also says where the counts are, as all processes of the application know it, whenever that changes.
 */
public final class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("application.id", arguments[1]);
        properties.put("state.dir", arguments[4]);
        properties.put("replication.factor", "1");
        properties.put("commit.interval.ms", "200");
        properties.put("num.stream.threads", "2");
        properties.put("auto.offset.reset", "earliest");
        properties.put("session.timeout.ms", "6000");
        properties.put("default.key.serde", Serdes.StringSerde.class.getName());
        properties.put("default.value.serde", Serdes.StringSerde.class.getName());
        for (String setting : Arrays.asList(arguments).subList(5, arguments.length)) {
            String[] pair = setting.split("=", 2);
            if (pair[1].equals("-")) {
                properties.remove(pair[0]);
            } else {
                properties.put(pair[0], pair[1]);
            }
        }

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> words(line))
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Materialized.as("counts"))
            .toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(30));
            System.out.println("STOPPED");
        }));
        streams.start();
        String before = "";
        while (properties.containsKey("application.server")) {
            Object hosts = KafkaStreams.class.getMethod("streamsMetadataForStore", String.class).invoke(streams, "counts");
            if (!hosts.toString().equals(before)) {
                before = hosts.toString();
                System.out.println("HOSTS " + before);
            }
            Thread.sleep(100);
        }
        Thread.sleep(Long.MAX_VALUE);
    }

    private static List<String> words(String line) {
        return Arrays.asList(line.trim().toLowerCase().split("\\s+"));
    }
}
