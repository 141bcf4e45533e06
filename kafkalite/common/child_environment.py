"""The environment of a process of ours that runs modules of this program."""

from __future__ import annotations

import os
import sys


def child_environment() -> dict[str, str]:
    """The variables by which the child finds every module that this process finds: its PYTHONPATH is this one's
    sys.path."""
    environment = dict(os.environ)
    if sys.flags.ignore_environment:  # then no variable had an effect on this process
        environment = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
    paths = [os.path.abspath(path) for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if os.pathsep not in path)
    environment["PYTHONSAFEPATH"] = "1"
    for library in ("OPENBLAS", "OMP", "MKL"):  # numpy would start threads for matrices, and there are none
        environment[f"{library}_NUM_THREADS"] = "1"
    return environment
