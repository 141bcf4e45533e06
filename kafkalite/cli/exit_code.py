"""The exit code of a command: an operator's mistakes become one line on stderr.

An error that an operator can mend ends with exit code 1, never with a traceback.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

from kafkalite.common.errors import ConfigError, StorageError, Unanswered
from kafkalite.common.output import complain

_CANNOT_WRITE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EBADF)
_SHOWN_CHARS = 80


def exit_code(command: Callable[[], int]) -> int:
    """Run a command. Returns its exit code, or that of its error."""
    try:
        try:
            code = command()
        except SystemExit:  # of --help, and of wrong options
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return code
    except (ConfigError, StorageError, Unanswered) as error:
        return complain(str(error))
    except UnicodeEncodeError as error:  # of an argument, which goes into a request
        return complain(f"{error.object[:_SHOWN_CHARS]} is not UTF-8")
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # of `kafkalite config | head`
        _drop_output()
        return 0
    except OSError as error:
        if error.errno not in _CANNOT_WRITE or error.filename is not None:
            raise
        _drop_output()
        return complain(f"the output cannot be written: {error.strerror}")


def _drop_output() -> None:
    """Discards unwritten output, so that the end of the interpreter does not write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
