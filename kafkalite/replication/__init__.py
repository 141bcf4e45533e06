"""Partitions, the topics on this broker, and what it leads according to the metadata. Imports log, metadata."""
