"""Parts of planning a read: partitions and their replicas, offset bounds, splits. `kafkalite.reader.plan` joins them.

It may import segments, log (names of files) and common; numpy.
"""
