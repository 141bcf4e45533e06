"""Partitions, the topics on this broker, and their leaders according to the metadata. Imports log, metadata."""
