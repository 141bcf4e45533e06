"""Parts of planning a read: partitions and their replicas, offset bounds, splits. `kafkalite.reader.plan` joins them.

It may import log (formats, names of files), record and common; numpy.
"""
