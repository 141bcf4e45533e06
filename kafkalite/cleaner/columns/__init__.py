"""Segments read, unpacked and assembled as numpy columns. Imports cleaner.job, record, log.storage."""
