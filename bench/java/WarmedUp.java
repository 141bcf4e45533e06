import java.util.Arrays;
import org.apache.kafka.tools.ProducerPerformance;

/**
 * ProducerPerformance twice in one JVM: arguments, "--then--", arguments.
 *
 * Its percentiles are of a whole run, of which a JVM spends the first seconds loading classes and interpreting; one
 * record of a hundred is enough to be the 99th percentile. The first run is for that, the second is the one that counts.
 */
public final class WarmedUp {
    public static void main(String[] arguments) throws Exception {
        int between = Arrays.asList(arguments).indexOf("--then--");
        ProducerPerformance.main(Arrays.copyOfRange(arguments, 0, between));
        System.out.println("--then--");
        ProducerPerformance.main(Arrays.copyOfRange(arguments, between + 1, arguments.length));
    }
}
