"""Log compaction: the LogCleaner in the broker, and its worker processes. Imports log, record."""
