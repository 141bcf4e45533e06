"""A real Apache Kafka from Maven Central, on this machine, for as long as a `with` block: the reference."""

from bench.reference.jars import ReferenceUnavailable, class_path, compile_class
from bench.reference.kafka import Reference, reference_kafka

__all__ = ["Reference", "ReferenceUnavailable", "class_path", "compile_class", "reference_kafka"]
