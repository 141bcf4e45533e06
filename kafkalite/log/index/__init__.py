"""The three mapped files beside a segment: offsets, times, aborted transactions. Imports storage."""
