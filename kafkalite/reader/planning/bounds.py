"""Offsets that a read begins and ends at, among those that a partition has."""

from __future__ import annotations

from kafkalite.common.errors import ConfigError
from kafkalite.reader.planning.read_options import EARLIEST, LATEST, Offsets, ReadOptions


def resolve(
    options: ReadOptions, name: str, offsets: Offsets, topic: str, partition: int, log_start: int, log_end: int
) -> int:
    """The offset that the option means for this partition, of those that are there."""
    offset = offsets if isinstance(offsets, int) else offsets[topic][partition]
    if offset == EARLIEST:
        return log_start
    if offset == LATEST:
        return log_end
    if options.fail_on_data_loss and not log_start <= offset <= log_end:
        raise ConfigError(
            f"{name} of {topic}-{partition} is {offset}, but offsets {log_start} to {log_end} are there; "
            "choose among these, or set failOnDataLoss to false to read what is left"
        )
    return min(max(offset, log_start), log_end)
