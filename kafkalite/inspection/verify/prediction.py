"""Prediction of a restart, fault by fault: repaired, lost, or left as it is.

A pure function of the fault and of the recovery dry run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from kafkalite.inspection.files.findings import Fault, Finding, Severity
from kafkalite.inspection.verify.partition_check import PartitionReport
from kafkalite.inspection.verify.recovery_dry_run import Forecast
from kafkalite.log.storage.file_names import (
    DELETED,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file,
)


def predict(fault: Fault, forecast: Forecast | None, report: PartitionReport | None) -> Finding:
    """The fault with its outcome at the next start. `report` is None for a fault of the root."""
    outcome: tuple[Severity, str] | tuple[Severity, str, int]
    name = os.path.basename(fault.path)
    if fault.severity is not None:
        lost = report.partition.log_bytes if report is not None and fault.severity is Severity.LOSES else 0
        outcome = fault.severity, fault.restart, lost
    elif forecast is None or report is None:
        outcome = Severity.STAYS, "a log of KRaft: kafkalite leaves it alone"
    elif forecast.refusal:
        outcome = Severity.REFUSES, f"the broker does not start: {forecast.refusal}"
    elif name in report.partition.files and name.endswith(LOG):
        outcome = _predict_segment(fault, forecast, report, name)
    else:
        outcome = _predict_file(forecast, name)
    return Finding(fault.path, fault.where, fault.what, *outcome)


def _predict_segment(fault: Fault, forecast: Forecast, report: PartitionReport, name: str) -> tuple[Severity, str, int]:
    size = report.partition.files[name]
    if name not in forecast.sizes:
        if size == 0:
            return Severity.REPAIRED, "the empty segment is deleted", 0
        return Severity.LOSES, "the whole segment is deleted: it lies behind damage", size
    parts = _parts_of(name, forecast, report)
    left = sum(parts)
    cut = size - left
    if fault.unwritten and left == fault.position:
        return Severity.REPAIRED, f"the last {cut} bytes are cut off; no whole batch is among them", 0
    if left < size and left <= max(fault.position, 0):
        behind = [base for base in report.partition.bases if f"{base:020d}{LOG}" > name]
        more = f", and {len(behind)} segments behind it are deleted" if behind else ""
        return Severity.LOSES, f"the log is cut at position {left}{more}", cut
    if left < size:
        what = f"the batch stays, and the log is cut behind it, at position {left}: what follows does not fit to it"
        return Severity.LOSES, what, cut
    if fault.overflows and len(parts) > 1:
        return Severity.REPAIRED, f"the segment is split: its batches go to {len(parts)} segments", 0
    if fault.restart:
        return Severity.STAYS, fault.restart, 0
    if forecast.clean:
        return Severity.STAYS, "the last stop was orderly, so it is not read again: it stays, and is served as it is", 0
    point = forecast.recovery_point
    bases = [base for base in report.partition.bases if base <= point]
    if int(name.split(".")[0]) >= (bases[-1] if bases else 0):
        return Severity.STAYS, "it is read again and taken as it is: a restart does not ask for that", 0
    below = f"it lies below the recovery point, {point}, so it is not read again: it stays, and is served as it is"
    return Severity.STAYS, below, 0


def predict_unexplained(
    findings: Sequence[Finding], forecast: Forecast | None, report: PartitionReport
) -> Iterator[Finding]:
    """The bytes that a restart cuts off although no finding says so."""
    if forecast is None or forecast.refusal:
        return
    explained = {finding.path for finding in findings if finding.severity in (Severity.LOSES, Severity.REPAIRED)}
    for base in report.partition.bases:
        path = report.partition.file(base, LOG)
        left = sum(_parts_of(os.path.basename(path), forecast, report))
        cut = report.partition.segment_bytes(base) - left
        if cut > 0 and path not in explained:
            what = "recovery does not accept what is here"
            yield Finding(path, f"position {left}", what, Severity.LOSES, f"the log is cut at position {left}", cut)


def _parts_of(name: str, forecast: Forecast, report: PartitionReport) -> list[int]:
    """The sizes of the segments that are in the place of that one after a restart: several, if it is split."""
    behind = [base for base in report.partition.bases if f"{base:020d}{LOG}" > name]
    end = f"{behind[0]:020d}{LOG}" if behind else "~"
    return [size for other, size in forecast.sizes.items() if name <= other < end]


def _predict_file(forecast: Forecast, name: str) -> tuple[Severity, str]:
    stem, suffix, leftover = parse_segment_file(name) or (0, name, "")
    if name in forecast.gone:
        if leftover == SWAP:
            live = name.removesuffix(SWAP)
            took_place = live in forecast.sizes or live in forecast.rewritten
            return Severity.REPAIRED, "it takes its place" if took_place else "it is deleted"
        is_awaited = leftover == DELETED  # a stop does not wait for file.delete.delay.ms
        return Severity.HARMLESS if is_awaited else Severity.REPAIRED, "it is deleted"
    if name in forecast.rewritten:
        return Severity.REPAIRED, "it is made again from the log"
    if suffix in (OFFSET_INDEX, TIME_INDEX):
        return Severity.STAYS, (
            "it stays: reads that it leads astray begin at the segment's own begin; "
            f"delete {stem:020d}{OFFSET_INDEX}, and a restart makes both indexes again"
        )
    if suffix == SNAPSHOT:
        return Severity.HARMLESS, "it is not used: a newer one, or the log itself, says more"
    if suffix == LEADER_EPOCHS:
        return Severity.STAYS, "what can be read of it counts; the epochs in the batches are not asked"
    if suffix == TXN_INDEX:
        return Severity.STAYS, "it stays: consumers with read_committed may be shown what was aborted, or miss records"
    return Severity.STAYS, "it stays as it is"
