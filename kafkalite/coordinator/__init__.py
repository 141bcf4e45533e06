"""The group coordinator, its topic __consumer_offsets, producer ids. Imports replication, record, protocol.records."""
