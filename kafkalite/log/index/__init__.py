"""The three index files of a segment: offsets, timestamps, aborted transactions. Imports storage."""
