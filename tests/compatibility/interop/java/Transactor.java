import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Transactions of the Java clients. Called as transactor.py says: {@code transact TASK} obeys one command a line, and
 * {@code copy TASK} carries records from topic to topic until its input ends.
 */
public final class Transactor {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode task = JSON.readTree(arguments[1]);
        KafkaProducer<String, String> producer = producer(task);
        if (arguments[0].equals("transact")) {
            transact(producer);
        } else {
            copy(task, producer);
        }
        producer.close(Duration.ofSeconds(5));
    }

    private static KafkaProducer<String, String> producer(JsonNode task) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", task.get("bootstrap").asText());
        settings.put("transactional.id", task.get("transactional_id").asText());
        settings.put("transaction.timeout.ms", task.get("timeout_ms").asText());
        settings.put("max.block.ms", "60000");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(settings);
    }

    private static void transact(KafkaProducer<String, String> producer) throws Exception {
        producer.initTransactions();
        tell("{}");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = JSON.readTree(line);
            try {
                obey(producer, command);
                tell("{}");
            } catch (ExecutionException error) {
                tell(JSON.writeValueAsString(Collections.singletonMap("error", error.getCause().toString())));
            } catch (RuntimeException error) {
                tell(JSON.writeValueAsString(Collections.singletonMap("error", error.toString())));
            }
        }
    }

    private static void obey(KafkaProducer<String, String> producer, JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "begin":
                producer.beginTransaction();
                break;
            case "send":
                String topic = command.get("topic").asText();
                String value = command.get("value").asText();
                producer.send(new ProducerRecord<>(topic, command.get("partition").asInt(), null, value)).get();
                break;
            case "offsets":
                TopicPartition place = new TopicPartition(command.get("topic").asText(), 0);
                OffsetAndMetadata offset = new OffsetAndMetadata(command.get("offset").asLong());
                ConsumerGroupMetadata group = new ConsumerGroupMetadata(command.get("group").asText());
                producer.sendOffsetsToTransaction(Collections.singletonMap(place, offset), group);
                break;
            case "commit":
                producer.commitTransaction();
                break;
            case "abort":
                producer.abortTransaction();
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    /** Every third batch is sent in a transaction that is aborted, and then in one that is committed. */
    private static void copy(JsonNode task, KafkaProducer<String, String> producer) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", task.get("bootstrap").asText());
        settings.put("group.id", task.get("group").asText());
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", task.get("session_ms").asText());
        settings.put("max.poll.records", task.get("count").asText());
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        producer.initTransactions();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        consumer.subscribe(Collections.singleton(task.get("topic").asText()));
        String target = task.get("target").asText();
        for (int turn = 0; System.in.available() == 0; ) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            if (turn % 3 == 2) {
                send(producer, consumer, records, target);
                producer.abortTransaction();
            }
            send(producer, consumer, records, target);
            producer.commitTransaction();
            turn++;
            tell("{\"copied\": " + records.count() + "}");
        }
        consumer.close();
    }

    private static void send(
        KafkaProducer<String, String> producer,
        KafkaConsumer<String, String> consumer,
        ConsumerRecords<String, String> records,
        String target
    ) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
            TopicPartition place = new TopicPartition(record.topic(), record.partition());
            offsets.put(place, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.flush(); // an abort drops what has not been sent
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    private static void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
