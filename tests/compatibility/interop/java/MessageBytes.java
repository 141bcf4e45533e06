/*
 * What Kafka's own message classes make of bytes: one line "request|response key version base64" each on standard
 * input. Answers the schema of that version, the message as JSON, and the message written again. With no bytes ("-")
 * the message is a new one, with all defaults.
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

public class MessageBytes {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[1]));
            short version = Short.parseShort(words[2]);
            boolean isRequest = words[0].equals("request");
            ApiMessage message = isRequest ? type.newRequest() : type.newResponse();
            Schema schema = (isRequest ? type.requestSchemas() : type.responseSchemas())[version];
            if (!words[3].equals("-")) {
                ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(words[3]));
                message.read(new ByteBufferAccessor(bytes), version);
                if (bytes.hasRemaining()) throw new IllegalStateException("bytes are left of " + line);
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            System.out.println(show(schema) + "\t" + json(message, version) + "\t"
                + Base64.getEncoder().encodeToString(written.array()));
        }
    }

    private static String json(ApiMessage message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        for (Method method : converter.getMethods()) {
            if (method.getName().equals("write") && method.getParameterCount() == 3) {
                return method.invoke(null, message, version, false).toString();
            }
        }
        throw new NoSuchMethodException(converter.getName());
    }

    private static String show(Type type) {
        if (type instanceof Schema schema) {
            List<String> fields = new ArrayList<>();
            for (BoundField bound : schema.fields()) fields.add(show(bound.def));
            fields.removeIf(String::isEmpty);
            return "{" + String.join(",", fields) + "}" + (schema.isNullable() ? "?" : "");
        }
        if (type.arrayElementType().isPresent()) {
            return "[" + show(type.arrayElementType().get()) + "]" + (type.isNullable() ? "?" : "");
        }
        return type.toString();
    }

    private static String show(Field field) {
        if (!(field.type instanceof TaggedFields tagged)) return field.name + ":" + show(field.type);
        List<String> fields = new ArrayList<>();
        for (Map.Entry<Integer, Field> entry : tagged.fields().entrySet()) {
            fields.add(entry.getKey() + "=" + show(entry.getValue()));
        }
        return String.join(",", fields);
    }
}
