"""Topics as Spark DataFrames, read straight from the segment files; no broker need run, and a running one may write on.

    spark.read.format("kafkalite").option("path", data_dir).option("subscribe", "orders").load()

Spark finds the format by itself where kafkalite is installed (through the module `pyspark_kafkalite`); elsewhere
`spark.dataSource.register(KafkaliteDataSource)` from `kafkalite.spark.data_source` registers it. Executors need numpy
and pyarrow beside this package, and see the data directory under the same path.
"""
