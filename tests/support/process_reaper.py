"""Nothing that a run of the tests began outlives it, however the run ends: also after kill -9.

Every process that is started inherits a mark of this run in its environment. A shell beside the run reads from a pipe
whose other end is here; when that is gone, it kills what still has the mark. It finds nothing where there is no /proc.
"""

from __future__ import annotations

import os
import subprocess
import uuid

MARK = "TEST_RUN_OF_KAFKALITE"

# again and again: whoever begins its children anew need not be the first to go
_SWEEP = """
exec 3<&0 </dev/null
{
    read -r never <&3
    for round in 1 2 3 4 5 6 7 8 9 10; do
        found=
        for place in /proc/[0-9]*; do
            if grep -qas "$0" "$place/environ" && kill -9 "${place#/proc/}" 2>/dev/null; then found=yes; fi
        done
        [ "$found" ] || break
        sleep 0.2
    done
} &
"""


def none_outlive_this_process() -> None:
    """Once in a run; one that was begun by another leaves it to that."""
    if MARK in os.environ:
        return
    mark = uuid.uuid4().hex
    theirs, _ = os.pipe()  # our end is closed by nobody but the system
    command = ["/bin/sh", "-c", _SWEEP, f"{MARK}={mark}"]
    nowhere = subprocess.DEVNULL
    subprocess.run(command, stdin=theirs, stdout=nowhere, stderr=nowhere, start_new_session=True, check=True)
    os.close(theirs)
    os.environ[MARK] = mark
