import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerClientInitialResponse;
import org.apache.kafka.common.security.oauthbearer.internals.secured.JwksFileVerificationKeyResolver;
import org.apache.kafka.common.security.oauthbearer.internals.secured.ValidatorAccessTokenValidator;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler;
import org.apache.kafka.common.utils.Time;
import org.jose4j.jwt.NumericDate;
import org.jose4j.jwt.consumer.NumericDateValidator;

/**
 * Arguments: a file with keys (JWKS), and the time in ms. Lines of "signed" or "unsecured", four settings and a token,
 * in Base64 and parted by blanks; an empty one is unset: the principal in Base64 behind "=" and the end of the token in
 * ms, or "refused".
 *
 * signed: audiences (with commas), issuer, claim of the name, claim of the scopes; the clocks may differ by 30 s.
 * unsecured: claim of the name, claim of the scopes, required scopes, ms by which the clocks may differ.
 */
public class TokenVerdicts {
    private static JwksFileVerificationKeyResolver keys;
    private static long now;

    public static void main(String[] arguments) throws Exception {
        keys = new JwksFileVerificationKeyResolver(Paths.get(arguments[0]));
        keys.init();
        now = Long.parseLong(arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            String[] fields = new String[parts.length - 1];
            for (int i = 0; i < fields.length; i++)
                fields[i] = new String(Base64.getDecoder().decode(parts[i + 1]), "UTF-8");
            String verdict;
            try {
                byte[] first = ("n,,\u0001auth=Bearer " + fields[4] + "\u0001\u0001").getBytes("UTF-8");
                String token = new OAuthBearerClientInitialResponse(first).tokenValue();
                OAuthBearerToken found = parts[0].equals("signed") ? signed(fields, token) : unsecured(fields, token);
                verdict = found == null ? "refused" : "="
                    + Base64.getEncoder().encodeToString(found.principalName().getBytes("UTF-8")) + " " + found.lifetimeMs();
            } catch (Exception fault) {
                verdict = "refused";
            }
            System.out.println(verdict);
        }
    }

    private static OAuthBearerToken signed(String[] fields, String token) throws Exception {
        Set<String> audiences = fields[0].isEmpty() ? null : new HashSet<>(Arrays.asList(fields[0].split(",")));
        ValidatorAccessTokenValidator validator = new ValidatorAccessTokenValidator(
            30, audiences, fields[1].isEmpty() ? null : fields[1], keys, fields[3], fields[2]);
        Object consumer = field(validator, "jwtConsumer");
        for (Object each : (List<?>) field(consumer, "validators"))
            if (each instanceof NumericDateValidator)
                ((NumericDateValidator) each).setEvaluationTime(NumericDate.fromMilliseconds(now));
        return validator.validate(token);
    }

    private static OAuthBearerToken unsecured(String[] fields, String token) throws Exception {
        String[] names = {"PrincipalClaimName", "ScopeClaimName", "RequiredScope", "AllowableClockSkewMs"};
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i < names.length; i++)
            if (!fields[i].isEmpty())
                options.put("unsecuredValidator" + names[i], fields[i]);
        OAuthBearerUnsecuredValidatorCallbackHandler handler = new OAuthBearerUnsecuredValidatorCallbackHandler();
        Field time = handler.getClass().getDeclaredField("time");
        time.setAccessible(true);
        time.set(handler, Proxy.newProxyInstance(
            Time.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, values) -> now));
        handler.configure(Collections.emptyMap(), "OAUTHBEARER", Collections.singletonList(new AppConfigurationEntry(
            "OAuthBearerLoginModule", AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, options)));
        OAuthBearerValidatorCallback callback = new OAuthBearerValidatorCallback(token);
        ((AuthenticateCallbackHandler) handler).handle(new Callback[] {callback});
        return callback.token();
    }

    private static Object field(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }
}
