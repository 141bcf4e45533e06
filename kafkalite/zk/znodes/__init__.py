"""Kafka's znodes: paths and data, as values. Imports metadata."""
