import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Kafka's tools in one JVM: a line of JSON in, the class with its arguments; a line out, with what the tool printed. */
public class ToolRunner {
    static final ObjectMapper JSON = new ObjectMapper();

    static class Ended extends Error {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended ended) {
                return ended.code;
            }
            throw thrown;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure procedure = (code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            throw new Ended(code);
        };
        Exit.setExitProcedure(procedure);
        Exit.setHaltProcedure(procedure);
        PrintStream answers = System.out;
        PrintStream log = System.err;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("{}");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<String> words = new ArrayList<>();
            JSON.readTree(line).get("words").forEach(word -> words.add(word.textValue()));
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            try (PrintStream both = new PrintStream(said, true, StandardCharsets.UTF_8)) {
                System.setOut(both);
                System.setErr(both);
                int code = run(words.get(0), words.subList(1, words.size()).toArray(new String[0]));
                String text = said.toString(StandardCharsets.UTF_8);
                answers.println(JSON.writeValueAsString(Map.of("values", List.of(text, String.valueOf(code)))));
            } catch (Exception fault) {
                fault.printStackTrace(log);
                answers.println(JSON.writeValueAsString(Map.of("error", String.valueOf(fault.getCause()))));
            }
            answers.flush();
        }
    }
}
