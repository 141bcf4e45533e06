"""A job into several tables at a time, as one application that can be killed.

python -m tests.system.pipeline.several_tables JOB --data-dir DIR --topic NAME --into iceberg=PLACE --into delta=PLACE

Each table has a run of its own, as the job itself has it, and a catalog of its own: one kill of the application is one
of each.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spark_jobs import latest, load
from spark_jobs.job import add_source, new_parser, run_job
from spark_jobs.tables.options import add_table
from tests.support.lake import table_options

JOBS = {"load": load.job, "latest": latest.job}

PARTITION_BY = {"load": "topic,day", "latest": "topic,partition"}


def job(spark: Any, options: argparse.Namespace) -> None:
    runs = []
    for text in options.into:
        kind, _, place = text.partition("=")
        where = argparse.ArgumentParser()
        add_table(where, f"kafkalite-{options.job}", PARTITION_BY[options.job])
        where.add_argument("--output")
        table = where.parse_args(table_options(kind, place))
        runs.append(argparse.Namespace(**{**vars(options), **vars(table)}))
    with ThreadPoolExecutor(len(runs)) as threads:
        for done in [threads.submit(JOBS[options.job], spark, each) for each in runs]:
            done.result()


def main() -> int:
    parser = new_parser("tables", "Several tables at a time.")
    parser.add_argument("job", choices=tuple(JOBS))
    add_source(parser)
    parser.add_argument("--into", action="append", required=True)
    parser.set_defaults(compression=load.COMPRESSION, columns=None, every=None)
    return run_job(parser, job, None)


if __name__ == "__main__":
    sys.exit(main())
