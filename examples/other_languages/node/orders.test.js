const assert = require("node:assert");
const { after, before, test } = require("node:test");
const { Kafka, logLevel } = require("kafkajs");
const { startKafkalite } = require("./kafkalite");

let broker;
before(async () => (broker = await startKafkalite()));
after(() => broker.stop());

test("an order is announced", async () => {
  const kafka = new Kafka({ brokers: [broker.bootstrapServers], logLevel: logLevel.ERROR });
  const producer = kafka.producer({ createPartitioner: require("kafkajs").Partitioners.DefaultPartitioner });
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ key: "42", value: "an order" }] });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "billing" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const message = await new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message) }).catch(reject);
  });
  await consumer.disconnect();
  assert.deepStrictEqual([String(message.key), String(message.value)], ["42", "an order"]);
});
