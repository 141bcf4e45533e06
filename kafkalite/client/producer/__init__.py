"""Bulk loading of Arrow record batches into topics through brokers, encoded in columns; idempotent or transactional.

Spark's sink uses it. It may import client, protocol, record and common; pyarrow and numpy. No event loop.
"""
