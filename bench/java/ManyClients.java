import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Producers or consumers with their default settings, each with partitions of its own: role, bootstrap, topic, clients,
 * partitions of each, bytes of a value.
 *
 * Answers each line with the number of records that were sent or taken so far; ends with its input. An error of a client
 * ends the program with code 1.
 */
public final class ManyClients {
    private static final AtomicLong RECORDS = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        int clients = Integer.parseInt(arguments[3]);
        int each = Integer.parseInt(arguments[4]);
        for (int number = 0; number < clients; number++) {
            int first = number * each;
            Thread client = new Thread(() -> {
                try {
                    if (arguments[0].equals("produce")) {
                        produce(arguments[1], arguments[2], first, each, new byte[Integer.parseInt(arguments[5])]);
                    } else {
                        consume(arguments[1], arguments[2], first, each);
                    }
                } catch (Throwable failure) {
                    failure.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
            client.setDaemon(true);
            client.start();
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            System.out.println(RECORDS.get());
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void produce(String bootstrap, String topic, int first, int partitions, byte[] value) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        for (int number = 0; ; number++) {
            producer.send(new ProducerRecord<>(topic, first + number % partitions, null, value), (metadata, failure) -> {
                if (failure != null) {
                    failure.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
                RECORDS.incrementAndGet();
            });
        }
    }

    private static void consume(String bootstrap, String topic, int first, int partitions) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        List<TopicPartition> assigned = new ArrayList<>();
        for (int number = 0; number < partitions; number++) {
            assigned.add(new TopicPartition(topic, first + number));
        }
        consumer.assign(assigned);
        while (true) {
            RECORDS.addAndGet(consumer.poll(Duration.ofMillis(100)).count());
        }
    }
}
