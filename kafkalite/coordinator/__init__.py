"""The group coordinator, its topic __consumer_offsets, and producer ids. Imports replication, record, protocol."""
