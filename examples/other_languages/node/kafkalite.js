// A broker for tests, in a process of its own that ends with this one.
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");

const READY_WITHIN_MS = 30_000;

// Starts a broker; `more` are more arguments of `kafkalite serve`. Resolves when clients may connect.
async function startKafkalite(...more) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "kafkalite-"));
  const ready = path.join(directory, "ready.json");
  const broker = spawn(
    process.env.KAFKALITE ?? "kafkalite",
    ["serve", "--port", "0", "--in-memory", "--exit-with-parent", "--ready-file", ready, ...more],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
  let failure = null;
  const ended = new Promise((resolve) => {
    broker.on("error", (error) => resolve((failure = error)));
    broker.on("exit", (code) => resolve((failure = new Error(`kafkalite ended with code ${code}`))));
  });
  const stop = async () => {
    broker.kill("SIGTERM");
    await ended;
    fs.rmSync(directory, { recursive: true, force: true });
  };
  const end = Date.now() + READY_WITHIN_MS;
  while (!fs.existsSync(ready)) {
    if (failure === null && Date.now() > end) failure = new Error(`kafkalite was not ready in ${READY_WITHIN_MS} ms`);
    if (failure !== null) {
      const reason = failure;
      await stop();
      throw reason;
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  const { bootstrap_servers: bootstrapServers } = JSON.parse(fs.readFileSync(ready, "utf8"));
  return { bootstrapServers, stop };
}

module.exports = { startKafkalite };
