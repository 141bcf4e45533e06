"""First message with kafka-python: pip install kafka-python; python with_kafka_python.py [host:port]"""

import sys

from kafka import KafkaConsumer, KafkaProducer

broker = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

producer = KafkaProducer(bootstrap_servers=broker)
producer.send("greetings", key=b"kafka-python", value=b"hello from kafka-python").get(timeout=10)
producer.close()

consumer = KafkaConsumer(
    "greetings",
    bootstrap_servers=broker,
    group_id="kafka-python",
    auto_offset_reset="earliest",
    session_timeout_ms=10000,
)
for message in consumer:
    if message.key == b"kafka-python":
        print(message.value.decode())
        break
consumer.close()
