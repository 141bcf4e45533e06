import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Lines of a principal and its rules, parted by tabs: the short name that Kafka makes of it, or a bare "!". */
public class ShortNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t");
            String name = "!";
            try {
                KerberosShortNamer rules = KerberosShortNamer.fromUnparsedRules(
                    arguments[0], Arrays.asList(parts).subList(1, parts.length));
                name = rules.shortName(KerberosName.parse(parts[0]));
            } catch (Exception fault) {
                name = "!";
            }
            System.out.println(name);
        }
    }
}
