"""`python -m bench spark`: the format "kafkalite" beside Spark's own format "kafka", in one Spark session.

environment.py   Spark and its connector, fetched into a cache
work.py          values: what is run, and what it took
job.py           runs in that Spark: by turns, each result compared
table.py         medians, ratios, targets
main.py          the command
"""
