"""Worker processes, and the broker's side of a cleaning. Imports cleaner.compaction, log."""
