"""Spark jobs over a broker's data directory. Each module runs by itself: `python -m spark_jobs.load --help`."""
