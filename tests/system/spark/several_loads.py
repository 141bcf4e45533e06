"""The job load into several outputs at a time, as one application that can be killed.

python -m tests.system.spark.several_loads --data-dir DIR --topic NAME --output ONE --output TWO

Each output has a load of its own, as `spark_jobs.load` runs it: one kill of the application is one of each load.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spark_jobs import load
from spark_jobs.job import add_source, new_parser, run_job


def job(spark: Any, options: argparse.Namespace) -> None:
    source = ["--data-dir", options.data_dir, "--topic", options.topic]
    loads = [load.job_parser().parse_args([*source, "--output", output]) for output in options.output]
    with ThreadPoolExecutor(len(loads)) as threads:
        for done in [threads.submit(load.job, spark, each) for each in loads]:
            done.result()


def main() -> int:
    parser = new_parser("load", "Several loads at a time.")
    add_source(parser)
    parser.add_argument("--output", action="append", required=True)
    return run_job(parser, job, None)


if __name__ == "__main__":
    sys.exit(main())
