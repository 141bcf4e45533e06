"""Names, errors, clock, checksums, file regions, metrics: no I/O. Imports nothing of kafkalite."""
