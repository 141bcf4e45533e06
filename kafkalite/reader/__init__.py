"""Reading of partitions from segment files, without a broker, as Arrow record batches: plan, then chunk by chunk.

Spark's data source stands on it. It may import log (formats, names of files), record and common; pyarrow and numpy.
"""
