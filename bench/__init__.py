"""The same work against any Kafka: `python -m bench --bootstrap HOST:PORT` prints a table (and JSON)."""
