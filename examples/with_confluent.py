"""First message with confluent-kafka: pip install confluent-kafka; python with_confluent.py [host:port]"""

import sys

from confluent_kafka import Consumer, Producer

broker = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": broker})
producer.produce("greetings", key="confluent", value="hello from confluent-kafka")
producer.flush(10)

consumer = Consumer({"bootstrap.servers": broker, "group.id": "confluent", "auto.offset.reset": "earliest"})
consumer.subscribe(["greetings"])
while True:
    message = consumer.poll(1)
    if message and not message.error() and message.key() == b"confluent":
        print(message.value().decode())
        break
consumer.close()
