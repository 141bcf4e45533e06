"""One partition's log: append, read, flush, retention, replacement of segments. Imports recovery, segment."""
