// First message with KafkaJS: npm install kafkajs; node with_kafkajs.js [host:port]
const { Kafka, logLevel } = require("kafkajs");

const broker = process.argv[2] ?? "127.0.0.1:9092";
const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.ERROR });

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "greetings", messages: [{ key: "kafkajs", value: "hello from KafkaJS" }] });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "kafkajs" });
  await consumer.connect();
  await consumer.subscribe({ topic: "greetings", fromBeginning: true });
  await new Promise((seen, failed) => {
    const eachMessage = async ({ message }) => {
      if (String(message.key) !== "kafkajs") return;
      console.log(String(message.value));
      seen();
    };
    consumer.run({ eachMessage }).catch(failed);
  });
  await consumer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
