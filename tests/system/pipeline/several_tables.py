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
from tests.support.lake import table_options

JOBS = {"load": load, "latest": latest}


def job(spark: Any, options: argparse.Namespace) -> None:
    module = JOBS[options.job]
    source = ["--data-dir", options.data_dir, "--topic", options.topic]
    into = [text.partition("=") for text in options.into]
    runs = [module.job_parser().parse_args([*source, *table_options(kind, place)]) for kind, _, place in into]
    with ThreadPoolExecutor(len(runs)) as threads:
        for done in [threads.submit(module.job, spark, each) for each in runs]:
            done.result()


def main() -> int:
    parser = new_parser("tables", "Several tables at a time.")
    parser.add_argument("job", choices=tuple(JOBS))
    add_source(parser)
    parser.add_argument("--into", action="append", required=True)
    return run_job(parser, job, None)


if __name__ == "__main__":
    sys.exit(main())
