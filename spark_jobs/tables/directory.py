"""Directories of a table's data files, of a local file system or of any that Arrow knows by its URI.

    LOCATION/data/3f0c.../00003-9a1b.../topic=orders/day=2026-01-31/part-00003.snappy.parquet

Each run has a directory of its own, and each attempt of a task one below it, so attempts never meet. Files become rows
when the table's library commits them; those of failed attempts and killed runs never do, and the table's maintenance
removes them.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from spark_jobs.load_output import sync, sync_tree

DATA = "data"


class RunDirectory:
    """The directory of one run below a table's `location`, a path or a URI."""

    def __init__(self, location: str) -> None:
        self.below = f"{DATA}/{uuid.uuid4().hex}"
        self.path = f"{local_path(location)}/{self.below}"
        if "://" not in self.path:
            os.makedirs(self.path)

    def relative(self, path: str) -> str:
        """A path below this directory as a path below the table's location."""
        return self.below + path.removeprefix(self.path)

    def sync(self) -> None:
        """Brings all files below it to the disk, and their names up to the table's location: a commit may outlive a
        power cut only with them. Other file systems than the local one see to that themselves."""
        if "://" not in self.path:
            sync_tree(self.path)
            sync(os.path.dirname(self.path))
            sync(self.path.removesuffix(f"/{self.below}"))

    def discard(self) -> None:
        """Removes it with all files, as far as the file system lets it."""
        with suppress(OSError, pa.ArrowException):
            system, path = pafs.FileSystem.from_uri(self.path)
            system.delete_dir(path)


def local_path(location: str) -> str:
    """The path of a location in the local file system; a URI of another one as it is."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return unquote(parts.path).rstrip("/")
    return location.rstrip("/") if parts.scheme else os.path.abspath(location)
