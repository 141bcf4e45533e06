import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Lines of "ssl" or "kerberos", a name and its rules, in Base64 and parted by blanks: the user that Kafka makes of the
 * name, in Base64 behind "=", or "config" if it refuses the rules, or "nobody", or "slow" if that takes seconds. Lines of
 * "dn" and the DER of a distinguished name: the name as text, or "nobody".
 */
public class NameRules {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            List<String> fields = new ArrayList<>();
            for (int i = 1; i < parts.length; i++)
                fields.add(new String(Base64.getDecoder().decode(parts[i]), "UTF-8"));
            String[] verdict = {"slow"};
            Thread thread = new Thread(() -> {
                try {
                    verdict[0] = parts[0].equals("dn") ? text(Base64.getDecoder().decode(parts[1]))
                        : parts[0].equals("ssl") ? ssl(fields) : kerberos(arguments[0], fields);
                } catch (Exception fault) {
                    throw new RuntimeException(fault);
                }
            });
            thread.setDaemon(true);
            thread.start();
            thread.join(2_000);
            System.out.println(verdict[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // what is slow goes on for ever
    }

    private static String text(byte[] name) throws Exception {
        try {
            return told(new X500Principal(name).getName());
        } catch (IllegalArgumentException fault) {
            return "nobody";
        }
    }

    private static String ssl(List<String> fields) throws Exception {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(fields.get(1));
        } catch (IllegalArgumentException fault) {
            return "config";
        }
        try {
            return told(mapper.getName(fields.get(0)));
        } catch (Exception | StackOverflowError fault) {
            return "nobody";
        }
    }

    private static String kerberos(String realm, List<String> fields) throws Exception {
        KerberosShortNamer rules;
        try {
            rules = KerberosShortNamer.fromUnparsedRules(realm, fields.subList(1, fields.size()));
        } catch (IllegalArgumentException fault) {
            return "config";
        }
        try {
            return told(rules.shortName(KerberosName.parse(fields.get(0))));
        } catch (Exception | StackOverflowError fault) {
            return "nobody";
        }
    }

    private static String told(String name) throws Exception {
        return "=" + Base64.getEncoder().encodeToString(name.getBytes("UTF-8"));
    }
}
