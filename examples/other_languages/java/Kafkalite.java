import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A broker for tests, in a process of its own that ends with this one. */
public final class Kafkalite implements AutoCloseable {
    private static final long READY_WITHIN_MS = 30_000;
    private static final Pattern ADDRESS = Pattern.compile("\"bootstrap_servers\": \"([^\"]+)\"");

    private final Path directory;
    private final Process process;
    private final String bootstrapServers;

    /** Starts it, and returns when clients may connect. The arguments are more of those of `kafkalite serve`. */
    public Kafkalite(String... more) throws IOException, InterruptedException, TimeoutException {
        directory = Files.createTempDirectory("kafkalite");
        Path ready = directory.resolve("ready.json");
        String command = System.getenv().getOrDefault("KAFKALITE", "kafkalite");
        ProcessBuilder builder = new ProcessBuilder(
            command, "serve", "--port", "0", "--in-memory", "--exit-with-parent", "--ready-file", ready.toString());
        builder.command().addAll(java.util.List.of(more));
        builder.redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT);
        process = builder.start();
        try {
            bootstrapServers = await(ready);
        } catch (Exception error) {
            close();
            throw error;
        }
    }

    /** For `bootstrap.servers`. */
    public String bootstrapServers() {
        return bootstrapServers;
    }

    @Override
    public void close() throws IOException, InterruptedException {
        process.destroy();
        if (!process.waitFor(10, TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor();
        }
        Files.deleteIfExists(directory.resolve("ready.json"));
        Files.deleteIfExists(directory);
    }

    private String await(Path ready) throws IOException, InterruptedException, TimeoutException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(READY_WITHIN_MS);
        while (!Files.exists(ready)) {
            if (!process.isAlive()) {
                throw new IOException("kafkalite ended with code " + process.exitValue());
            }
            if (System.nanoTime() > end) {
                throw new TimeoutException("kafkalite was not ready in " + READY_WITHIN_MS + " ms");
            }
            Thread.sleep(10);
        }
        Matcher found = ADDRESS.matcher(Files.readString(ready));
        if (!found.find()) {
            throw new IOException("no address in " + ready);
        }
        return found.group(1);
    }
}
