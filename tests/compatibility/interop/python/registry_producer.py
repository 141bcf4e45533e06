"""Orders written with Confluent's Avro serializer: registry_producer.py BOOTSTRAP REGISTRY TOPIC.

The first schema is that of n and w; the second adds a size, whose schema it refers to.
"""

import json
import sys

from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

bootstrap, url, topic = sys.argv[1:]
FIELDS = [{"name": "n", "type": "int"}, {"name": "w", "type": "string"}]
FIRST = {"type": "record", "name": "shop.Order", "fields": FIELDS}
SIZE = {"type": "enum", "name": "shop.Size", "symbols": ["S", "L"]}
SECOND = {**FIRST, "fields": [*FIELDS, {"name": "size", "type": ["null", "shop.Size"], "default": None}]}

registry = SchemaRegistryClient({"url": url})
producer = Producer({"bootstrap.servers": bootstrap})
registry.register_schema("size", Schema(json.dumps(SIZE), "AVRO"))
of_size = [SchemaReference("shop.Size", "size", 1)]
for schema, orders in (
    (Schema(json.dumps(FIRST), "AVRO"), [{"n": 1, "w": "one"}, {"n": 2, "w": "zwei"}]),
    (Schema(json.dumps(SECOND), "AVRO", of_size), [{"n": 3, "w": "three", "size": "L"}]),
):
    encode = AvroSerializer(registry, schema)
    for order in orders:
        producer.produce(topic, encode(order, SerializationContext(topic, MessageField.VALUE)), partition=0)
producer.flush()
