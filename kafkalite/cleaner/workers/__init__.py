"""Worker processes, and the broker's side of a pass. Imports cleaner.compaction, log."""
