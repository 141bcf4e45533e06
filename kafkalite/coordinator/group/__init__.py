"""A consumer group as tables and pure decisions that return effects. Imports protocol.records, protocol.codec."""
