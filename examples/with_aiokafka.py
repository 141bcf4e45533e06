"""First message with aiokafka: pip install aiokafka; python with_aiokafka.py [host:port]"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def main(broker: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
        await producer.send_and_wait("greetings", key=b"aiokafka", value=b"hello from aiokafka")

    async with AIOKafkaConsumer(
        "greetings", bootstrap_servers=broker, group_id="aiokafka", auto_offset_reset="earliest"
    ) as consumer:
        async for message in consumer:
            if message.key == b"aiokafka":
                print(message.value.decode())
                break


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
