"""Kafka's wire protocol: how messages are declared, compiled, framed, and which of them this broker answers."""
