import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The Java clients as they log in. Obeys a command a line, as login_program.py says, each with clients of its own: one
 * writes a record, the other reads what is in the topic.
 */
public final class LoginClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String MODULES = "org.apache.kafka.common.security.";

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        tell("{}");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                tell(JSON.writeValueAsString(Collections.singletonMap("values", exchange(JSON.readTree(line)))));
            } catch (ExecutionException error) {
                refuse(error.getCause());
            } catch (RuntimeException error) {
                refuse(error);
            }
        }
    }

    private static List<String> exchange(JsonNode login) throws Exception {
        Properties settings = settings(login);
        String topic = login.get("topic").asText();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(topic, login.get("value").asText())).get();
        }
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singleton(topic));
            while (values.isEmpty()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    private static Properties settings(JsonNode login) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", login.get("bootstrap").asText());
        settings.put("security.protocol", login.get("protocol").asText());
        settings.put("max.block.ms", login.get("limit_ms").asText());
        settings.put("group.id", login.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        for (String side : new String[] {"key", "value"}) {
            String name = "org.apache.kafka.common.serialization.String";
            settings.put(side + ".serializer", name + "Serializer");
            settings.put(side + ".deserializer", name + "Deserializer");
        }
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", login.get("ca").asText());
        if (!login.get("identity").asText().isEmpty()) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", login.get("identity").asText());
        }
        if (login.get("protocol").asText().startsWith("SASL")) {
            authenticate(login, settings);
        }
        return settings;
    }

    private static void authenticate(JsonNode login, Properties settings) throws Exception {
        String mechanism = login.get("mechanism").asText();
        settings.put("sasl.mechanism", mechanism);
        if (mechanism.equals("OAUTHBEARER")) {
            Path token = Files.createTempFile("token", ".jwt");
            token.toFile().deleteOnExit();
            Files.writeString(token, login.get("token").asText());
            String address = token.toUri().toString();
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", address); // 4.x asks for it
            settings.put("sasl.oauthbearer.token.endpoint.url", address);
            settings.put("sasl.login.callback.handler.class", MODULES + "oauthbearer.OAuthBearerLoginCallbackHandler");
            settings.put("sasl.jaas.config", MODULES + "oauthbearer.OAuthBearerLoginModule required;");
            return;
        }
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        settings.put("sasl.jaas.config", String.format("%s%s required username=\"%s\" password=\"%s\";",
            MODULES, module, login.get("username").asText(), login.get("password").asText()));
    }

    private static void refuse(Throwable error) throws Exception {
        String words = error.getClass().getSimpleName() + ": " + error.getMessage();
        tell(JSON.writeValueAsString(Collections.singletonMap("error", words)));
    }

    private static void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
