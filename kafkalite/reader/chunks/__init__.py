"""Reading of one chunk: its batches chosen by their headers, decoded to columns, and faults on the way.

It may import planning (values), log (names of files), record and common; numpy.
"""
