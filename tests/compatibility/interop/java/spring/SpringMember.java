import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Spring's listener container as a member of a group: {@code member TASK}, as strangers.py has it. The listener refuses
 * the value "bad": the error handler tries it three times and publishes it to the topic's name with "-dlt".
 */
public final class SpringMember {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode task = JSON.readTree(arguments[1]);
        String topic = task.get("topic").asText();
        ContainerProperties properties = new ContainerProperties(topic);
        properties.setGroupId(task.get("group").asText());
        properties.setAckMode(ContainerProperties.AckMode.RECORD);
        properties.setMessageListener((MessageListener<byte[], byte[]>) SpringMember::read);
        var container = new ConcurrentMessageListenerContainer<>(consumers(task), properties);
        container.setConcurrency(task.path("concurrency").asInt(1));
        var letters = new DeadLetterPublishingRecoverer(
            letters(task), (record, fault) -> new TopicPartition(record.topic() + "-dlt", record.partition()));
        container.setCommonErrorHandler(new DefaultErrorHandler(letters, new FixedBackOff(0, 2)));
        container.start();
        System.in.readAllBytes();
        container.stop();
    }

    private static DefaultKafkaConsumerFactory<byte[], byte[]> consumers(JsonNode task) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", task.get("bootstrap").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        task.path("settings").properties().forEach(one -> settings.put(one.getKey(), one.getValue().asText()));
        return new DefaultKafkaConsumerFactory<>(settings);
    }

    private static KafkaTemplate<byte[], byte[]> letters(JsonNode task) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", task.get("bootstrap").asText());
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(settings));
    }

    private static void read(ConsumerRecord<byte[], byte[]> record) {
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
        try {
            System.out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
