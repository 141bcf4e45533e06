"""Segment files for a reader beside the broker: where batches begin and end, times, transactions.

It may import log (formats, names of files), record and common; numpy.
"""
