"""Lets Spark find the format "kafkalite" by itself.

PySpark imports every installed top-level module whose name begins with `pyspark_` and registers its DefaultSource.
Source: pyspark.sql.worker.lookup_data_sources.
"""

from kafkalite.spark.data_source import KafkaliteDataSource as DefaultSource

__all__ = ["DefaultSource"]
