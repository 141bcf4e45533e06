"""Segments read, decompressed and assembled as numpy columns. Imports cleaner.job, record, log.storage."""
